"""What a look costs where leases yield: whom must they make room for?

5,000 nodes, of which 1,250 are idle or leased, a job on each of the others and up to
10,000 that wait; processor time of one look, the least of three, and of one that is
careful with a limit of a second.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from freetrain.broker.backfill import Backfill, BackfillState, LeaseSpan
from freetrain.broker.yielding import DelayProtection, find_claims, keep_free
from slurm.holes import Hole, HoleEnd
from slurm.records import JobRecord, JobState, Node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from freetrain.broker.yielding import Claims, KeptFree, PendingDemand

_NOW_S = 1e9
_DAY_S = 86_400.0
_NODES = 5_000
_PARTITIONS = 5
_LIMIT_S = 1.0
_TURNS = 3
_SHORTEST_S, _LONGEST_S = 600, 172_800


class _Queue(NamedTuple):
    """Who waits.

    Attributes:
        jobs: How many.
        kinds: Of how many kinds.
        widest: On how many nodes at most; none asks for less than a fifth of that.
        insisting: The share of those that insist on a node.
        arrays: The share of those that are arrays.
    """

    jobs: int
    kinds: int
    widest: int = 1_000
    insisting: float = 0.0
    arrays: float = 0.0


_PLAIN = _Queue(jobs=2_000, kinds=1)
_QUEUES = {
    "2,000 wait, of one kind": _PLAIN,
    "10,000, of one kind": _PLAIN._replace(jobs=10_000),
    "2,000, of 200 kinds": _PLAIN._replace(kinds=200),
    "2,000, a fifth insist on a node": _PLAIN._replace(insisting=0.2),
    "10,000, of 200 kinds": _PLAIN._replace(jobs=10_000, kinds=200),
    "10,000, of 200 kinds, some arrays, some insist": _PLAIN._replace(
        jobs=10_000, kinds=200, insisting=0.1, arrays=0.1
    ),
    "10,000 small ones, of 200 kinds": _PLAIN._replace(
        jobs=10_000, kinds=200, widest=5
    ),
}


class Look(NamedTuple):
    """What is found at a look.

    Attributes:
        jobs: Who waits.
        ground: Where they might start.
        running: Nodes of each job that runs.
    """

    jobs: Sequence[JobRecord]
    ground: BackfillState
    running: Sequence[frozenset[str]]


def lines(shared: Path) -> Iterator[str]:
    """Yield a row for each queue: how long its look takes, and of the first one's."""
    del shared
    least_s = 0.0
    for name, queue in _QUEUES.items():
        look = look_at(queue)
        took_s, claims = min((_timed(look) for _ in range(_TURNS)), key=lambda x: x[0])
        least_s = least_s or took_s
        careful_s, found = _timed(look, careful=_careful(look))
        yield (
            f"claims, {name}: {took_s:.2f} s, {took_s / least_s:.1f} times the first, "
            f"{len(claims.nodes)} nodes; careful {careful_s:.2f} s, "
            f"{len(found.kept_free.nodes)} nodes more, "
            f"{found.kept_free.untried} ends untried"
        )


def look_at(queue: _Queue) -> Look:
    """Return a look at a machine that is full but for a quarter of its nodes."""
    draw = random.Random(1)  # noqa: S311 -- load, not secrets
    nodes = {name: _node(name, k) for k, name in enumerate(_names())}
    holes, leased, spans = [], set[str](), dict[str, LeaseSpan]()
    for name in list(nodes)[::4]:
        holes.append(Hole(name, _NOW_S, float("inf"), HoleEnd.OPEN))
        if draw.random() < 2 / 3:
            leased.add(name)
            began_s = _NOW_S - draw.randrange(3_600)
            spans[name] = LeaseSpan(began_s, began_s + 14_400.0)
    busy = [name for k, name in enumerate(nodes) if k % 4]
    ground = BackfillState(
        holes,
        nodes,
        frozenset(leased),
        spans=spans,
        busy_until_s={name: _NOW_S + draw.randrange(_LONGEST_S) for name in busy},
        backfill=Backfill(60.0, 2 * _DAY_S),
    )
    jobs = [_job(number, queue, draw) for number in range(queue.jobs)]
    return Look(jobs, ground, [frozenset({name}) for name in busy])


def _names() -> Iterator[str]:
    return (f"n{k:04}" for k in range(_NODES))


def _node(name: str, k: int) -> Node:
    within = ("all", f"p{k % _PARTITIONS}")
    return Node(name, frozenset(), features=frozenset({"fast"}), partitions=within)


def _job(number: int, queue: _Queue, draw: random.Random) -> JobRecord:
    kind = number % queue.kinds
    job = JobRecord(
        job_id=number,
        display_id=str(number),
        states=frozenset({JobState.PENDING}),
        partitions=("all" if kind == 0 else f"p{kind % _PARTITIONS}",),
        features="" if kind == 0 else f"fast&kind{kind}",  # nobody can read that
        priority=draw.randrange(1, 1_000),
        node_count=draw.randrange(max(1, queue.widest // 5), queue.widest + 1),
        limit_s=float(draw.randrange(_SHORTEST_S, _LONGEST_S, 600)),
    )
    if draw.random() < queue.insisting:
        asked = f"n{draw.randrange(_NODES):04}"
        job = replace(job, requested_nodes=asked)
    if draw.random() < queue.arrays:
        job = replace(job, array_tasks="0-999")
    return job


def _careful(look: Look) -> Callable[[PendingDemand], KeptFree]:
    until_s = time.process_time() + _LIMIT_S
    caution = DelayProtection(
        look.running,
        cycle_s=30.0,
        longest_s=14_400.0,
        is_out_of_time=lambda: time.process_time() > until_s,
    )
    return partial(keep_free, protection=caution)


def _timed(
    look: Look, *, careful: Callable[[PendingDemand], KeptFree] | None = None
) -> tuple[float, Claims]:
    """Return how long a look takes that knows of no other, and its claims."""
    jobs, ground = look.jobs, look.ground
    anew = replace(ground, nodes=dict(ground.nodes))
    began_s = time.process_time()
    claims = find_claims(
        jobs, anew, is_ours=lambda _: False, now_s=_NOW_S, protect=careful
    )
    return time.process_time() - began_s, claims
