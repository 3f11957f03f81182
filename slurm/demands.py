"""What a waiting job asks of its nodes, as far as it is certain.

``demand_of`` reads a job's record, and ``parse_constraint`` the expression of its
``--constraint``. A part that Slurm cut, or that this version cannot read, asks for
nothing: then the job counts as one that could start, as others must not wait because
we misread them. Licences are left out: Slurm says itself that a job waits for one
(reason ``Licenses``).

squeue does not tell whether a job may take more nodes than it names, so what it asks
for in all (``--gpus``) says how many nodes it takes, and not what each must have.

Slurm reads constraints from left to right, without precedence: ``a|b&c`` asks for c,
and for a or b. Features are active ones. Source: sbatch(1), and in Slurm
``_feature_string2list`` and ``valid_feature_counts``, 21.08 to 26.05:

==========================  ==================================================
``a&b``, ``a,b``            each node has both
``a|b``                     each node has one of them
``a&(b|c)``                 parentheses, one level of them
``[a|b]``                   all nodes have a, or all have b
``a*2``                     at least two nodes have a; the others need not
``[a*2&b*3]``               two nodes that have a and three others that have b
==========================  ==================================================
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from slurm.errors import UnreadableOutputError
from slurm.records import Gres, Requirement, expand

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from slurm.records import JobRecord, Node

Expression: TypeAlias = "str | tuple[tuple[str, Expression], ...]"
"""A feature, or operands in order, each with the operator before it: ``&`` or ``|``."""


@dataclass(frozen=True, slots=True)
class FeatureChoice:
    """One way to meet a constraint.

    Attributes:
        each: What every node must have; None for nothing.
        some: Parts that at least so many nodes must have.
        is_apart: Whether no node may count for two parts of ``some``.
    """

    each: Expression | None = None
    some: tuple[tuple[Expression, int], ...] = ()
    is_apart: bool = False


ANY_NODE = FeatureChoice()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDemand:
    """What a job asks of its nodes.

    Attributes:
        partitions: All nodes are of one of them; none for any.
        choices: All nodes meet one of them.
        required: Nodes that it must have.
        excluded: Nodes that it must not have.
        nodes: How many nodes it takes at least.
        cpus, memory_mib, gres: What each node has at least; an empty kind takes any.
        gres_in_all: What all nodes together have at least.
    """

    partitions: tuple[str, ...] = ()
    choices: tuple[FeatureChoice, ...] = (ANY_NODE,)
    required: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()
    nodes: int = 1
    cpus: int = 0
    memory_mib: int = 0
    gres: tuple[Gres, ...] = ()
    gres_in_all: tuple[Gres, ...] = ()


def demand_of(job: JobRecord) -> NodeDemand:
    """Return what *job* asks of its nodes."""
    required = _names(job.requested_nodes)
    nodes = max(1, job.node_count, len(required))
    per_task = tuple(_gres(job, "gres_per_task"))
    in_all = _most((*_gres(job, "gres_per_job"), *_times(job.task_count, per_task)))
    each = [*_gres(job, "gres_per_node"), *_gres(job, "gres_per_socket"), *per_task]
    if nodes == 1:  # at least the first node has some of it
        each += (replace(gres, count=1) for gres in in_all)
    choices = None if "features" in job.cut else parse_constraint(job.features)
    return NodeDemand(
        partitions=job.partitions,
        choices=(ANY_NODE,) if choices is None else choices,
        required=required,
        excluded=_names(job.excluded_nodes),
        nodes=nodes,
        cpus=job.least_cpus,
        # Slurm's figure may be for each CPU, of which a node gives at least one.
        memory_mib=job.least_memory_mib,
        gres=_most(each),
        gres_in_all=in_all,
    )


def asked_for(job: JobRecord) -> tuple[object, ...]:
    """Return what ``demand_of`` goes by, as a key: of equal keys demands are equal."""
    return (
        job.partitions,
        job.features,
        job.requested_nodes,
        job.excluded_nodes,
        job.node_count,
        job.task_count,
        job.least_cpus,
        job.least_memory_mib,
        job.gres_per_node,
        job.gres_per_job,
        job.gres_per_task,
        job.gres_per_socket,
        job.cut,
    )


# Jobs that share nodes.

_SHARES = frozenset({"OK", "YES"})
"""squeue's words for jobs that others may run beside; all others want whole nodes:
``NO``, ``USER``, ``MCS``, ``TOPO``. Source: job_share_string of Slurm 21.08 to 26.05.
"""

_GRES_FIELDS = ("gres_per_node", "gres_per_job", "gres_per_task", "gres_per_socket")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartDemand:
    """What a job that shares nodes asks of them; equal to itself alone.

    Attributes:
        least: What each node gives at least.
        memory_mib: What each node gives at least, or for each of its CPUs; 0 for all
            that it has.
        cpus, gres_in_all: What all nodes together give.
        tasks: How many tasks share that out, 0 where unknown.
        per_task: Generic resources of each task.
        is_clear: Whether nothing else is asked for; if not, no part of a node is known
            to be enough.
    """

    least: Requirement
    memory_mib: int = 0
    cpus: int = 0
    gres_in_all: tuple[Gres, ...] = ()
    tasks: int = 0
    per_task: tuple[Gres, ...] = ()
    is_clear: bool = True

    def enough_of(self, node: Node, nodes: int) -> Requirement | None:
        """Return the part of *node* with which the job starts surely.

        Tasks are spread evenly. Slurm's figure for memory may be for each CPU: it
        counts as that where the node has so much.

        Args:
            node: One of those that the job gets.
            nodes: How many it gets.

        Returns:
            None where it is not known what would be enough.
        """
        if not self.is_clear:
            return None
        tasks = max(1, self.tasks)
        here = -(-tasks // nodes)
        cpus = max(1, self.least.cpus, here * -(-self.cpus // tasks))
        mib = self.memory_mib
        gres = (
            *self.least.gres,
            *(replace(g, count=-(-g.count // nodes)) for g in self.gres_in_all),
            *_times(here, self.per_task),
        )
        return replace(
            self.least,
            cpus=cpus,
            memory_mib=mib * cpus if mib * cpus <= node.memory_mib else mib,
            gres=_most(gres),
        )


def part_demand(job: JobRecord) -> PartDemand | None:
    """Return what *job* asks of nodes that it shares; None for one that shares none."""
    if job.oversubscribe and job.oversubscribe not in _SHARES:
        return None
    demand = demand_of(job)
    is_read = not any(map(partial(_has_unread, job), _GRES_FIELDS))
    return PartDemand(
        least=Requirement(
            partition="",
            cpus=demand.cpus,
            memory_mib=max(1, demand.memory_mib),
            gres=demand.gres,
            exclusive=False,
        ),
        memory_mib=demand.memory_mib,
        cpus=job.cpu_count,
        gres_in_all=demand.gres_in_all,
        tasks=job.task_count,
        per_task=tuple(_gres(job, "gres_per_task")),
        is_clear=bool(job.oversubscribe) and is_read and not job.gres_per_socket,
    )


def asked_of_parts(job: JobRecord) -> tuple[object, ...]:
    """Return what ``part_demand`` goes by beside ``asked_for``, as a key."""
    return job.cpu_count, job.oversubscribe


def held_by(job: JobRecord) -> tuple[Requirement, bool]:
    """Return what the running *job* has of its only node, and whether that is clear."""
    per_task = _times(job.task_count, tuple(_gres(job, "gres_per_task")))
    gres = (*_gres(job, "gres_per_node"), *_gres(job, "gres_per_job"), *per_task)
    held = Requirement(
        partition="",
        cpus=job.cpu_count,
        memory_mib=job.least_memory_mib,
        gres=_most(gres),
        exclusive=False,
    )
    is_read = not any(map(partial(_has_unread, job), _GRES_FIELDS))
    return held, is_read and not job.gres_per_socket


def _has_unread(job: JobRecord, field: str) -> bool:
    """Tell whether generic resources of one *field* are cut, or in no known form."""
    words = getattr(job, field).split(",")
    asked = [word for word in words if word.startswith("gres")]
    return field in job.cut or not all(map(_REQUEST.fullmatch, asked))


def _names(hostlist: str) -> frozenset[str]:
    try:
        return frozenset(expand(hostlist))
    except UnreadableOutputError:
        return frozenset()


_REQUEST = re.compile(
    r"gres[:/]([A-Za-z][\w-]*)(?:[:=]([A-Za-z0-9][\w.-]*?))?(?:[:=]([0-9]{1,9}))?",
    re.ASCII,
)
"""A generic resource as jobs ask for it: ``gres:gpu``, ``gres:gpu:a100:2``, and since
23.02 ``gres/gpu:2``. Source: squeue of 21.08 to 26.05."""


def _gres(job: JobRecord, field: str) -> Iterator[Gres]:
    """Yield the generic resources of one *field*; those that are unclear are left out.

    Source: other TRES may stand beside them (``cpu:2,gres/gpu:1``).
    """
    words = getattr(job, field).split(",")
    for word in words[:-1] if field in job.cut else words:
        found = _REQUEST.fullmatch(word)
        if found is not None:
            name, kind, count = found.groups()
            if kind and kind.isdecimal() and count is None:
                kind, count = "", kind
            yield Gres(name, kind or "", int(count or 1))


def _times(tasks: int, gres: Collection[Gres]) -> Iterator[Gres]:
    return (replace(g, count=max(1, tasks) * g.count) for g in gres)


def _most(gres: Collection[Gres]) -> tuple[Gres, ...]:
    """Return each resource once, with its highest count."""
    most: dict[tuple[str, str], int] = {}
    for resource in gres:
        key = (resource.name, resource.kind)
        most[key] = max(resource.count, most.get(key, 0))
    return tuple(Gres(name, kind, count) for (name, kind), count in most.items())


# Constraint expressions.


def has_features(expression: Expression, features: Collection[str]) -> bool:
    """Tell whether a node with these active *features* meets *expression*."""
    if isinstance(expression, str):
        return expression in features
    is_met = True
    for operator, operand in expression:
        is_operand_met = has_features(operand, features)
        is_met = (
            is_met or is_operand_met if operator == "|" else is_met & is_operand_met
        )
    return is_met


def parse_constraint(text: str) -> tuple[FeatureChoice, ...] | None:
    """Return the ways in which nodes can meet *text*, of which one must be met.

    Returns:
        None for an expression that this version cannot read; it may be cut, or newer.
    """
    if not text:
        return (ANY_NODE,)
    try:
        terms, bracketed = _parsed(text)
    except ValueError:
        return None
    if bracketed is None:
        return _without_brackets(terms)
    return _with_brackets(terms, bracketed)


@dataclass(frozen=True, slots=True)
class _Term:
    """An operand with the operator before it, and its count; 0 for none."""

    operator: str
    operand: Expression
    count: int = 0


_TOKEN = re.compile(r"[A-Za-z0-9_.:=+@/-]+|[&|,*()\[\]]", re.ASCII)
_COUNT = re.compile(r"[0-9]{1,6}", re.ASCII)
_OPERATORS = {"&": "&", ",": "&", "|": "|"}
_SIGNS = frozenset("&|,*()[]")
_BRACKETS = ""
"""The operand that stands for the brackets; no feature has that name."""


def _parsed(text: str) -> tuple[list[_Term], list[_Term] | None]:
    """Return the terms of *text*, and those in its brackets; None for no brackets.

    Raises:
        ValueError: No expression.
    """
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != text:
        raise ValueError("an unknown sign")
    tokens.reverse()
    bracketed: list[_Term] | None = None
    terms: list[_Term] = []
    for operator in _operators(tokens):
        if tokens and tokens[-1] == "[":
            if bracketed is not None:
                raise ValueError("brackets twice")
            tokens.pop()
            bracketed = list(_terms(tokens))
            _take(tokens, "]")
            terms.append(_Term(operator, _BRACKETS))
        else:
            terms.append(_term(tokens, operator))
    if tokens:
        raise ValueError("text behind the expression")
    return terms, bracketed


def _operators(tokens: list[str]) -> Iterator[str]:
    """Yield the operator before each operand; the caller takes the operand."""
    yield "&"
    while tokens and tokens[-1] in _OPERATORS:
        yield _OPERATORS[tokens.pop()]


def _terms(tokens: list[str]) -> Iterator[_Term]:
    for operator in _operators(tokens):
        yield _term(tokens, operator)


def _term(tokens: list[str], operator: str) -> _Term:
    """Take a feature, or several in parentheses, with its count."""
    operand: Expression
    if tokens and tokens[-1] == "(":
        tokens.pop()
        operand = tuple((op, _feature(tokens)) for op in _operators(tokens))
        _take(tokens, ")")
    else:
        operand = _feature(tokens)
    count = 0
    if tokens and tokens[-1] == "*":
        tokens.pop()
        number = tokens.pop() if tokens else ""
        count = int(number) if _COUNT.fullmatch(number) else 0
        if not count:
            raise ValueError("no count")
    return _Term(operator, operand, count)


def _feature(tokens: list[str]) -> str:
    name = tokens.pop() if tokens else "&"
    if name in _SIGNS:
        raise ValueError("a feature expected")
    return name


def _take(tokens: list[str], sign: str) -> None:
    if not tokens or tokens.pop() != sign:
        raise ValueError(f"{sign} expected")


def _without_brackets(terms: list[_Term]) -> tuple[FeatureChoice, ...]:
    counted = tuple((term.operand, term.count) for term in terms if term.count)
    if counted:  # Slurm then limits the other nodes to nothing
        return (FeatureChoice(some=counted),)
    return (FeatureChoice(tuple((term.operator, term.operand) for term in terms)),)


def _with_brackets(
    terms: list[_Term], bracketed: list[_Term]
) -> tuple[FeatureChoice, ...] | None:
    operators = {term.operator for term in bracketed[1:]}
    if any(term.count for term in terms) or len(operators) > 1:
        return None

    def each(inside: Expression) -> Expression:
        return tuple(
            (term.operator, inside if term.operand == _BRACKETS else term.operand)
            for term in terms
        )

    if operators == {"&"}:
        any_of_them = tuple(
            ("|" if k else "&", t.operand) for k, t in enumerate(bracketed)
        )
        some = tuple((term.operand, term.count) for term in bracketed if term.count)
        return (FeatureChoice(each(any_of_them), some, is_apart=True),)
    if len(bracketed) == len(terms) == 1 and bracketed[0].count:
        return _without_brackets(bracketed)
    return tuple(
        FeatureChoice(
            each(term.operand), ((term.operand, term.count),) if term.count else ()
        )
        for term in bracketed
    )
