"""The forecast that ticks have learned from an earlier workload of other users.

A cluster that is set up for a measurement has no past, and in their first hour ticks
plan by speed alone (docs/notes/lookahead.md). So two hours before it are simulated:
another workload of the same kind, on as many nodes, placed by ``logs.schedule``. The
forecast is in the state directory when the first tick of the measurement begins, as it
is where ticks have run for a day.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from freetrain.lookahead.affinity import KEPT, RecentAffinity
from freetrain.lookahead.live import IdleSnapshot, LiveForecast
from freetrain.planning.settings import HORIZON_S
from freetrain.state.database import open_store, transaction
from freetrain.state.tables import (
    add_departures,
    add_node_names,
    forecast_state,
    node_names,
    put_forecast,
)
from logs.schedule import holes, schedule
from logs.simulation import Method
from logs.trace import Job, JobTrace
from tests.cluster.settings import NODES
from tests.e2e.others import Submission, make_workload

SPAN_S = 7_200.0
OTHER_SEED = 1_000
"""Added to the seed of a workload for the earlier one."""


class Glance(NamedTuple):
    """The nodes that were idle at a moment, Unix time."""

    at_s: float
    idle: frozenset[str]


def earlier_glances(
    seed: int, *, until_s: float, every_s: float, time_scale: float = 1.0
) -> Iterator[Glance]:
    """Yield the idle nodes every *every_s* in the two hours up to *until_s*.

    Args:
        seed: Of the coming workload; the earlier one has another.
        until_s: Unix time.
        every_s: Between two glances.
        time_scale: Factor of the lengths of jobs and holes.
    """
    jobs = make_workload(seed + OTHER_SEED, span_s=SPAN_S, time_scale=time_scale)
    trace = JobTrace("earlier", "made", tuple(map(_job, jobs)), units=len(NODES))
    idle = holes(schedule(trace, Method.EASY))
    spans = list(idle.rows())
    for look in range(math.floor(SPAN_S / every_s), -1, -1):
        at_s = SPAN_S - look * every_s
        there = {NODES[n] for n, first_s, last_s in spans if first_s <= at_s < last_s}
        yield Glance(until_s - look * every_s, frozenset(there))


def remember(state: Path, glances: Iterable[Glance]) -> None:
    """Replace the forecast in the state directory *state* by one of *glances*.

    A tick with look-ahead must have made one. No node was promised to a job.
    """
    with open_store(state, uid=os.getuid()) as store, transaction(store):
        begun = forecast_state(store)
        assert begun is not None, "no tick looked ahead yet"
        pairs = RecentAffinity()
        known = node_names(store)
        past = LiveForecast(HORIZON_S, names=known, pairs=pairs)
        for at_s, idle in glances:
            past.look(at_s, IdleSnapshot(idle=idle, unclear=frozenset(), promised={}))
        put_forecast(store, json.dumps(json.loads(begun) | past.to_state()))
        add_node_names(store, past.names, known=len(known))
        add_departures(store, pairs.fresh, keep=KEPT)


def watched_s(state: Path) -> float | None:
    """Return for how long ticks have watched; None without look-ahead."""
    with open_store(state, uid=os.getuid()) as store:
        kept = forecast_state(store)
    return None if kept is None else float(json.loads(kept)["watched_s"])


def _job(submission: Submission) -> Job:
    return Job(
        job_id=f"{submission.at_s:.6f} {submission.nodes}",
        submit_s=submission.at_s,
        start_s=None,
        run_s=submission.run_s,
        units=submission.nodes,
        requested_s=60.0 * submission.limit_min,
    )
