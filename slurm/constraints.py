"""Constraint expressions of ``--constraint``: which features a job's nodes must have.

``parse_constraint`` reads an expression; ``has_features`` tells whether a node meets a
part of it. Slurm reads expressions from left to right, without precedence: ``a|b&c``
asks for c, and for a or b. Features are active ones. Source: sbatch(1), and in Slurm
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
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

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
    for operator in _operators(tokens, first="&"):
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


def _operators(tokens: list[str], *, first: str) -> Iterator[str]:
    """Yield the operator before each operand; the caller takes the operand."""
    yield first
    while tokens and tokens[-1] in _OPERATORS:
        yield _OPERATORS[tokens.pop()]


def _terms(tokens: list[str]) -> Iterator[_Term]:
    for operator in _operators(tokens, first="&"):
        yield _term(tokens, operator)


def _term(tokens: list[str], operator: str) -> _Term:
    """Take a feature, or several in parentheses, with its count."""
    operand: Expression
    if tokens and tokens[-1] == "(":
        tokens.pop()
        operand = tuple((op, _name(tokens)) for op in _operators(tokens, first="&"))
        _take(tokens, ")")
    else:
        operand = _name(tokens)
    count = 0
    if tokens and tokens[-1] == "*":
        tokens.pop()
        number = tokens.pop() if tokens else ""
        count = int(number) if _COUNT.fullmatch(number) else 0
        if not count:
            raise ValueError("no count")
    return _Term(operator, operand, count)


def _name(tokens: list[str]) -> str:
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
