"""The same workload twice without FreeTrain, and once beside many users' brokers.

The three run at the same time, each on a cluster of its own, so that whatever else this
machine does is the same for all. Brokers tick as ``freetrain cron install`` lets them:
each at a second of its own, and then before each cycle of backfill until the next tick.
Trainers do nothing, as their work is not measured here.
"""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from freetrain.broker.lease import job_name
from freetrain.broker.reasons import FOR_OTHERS
from freetrain.state.database import read_store
from freetrain.state.tables import EventKind
from tests.cluster.cluster import Cluster
from tests.cluster.machine import ClusterRefusedError
from tests.e2e.others import HOLE_S, Run, live_through, make_workload
from tests.e2e.users import TOP, USERS, UserBroker, python_for_all
from tests.soak.harm_runs import delay_lines
from tests.soak.measures import GivenLease, coverage, delays, fairness, made_room

_SETTLED_S = 300.0
"""Shares are measured from then on."""

_BEFORE_NEXT_S = 5.0
"""Ticks stay until so long before the next."""

_STOP_S = 60.0
"""After so long the brokers that are to stop do so: by ``_SETTLED_S`` their leases have
ended by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManyUsers:
    """The settings of a measurement.

    Attributes:
        seed: Of the workload.
        span_s: For how long jobs are submitted.
        time_scale: Factor of the lengths of jobs and holes.
        brokers: How many users there are.
        stopped: How many of them stop ticking after a minute.
        old: A working tree of an older version, which one broker runs; or None.
    """

    seed: int
    span_s: float
    tick_every_s: float
    time_scale: float = 1.0
    brokers: int = len(USERS)
    stopped: int = 0
    old: Path | None = None


def measure_many(
    clusters: Sequence[Cluster], folder: Path, wanted: ManyUsers
) -> Iterator[str]:
    """Yield the lines of a report.

    Args:
        clusters: One for FreeTrain, and any number for runs without it.
        folder: All users must reach it.
        wanted: The settings.
    """
    span_s, scale = wanted.span_s, wanted.time_scale
    nodes = clusters[0].nodes
    workload = make_workload(
        wanted.seed, span_s=span_s, time_scale=scale, nodes=len(nodes)
    )
    yield (
        f"{len(workload)} jobs of others in {span_s:g} s on {len(nodes)} nodes, "
        f"seed {wanted.seed}; {wanted.brokers} brokers, {wanted.stopped} of them stop"
        + (", one is older" if wanted.old else "")
    )

    def live(number: int) -> Run:
        place = folder / f"others-{number}"
        place.mkdir()
        return live_through(clusters[number], workload, place, span_s=span_s)

    with (
        ThreadPoolExecutor(len(clusters)) as pool,
        _brokers(clusters[0], folder, wanted) as brokers,
    ):
        alive = brokers[wanted.stopped :]
        timer = threading.Timer(_STOP_S, _freeze, [brokers[: wanted.stopped]])
        timer.start()
        run, *without = pool.map(live, range(len(clusters)))
        timer.join()
        given_up = [found for broker in brokers for found in _given_up(broker)]
    if len(without) > 1:
        found = delays(without[0], run)
        yield from delay_lines(
            {
                "without FreeTrain, against without": list(delays(*without[:2])),
                "with, met no lease": [d for d in found if not d.met_lease],
                "with, met a lease": [d for d in found if d.met_lease],
            }
        )
    within = (run.origin_s + _SETTLED_S, run.origin_s + span_s)
    shares = fairness(run.leases, [b.user for b in alive], within=within)
    each = ", ".join(f"{user} {s:.0f}" for user, s in shares.held_s.items())
    yield f"node-seconds from {_SETTLED_S:g} s on: {each}"
    yield f"furthest from the mean {shares.furthest:.1%}; Jain {shares.jain:.3f}"
    reasons = Counter(why for why, _ in given_up)
    yield f"{len(run.leases)} leases; given up: " + ", ".join(
        f"{count} ({why})" for why, count in reasons.most_common()
    )
    given = {one for why, one in given_up if why in FOR_OTHERS}
    beyond = sorted(given - made_room(run, given))
    yield (
        f"{len(given)} given up for others, beyond need {len(beyond)} "
        f"({len(beyond) / max(1, len(given)):.1%})"
    )
    for one in beyond:
        yield f"    beyond need: {one.said(run)}"
    spans: dict[str, list[tuple[float, float]]] = {}
    for lease in run.leases:
        for node in lease.nodes if lease.started_s is not None else ():
            until_s = run.end_s if lease.ended_s is None else lease.ended_s
            spans.setdefault(node, []).append((lease.started_s or 0.0, until_s))
    covered = coverage(run, spans, nodes=nodes, shortest_s=scale * HOLE_S)
    yield (
        f"leased of holes of {scale * HOLE_S:g} s and more: {covered.share:.1%} of "
        f"{covered.idle_s:.0f} node-seconds"
    )


@contextmanager
def _brokers(
    cluster: Cluster, folder: Path, wanted: ManyUsers
) -> Iterator[list[UserBroker]]:
    """Let the brokers tick, as long as the block lasts."""
    brokers = []
    with ExitStack() as stack:
        for number, user in enumerate(USERS[: wanted.brokers]):
            is_old = wanted.old is not None and number == wanted.brokers - 1
            place = folder / f"python-{'old' if is_old else 'new'}"
            python = place / "venv" / "bin" / "python"
            if not place.exists():
                place.mkdir()
                top = wanted.old if is_old and wanted.old else TOP
                if python_for_all(place, top=top) is None:
                    raise ClusterRefusedError(
                        "there is no Python that every user may run. Nothing was done."
                    )
            every = f"{wanted.tick_every_s:.0f}"
            own = f"{number * wanted.tick_every_s / wanted.brokers:.0f}"
            stays_s = wanted.tick_every_s - _BEFORE_NEXT_S
            tick = (
                f"sleep $(({every} - ($(date +%s) - {own}) % {every})); "
                f"$FT tick --follow-up {stays_s:.0f}s"
            )
            broker = UserBroker(cluster, user, folder / user, python, tick)
            broker.submit(most=len(cluster.nodes))
            brokers.append(broker)
        for broker in brokers:
            broker.begin()
            stack.callback(broker.stop)
        yield brokers


def _freeze(brokers: Sequence[UserBroker]) -> None:
    for broker in brokers:
        broker.freeze()


def _given_up(broker: UserBroker) -> Iterator[tuple[str, GivenLease]]:
    """Yield the leases that the broker gave up while they ran, and why.

    An older version says why in words of its own.
    """
    with read_store(broker.state, uid=broker.uid) as state:
        rows = state.execute(
            "SELECT DISTINCT detail, leases.uuid, task, node, notice_s, start_s "
            "FROM events JOIN leases ON subject = leases.uuid "
            "AND at_s IN (notice_s, cancel_s) "
            "WHERE kind IN (?, ?) AND node != ''",
            (EventKind.YIELDED, EventKind.GAVE_UP),
        )
        for why, uuid, _, node, _, start_s in rows:
            yield why, GivenLease(job_name(uuid), node, start_s)
