"""The pool of a replay: which nodes are idle over time, and which run holds them.

``idle_of`` finds the idle intervals of a log, and ``PoolTimeline`` cuts pool events out
of them. ``NodePool`` plays these: it knows the free nodes, and the run that holds each
of the others. The pool that a tick plans with is in ``freetrain.broker.pool``.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from freetrain.errors import UsageError
from freetrain.text import counted
from logs.format import peak_units
from logs.schedule import Schedule, holes, schedule
from logs.simulation import Method, Reason
from logs.trace import IdleTrace, JobTrace, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from freetrain.replay.accounting import Run


DAY_S = 86_400.0

_ROUNDING = 1e-9
"""So near to a whole number, a mean of nodes is whole."""

WHY_LEFT_OUT = {
    Reason.NO_UNITS: "they needed no nodes",
    Reason.NEVER_RAN: "they never ran",
    Reason.NO_START: "the log does not tell when they started",
    Reason.TOO_WIDE: "they need more than the machine has",
}


def idle_of(
    trace: Trace,
    method: Method,
    *,
    on_progress: Callable[[float], None] | None = None,
) -> tuple[IdleTrace, tuple[str, ...]]:
    """Return when nodes are idle, as the log says or as *method* leaves them.

    Also returns a sentence for each part of the log that was not used.

    Raises:
        UsageError: A log of idle intervals has no jobs to schedule.
        UnusableLogError: The log's jobs cannot be scheduled.
    """
    skipped = counted(trace.skipped_lines, "bad line")
    left_out = (f"{skipped} passed over.",) if trace.skipped_lines else ()
    if isinstance(trace, JobTrace):
        scheduled = schedule(trace, method, on_progress=on_progress)
        cautions = log_cautions(trace, method)
        sentences = (*left_out, *cautions, *_not_placed(scheduled))
        return holes(scheduled), sentences
    if method is not Method.RECORDED:
        raise UsageError(
            f"{trace.source} holds idle intervals and no jobs, so there is nothing "
            f"for --schedule {method} to place. Nothing was done. Leave --schedule out."
        )
    return trace, left_out


def log_cautions(trace: JobTrace, method: Method) -> tuple[str, ...]:
    """Return the cautions of *trace*, and another where *method* does not suit it."""
    is_shared = trace.names_nodes and peak_units(trace.jobs) > trace.units
    if method is Method.RECORDED or not is_shared:
        return trace.cautions
    whole = (
        f"Jobs of this log share nodes; --schedule {method} gives each job whole nodes "
        f"of its own, so that they wait for longer than they did."
    )
    return (*trace.cautions, whole)


def _not_placed(scheduled: Schedule) -> tuple[str, ...]:
    reasons = Counter(scheduled.refused.values())
    sentences = [
        f"{counted(n, 'job')} left out: {WHY_LEFT_OUT[why]}."
        for why, n in reasons.items()
    ]
    over = scheduled.over_commitment
    if over.jobs:
        sentences.append(
            f"{counted(over.jobs, 'job')} held more than the machine has, "
            f"by {over.worst_units:,} at the worst."
        )
    return tuple(sentences)


@dataclass(frozen=True, slots=True)
class PoolEvent:
    """A time at which idle intervals start or end.

    Attributes:
        time_s: Seconds from the start of the replay.
        joined: Nodes that become idle, by index, ascending.
        left: Nodes that are taken, by index, ascending. A node whose intervals touch
            is in neither.
    """

    time_s: float
    joined: tuple[int, ...]
    left: tuple[int, ...]


class PoolSource(Protocol):
    """Where an engine's pool events come from: a recorded log, or a simulation."""

    @property
    def node_names(self) -> Sequence[str]:
        """The nodes that take part; an index into it names a node."""
        ...

    @property
    def horizon_s(self) -> float:
        """When the replay ends, seconds from its start."""
        ...

    def events(self) -> Iterator[PoolEvent]:
        """Yield the events in order of time; the first is at 0.

        The engine has played an event before it asks for the next one.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class PoolTimeline:
    """What a replay sees of an idle trace.

    Attributes:
        node_names: The nodes that take part; an index into it names a node.
        times_s: Event times, seconds from the start of the replay, float64,
            ascending; the first is 0. Every distinct time at which an interval
            of these nodes starts or ends is an event, even where nothing
            changes because intervals touch; so is the log's end.
        joined: Nodes that become idle, by event.
        left: Nodes that are taken, by event.
        horizon_s: When the replay ends: at the last event if the whole log is
            replayed, which is the log's end. At most one event lies after it.
    """

    node_names: tuple[str, ...]
    times_s: NDArray[np.float64]
    joined: Moves
    left: Moves
    horizon_s: float

    @classmethod
    def from_trace(
        cls,
        trace: IdleTrace,
        *,
        start_s: float = 0.0,
        nodes: int | None = None,
        days: float | None = None,
    ) -> PoolTimeline:
        """Cut a replay's timeline out of *trace*.

        Args:
            trace: The idle intervals.
            start_s: Where the replay starts, seconds of the log; intervals that
                are open by then start with it.
            nodes: How many of the log's nodes take part, the first ones; None
                for all.
            days: How long the replay lasts; None for the rest of the log.

        Raises:
            UsageError: *nodes*, *start_s* or *days* leave nothing to replay.
        """
        taking_part = len(trace.node_names) if nodes is None else nodes
        _check_cut(trace, start_s=start_s, nodes=taking_part, days=days)
        chosen = (trace.node < taking_part) & (trace.end_s > start_s)
        node = trace.node[chosen].astype(np.int64)
        opens_s = np.maximum(trace.start_s[chosen], start_s) - start_s
        closes_s = trace.end_s[chosen] - start_s
        end_s = trace.span_s - start_s
        times_s = np.unique(np.concatenate(([0.0, end_s], opens_s, closes_s)))
        horizon_s = float(times_s[-1]) if days is None else days * DAY_S
        opened = np.searchsorted(times_s, opens_s) * taking_part + node
        closed = np.searchsorted(times_s, closes_s) * taking_part + node
        kept = int(np.searchsorted(times_s, horizon_s, side="right")) + 1
        return cls(
            node_names=trace.node_names[:taking_part],
            times_s=times_s[:kept],
            joined=_moves(_without(opened, closed), taking_part, len(times_s)),
            left=_moves(_without(closed, opened), taking_part, len(times_s)),
            horizon_s=horizon_s,
        )

    @classmethod
    def dedicated(cls, nodes: float, span_s: float) -> PoolTimeline:
        """Return the timeline of *nodes* that are there for all of *span_s*.

        Where *nodes* is not whole, one node more is there at first, for that share of
        the time: what is trained lies as far between the whole counts.
        """
        whole = math.floor(nodes + _ROUNDING)
        part_s = (nodes - whole) * span_s if nodes > whole + _ROUNDING else 0.0
        every = whole + (part_s > 0)
        events = 1 + (part_s > 0)
        return cls(
            node_names=tuple(f"dedicated-{k}" for k in range(every)),
            times_s=np.array([0.0, part_s][:events]),
            joined=_moves(np.arange(every), max(every, 1), events),
            left=_moves(np.arange(whole, every) + every, max(every, 1), events),
            horizon_s=span_s,
        )

    def events(self) -> Iterator[PoolEvent]:
        """Yield the events in order; the first is at 0."""
        for index, time_s in enumerate(self.times_s.tolist()):
            yield PoolEvent(time_s, self.joined.at(index), self.left.at(index))

    @property
    def most_nodes(self) -> int:
        """The most nodes that are idle at a time."""
        return int(self._idle_nodes.max(initial=0))

    @property
    def mean_nodes(self) -> float:
        """Mean number of idle nodes up to the horizon."""
        idle = self._idle_nodes
        until_s = np.append(self.times_s, self.horizon_s).clip(max=self.horizon_s)
        return float((idle * np.diff(until_s)).sum()) / self.horizon_s

    @property
    def _idle_nodes(self) -> NDArray[np.int64]:
        """How many nodes are idle from each event on."""
        change = np.diff(self.joined.first) - np.diff(self.left.first)
        return np.cumsum(change)[: len(self.times_s)]


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """Nodes that move at each event, one list after the other.

    Attributes:
        node: Node indices, int64, ascending within an event.
        first: Where an event's nodes begin in ``node``, int64, one entry an
            event and one for the end.
    """

    node: NDArray[np.int64]
    first: NDArray[np.int64]

    def at(self, event: int) -> tuple[int, ...]:
        """Return the nodes that move at *event*."""
        return tuple(self.node[self.first[event] : self.first[event + 1]].tolist())


def _without(keys: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return *keys* that are not among *others*, ascending; neither has doubles.

    Where intervals of a node touch, it opens and closes at once: nothing moves.
    """
    # By default isin may spend a byte a possible key, 260 MB for a year of Theta.
    kept = np.isin(keys, others, assume_unique=True, invert=True, kind="sort")
    return np.sort(keys[kept])


def _moves(keys: NDArray[np.int64], nodes: int, events: int) -> Moves:
    """Split keys, each event x nodes + node and ascending, by event."""
    event, node = np.divmod(keys, nodes)
    return Moves(node=node, first=np.searchsorted(event, np.arange(events + 1)))


def _check_cut(
    trace: IdleTrace, *, start_s: float, nodes: int, days: float | None
) -> None:
    machine = len(trace.node_names)
    if not 1 <= nodes <= machine:
        raise UsageError(
            f"{trace.source} has {machine} nodes; {nodes} of them cannot be replayed. "
            f"Nothing was replayed. Ask for 1 to {machine} nodes."
        )
    if days is not None and not days > 0:
        raise UsageError(
            f"a replay of {days:g} days has no length; nothing was replayed. "
            f"Ask for more than 0 days."
        )
    last_s = float(trace.end_s.max(initial=0.0))
    if not start_s < last_s:
        raise UsageError(
            f"{trace.source}: no node is idle after {last_s:g} s, so a replay from "
            f"{start_s:g} s has nothing in it; nothing was replayed. Start earlier."
        )


# The nodes now


# One insertion into a sorted list costs about 0.5 µs, sorting two runs into one
# or filtering about 10 ns a node of the whole list.
_FEW = 8


class NodePool:
    """The idle nodes of a replay.

    Attributes:
        free: Idle nodes that no trainer holds, by index, ascending.
        since_s: By node: when it last became idle, seconds from the start of
            the replay; meaningless for nodes that are not idle.
        idle_nodes: How many nodes are idle, held or free.
    """

    def __init__(self, nodes: int) -> None:
        self.free: list[int] = []
        self.since_s = [0.0] * nodes
        self.idle_nodes = 0
        self._holder: list[Run | None] = [None] * nodes

    @property
    def used_nodes(self) -> int:
        """How many nodes trainers hold."""
        return self.idle_nodes - len(self.free)

    def holder(self, node: int) -> Run | None:
        """Return the run that holds *node*; None if it is free or not idle."""
        return self._holder[node]

    def join(self, nodes: Sequence[int], now_s: float) -> None:
        """Let *nodes* be idle from now on."""
        self.idle_nodes += len(nodes)
        for node in nodes:
            self.since_s[node] = now_s
        self._put(nodes)

    def leave(self, nodes: Sequence[int]) -> set[Run]:
        """Take *nodes* away and return the runs that held any of them."""
        self.idle_nodes -= len(nodes)
        hit, unheld = set(), []
        for node in nodes:
            holder = self._holder[node]
            if holder is None:
                unheld.append(node)
            else:
                self._holder[node] = None
                holder.held.remove(node)
                hit.add(holder)
        self._pull(unheld)
        return hit

    def drop(self, run: Run, nodes: Sequence[int]) -> None:
        """Let *run* give *nodes* up.

        Raises:
            ValueError: It does not hold one of them.
        """
        for node in nodes:
            if self._holder[node] is not run:
                raise ValueError(f"{run.spec.name} drops node {node}, not its own")
            self._holder[node] = None
        run.held.difference_update(nodes)
        self._put(nodes)

    def take(self, run: Run, nodes: Sequence[int]) -> None:
        """Let *run* have *nodes*.

        Raises:
            ValueError: One of them is not free.
        """
        self._pull(nodes)
        for node in nodes:
            self._holder[node] = run
        run.held.update(nodes)

    def _put(self, nodes: Sequence[int]) -> None:
        if len(nodes) > _FEW:
            self.free.extend(nodes)
            self.free.sort()
            return
        for node in nodes:
            insort(self.free, node)

    def _pull(self, nodes: Sequence[int]) -> None:
        """Remove *nodes* from the free ones.

        Raises:
            ValueError: One of them is not free.
        """
        if len(nodes) > _FEW:
            self._pull_many(nodes)
            return
        for node in nodes:
            place = bisect_left(self.free, node)
            if place == len(self.free) or self.free[place] != node:
                raise ValueError(f"node {node} is taken, which is not free")
            del self.free[place]

    def _pull_many(self, nodes: Sequence[int]) -> None:
        if self.free[-len(nodes) :] == list(nodes):
            del self.free[-len(nodes) :]
            return
        pulled = set(nodes)
        kept = [node for node in self.free if node not in pulled]
        if len(kept) + len(nodes) != len(self.free):
            missing = sorted(pulled - set(self.free))
            raise ValueError(f"nodes {missing} are taken, which are not free")
        self.free[:] = kept
