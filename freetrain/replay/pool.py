"""The pool of a replay: which nodes are idle over time, and which run holds them.

``idle_of`` finds the idle intervals of a log, and ``PoolTimeline`` cuts pool events out
of them. ``NodePool`` plays these: it knows the free nodes, and the run that holds each
of the others. The pool that a tick plans with is in ``freetrain.broker.pool``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, starmap
from typing import TYPE_CHECKING, Protocol, TypeAlias, overload

import numpy as np

from freetrain.errors import UsageError
from freetrain.text import DAY_S, counted
from logs.format import peak_units
from logs.schedule import Schedule, holes, schedule, spread_jobs
from logs.simulation import Method, Passes, Reason
from logs.timeline import UnitRanges
from logs.trace import IdleTrace, JobTrace, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from numpy.typing import NDArray

    from freetrain.replay.accounting import Run


_ROUNDING = 1e-9
"""So near to a whole number, a mean of nodes is whole."""

_WHY_LEFT_OUT = {
    Reason.NO_UNITS: "they needed no nodes",
    Reason.NEVER_RAN: "they never ran",
    Reason.NO_START: "the log does not tell when they started",
    Reason.TOO_WIDE: "they need more than the machine has",
}


def idle_of(
    trace: Trace,
    method: Method,
    *,
    passes: Passes = Passes.MOMENT,
    lease_gpus: int | None = None,
    on_progress: Callable[[float], None] | None = None,
) -> tuple[IdleTrace, tuple[str, ...]]:
    """Return when nodes are idle, as the log says or as *method* leaves them.

    A simulated scheduler makes its *passes* as they say. With *lease_gpus* what is idle
    are leases of so many GPUs, several on one node.

    Also returns the log's cautions, as it was placed: see ``log_cautions``.

    Raises:
        UsageError: A log of idle intervals has no jobs to schedule.
        UnusableLogError: The log's jobs cannot be scheduled.
    """
    if isinstance(trace, JobTrace):
        scheduled = schedule(
            trace,
            method,
            passes=passes,
            lease_gpus=lease_gpus,
            on_progress=on_progress,
        )
        cautions = log_cautions(trace, method, scheduled.refused)
        placed = (*_over_committed(scheduled), *_spread(scheduled))
        return holes(scheduled), (*cautions, *placed)
    if lease_gpus is not None:
        raise UsageError(
            f"{trace.source} holds idle intervals and no jobs, so it says nothing of "
            f"GPUs. Nothing was done. Leave --gpus-per-lease out."
        )
    if method is not Method.RECORDED:
        raise UsageError(
            f"{trace.source} holds idle intervals and no jobs, so there is nothing "
            f"for --schedule {method} to place. Nothing was done. Leave --schedule out."
        )
    return trace, reading_cautions(trace)


def reading_cautions(trace: Trace) -> tuple[str, ...]:
    """Return a sentence for what was not read of *trace*, or may mislead in it."""
    skipped = counted(trace.skipped_lines, "bad line")
    own = trace.cautions if isinstance(trace, JobTrace) else ()
    return (f"{skipped} passed over.", *own) if trace.skipped_lines else own


def log_cautions(
    trace: JobTrace, method: Method, refused: Mapping[int, Reason]
) -> tuple[str, ...]:
    """Return a sentence for what of a log was not used, or may mislead in it.

    These are the cautions of reading *trace*; one where *method* does not suit it; and
    one for each reason why the scheduler *refused* jobs, which are named by index.
    """
    cautions = [*reading_cautions(trace)]
    is_shared = trace.names_nodes and peak_units(trace.jobs) > trace.units
    if method is not Method.RECORDED and is_shared:
        cautions.append(
            f"Jobs of this log share nodes; --schedule {method} gives each job whole "
            f"nodes of its own, so that they wait for longer than they did."
        )
    cautions += [
        f"{counted(jobs, 'job')} left out: {_why_left_out(trace, why)}."
        for why, jobs in Counter(refused.values()).items()
    ]
    return tuple(cautions)


def _why_left_out(trace: JobTrace, why: Reason) -> str:
    if trace.counts_gpus and why is Reason.NO_UNITS:
        return "they had no GPU"
    return _WHY_LEFT_OUT[why]


def _spread(scheduled: Schedule) -> tuple[str, ...]:
    """Return a caution where jobs could not be packed on as few nodes as they had."""
    spread = spread_jobs(scheduled)
    why = "found no room on as few nodes as they had, packed as Slurm packs jobs"
    return (f"{counted(spread, 'job')} {why}: more are used.",) if spread else ()


def _over_committed(scheduled: Schedule) -> tuple[str, ...]:
    """Return a caution where jobs held more than the machine has."""
    over = scheduled.over_commitment
    if not over.jobs:
        return ()
    held = f"{counted(over.jobs, 'job')} held more than the machine has"
    return (f"{held}, by {over.worst_units:,} at the worst.",)


class Nodes(Sequence[int]):
    """Nodes by index, ascending, none twice; kept as ranges of consecutive ones.

    Args:
        ranges: The first node of each range, and the one behind it, ascending.
    """

    __slots__ = ("_count", "ranges")

    def __init__(self, ranges: Sequence[tuple[int, int]] = ()) -> None:
        self.ranges = ranges
        self._count = sum([end - first for first, end in ranges])

    @classmethod
    def of(cls, nodes: Sequence[int]) -> Nodes:
        """Return *nodes*, which ascend."""
        return cls(ranges_of(nodes))

    def __len__(self) -> int:
        """Return how many there are."""
        return self._count

    def __iter__(self) -> Iterator[int]:
        """Yield the nodes, ascending."""
        return chain.from_iterable(starmap(range, self.ranges))

    @overload
    def __getitem__(self, place: int) -> int: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[int]: ...

    def __getitem__(self, place: int | slice) -> int | Sequence[int]:
        """Return one of them, or several."""
        return tuple(self)[place]


NO_NODES = Nodes()


def ranges_of(nodes: Sequence[int]) -> list[tuple[int, int]]:
    """Return the ranges of *nodes*, which ascend: first node, and the one behind it."""
    if not nodes:
        return []
    first, end = nodes[0], nodes[-1] + 1
    if end - first == len(nodes):
        return [(first, end)]
    ranges, end = [], first
    for node in nodes:
        if node != end:
            ranges.append((first, end))
            first = node
        end = node + 1
    ranges.append((first, end))
    return ranges


@dataclass(slots=True)
class PoolEvent:
    """A time at which idle intervals start or end.

    Attributes:
        time_s: Seconds from the start of the replay.
        joined: Nodes that become idle.
        left: Nodes that are taken. A node whose intervals touch is in neither.
    """

    time_s: float
    joined: Nodes
    left: Nodes


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
        first = trace.node[chosen].astype(np.int64)
        end = np.minimum(first + trace.widths[chosen], taking_part)
        opens_s = np.maximum(trace.start_s[chosen], start_s) - start_s
        closes_s = trace.end_s[chosen] - start_s
        end_s = trace.span_s - start_s
        times_s = np.unique(np.concatenate(([0.0, end_s], opens_s, closes_s)))
        horizon_s = float(times_s[-1]) if days is None else days * DAY_S
        kept = int(np.searchsorted(times_s, horizon_s, side="right")) + 1
        joined, left = _moves(
            (np.searchsorted(times_s, opens_s), first, end),
            (np.searchsorted(times_s, closes_s), first, end),
            events=len(times_s),
            nodes=taking_part,
        )
        return cls(
            node_names=trace.node_names[:taking_part],
            times_s=times_s[:kept],
            joined=joined,
            left=left,
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
        joined, left = _moves(
            (np.array([0]), np.array([0]), np.array([every])),
            (np.array([1]), np.array([whole]), np.array([every])),
            events=events + 1,
            nodes=every,
        )
        return cls(
            node_names=tuple(f"dedicated-{k}" for k in range(every)),
            times_s=np.array([0.0, part_s][:events]),
            joined=joined,
            left=left,
            horizon_s=span_s,
        )

    def events(self) -> Iterator[PoolEvent]:
        """Yield the events in order; the first is at 0."""
        events = len(self.times_s)
        played = zip(
            self.times_s.tolist(),
            self.joined.by_event(events),
            self.left.by_event(events),
            strict=True,
        )
        for time_s, joined, left in played:
            yield PoolEvent(time_s, joined, left)

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
        change = self.joined.counts - self.left.counts
        return np.cumsum(change)[: len(self.times_s)]


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """Nodes that move at each event, as ranges of consecutive ones.

    Attributes:
        node: First nodes, int64, ascending within an event.
        end: The node behind each range, int64.
        first: Where an event's ranges begin in ``node``, int64, one entry an
            event and one for the end.
    """

    node: NDArray[np.int64]
    end: NDArray[np.int64]
    first: NDArray[np.int64]

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many nodes move at each event."""
        so_far = np.concatenate(([0], np.cumsum(self.end - self.node)))
        return np.diff(so_far[self.first])

    def by_event(self, events: int) -> Iterator[Nodes]:
        """Yield the nodes that move at each of the first *events*."""
        for begin in range(0, events, _BLOCK):
            firsts = self.first[begin : min(begin + _BLOCK, events) + 1]
            own = slice(firsts[0], firsts[-1])
            ranges = list(
                zip(self.node[own].tolist(), self.end[own].tolist(), strict=True)
            )
            for start, end in pairwise((firsts - firsts[0]).tolist()):
                yield Nodes(ranges[start:end]) if start < end else NO_NODES


_BLOCK = 1_024
"""Events whose nodes are made into Python's numbers at once."""


_Ranges: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]"
"""Of each range of nodes: an event, the first node, and the node behind it."""


def _moves(
    opened: _Ranges, closed: _Ranges, *, events: int, nodes: int
) -> tuple[Moves, Moves]:
    """Return which of *nodes* join and leave at each event.

    Where intervals of a node touch, it opens and closes at once: nothing moves.
    """
    width = nodes + 1
    rises = [opened[0] * width + opened[1], closed[0] * width + closed[2]]
    falls = [opened[0] * width + opened[2], closed[0] * width + closed[1]]
    # Along the nodes of an event, one opens in a range more behind a rise.
    steps = np.concatenate([2 * keys + 1 for keys in rises] + [2 * k for k in falls])
    steps.sort()
    at, level = steps >> 1, np.cumsum(2 * (steps & 1) - 1)
    is_last = np.append(at[1:] != at[:-1], True)[: len(at)]
    at, level = at[is_last], level[is_last]
    changes = level != np.concatenate(([0], level))[:-1]
    at, level = at[changes], level[changes]
    event, node = np.divmod(at, width)
    made = []
    for way in (1, -1):
        (place,) = np.nonzero(level == way)
        made.append(
            Moves(
                node=node[place],
                end=node[place + 1],
                first=np.searchsorted(event[place], np.arange(events + 1)),
            )
        )
    joined, left = made
    return joined, left


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


class NodePool:
    """The idle nodes of a replay.

    Attributes:
        free: Idle nodes that no trainer holds, by index.
        idle_nodes: How many nodes are idle, held or free.
    """

    def __init__(self) -> None:
        self.free = UnitRanges()
        self.idle_nodes = 0
        self._holders: set[Run] = set()  # few, and each node has one at most

    @property
    def used_nodes(self) -> int:
        """How many nodes trainers hold."""
        return self.idle_nodes - len(self.free)

    def holders(self, nodes: Collection[int]) -> set[Run]:
        """Return the runs that hold any of *nodes*."""
        return {run for run in self._holders if not run.held.isdisjoint(nodes)}

    def join(self, nodes: Nodes) -> None:
        """Let *nodes* be idle from now on."""
        self.idle_nodes += len(nodes)
        for first, end in nodes.ranges:
            self.free.add(first, end)

    def leave(self, nodes: Nodes) -> set[Run]:
        """Take *nodes* away and return the runs that held any of them."""
        self.idle_nodes -= len(nodes)
        before = len(self.free)
        for first, end in nodes.ranges:
            self.free.remove(first, end)
        if before - len(self.free) == len(nodes):
            return set()
        left = set(nodes)
        hit = self.holders(left)
        for run in hit:
            # One by one: a set that shrinks at once is in another order afterwards, by
            # which look-ahead breaks ties.
            for node in left & run.held:
                run.held.remove(node)
            if not run.held:
                self._holders.remove(run)
        return hit

    def drop(self, run: Run, nodes: Sequence[int]) -> None:
        """Let *run* give *nodes*, which ascend, up.

        Raises:
            ValueError: It does not hold one of them.
        """
        if not run.held.issuperset(nodes):
            node = next(node for node in nodes if node not in run.held)
            raise ValueError(f"{run.spec.name} drops node {node}, not its own")
        run.held.difference_update(nodes)
        if not run.held:
            self._holders.discard(run)
        for first, end in ranges_of(nodes):
            self.free.add(first, end)

    def take(self, run: Run, nodes: Sequence[int]) -> None:
        """Let *run* have *nodes*, which ascend.

        Raises:
            ValueError: One of them is not free.
        """
        for first, end in ranges_of(nodes):
            before = len(self.free)
            removed = self.free.remove(first, end)
            if before - len(self.free) != end - first:
                free = {node for own in removed for node in range(*own[:2])}
                node = next(node for node in range(first, end) if node not in free)
                raise ValueError(f"node {node} is taken, which is not free")
        run.held.update(nodes)
        self._holders.add(run)
