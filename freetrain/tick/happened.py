"""What happened since the last tick, written down: leases, trainers, generations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.broker.lease import LeaseEnd
from freetrain.broker.pace import failed_to_start
from freetrain.exchange.assigned import generations, read_assigned
from freetrain.exchange.errors import UnreadableFileError
from freetrain.exchange.layout import lease_name
from freetrain.store.beats import put_beats, seen_beats
from freetrain.store.counters import Counter, add_to_counters
from freetrain.store.deliveries import put_delivery
from freetrain.store.events import Event, EventKind, add_events, drop_events
from freetrain.store.intents import put_intents
from freetrain.store.leases import put_leases
from freetrain.store.memory import put_memory
from freetrain.store.outlooks import put_outlooks
from freetrain.store.pasts import put_pasts
from freetrain.store.plans import put_plans
from freetrain.store.trainers import end_trainer, put_told_generation
from freetrain.tick.reaching import reached

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from freetrain.broker.lease import Lease, LeaseKey
    from freetrain.tick.deserts import Deserts
    from freetrain.tick.foreseeing import Outlook
    from freetrain.tick.observe import Observed
    from freetrain.tick.run import Run
    from freetrain.tick.standing import Standing

KEPT_S = 30 * 86_400.0
"""Events older than a month are dropped."""

_MOST_TOLD = 100
"""Generations told of one trainer in one tick."""


def record(
    run: Run, observed: Observed, deserts: Deserts, outlook: Outlook | None = None
) -> None:
    """Write down what was observed, and what it means happened since the last tick.

    All of it at once: a tick that is killed before it tells the same again.

    Raises:
        StoreError: It could not be written.
        OSError: Files could not be read.
    """
    known = frozenset(seen_beats(run.state))
    news = [(one, *_generations(run, one)) for one in observed.trainers]
    with run.writing("what was observed") as state:
        put_intents(state, observed.belief.intents)
        put_leases(state, observed.belief.leases)
        put_plans(state, observed.plans)
        _keep(state, outlook, observed)
        put_beats(state, observed.hearing.seen)
        put_memory(state, deserts.priority, deserts.memory)
        put_outlooks(state, deserts.fresh)
        learned = observed.learned.items()
        put_pasts(state, [one.row(name) for name, one in learned if one.is_read])
        for delivery in reached(observed):
            put_delivery(state, delivery)
        add_events(state, _of_leases(run, observed, known))
        for standing, last, events in news:
            add_events(state, events)
            if last > standing.row.told_generation:
                put_told_generation(state, standing.row.name, last)
            _end(state, standing, observed.now_s)
        told = sum(len(events) for _, _, events in news)
        add_to_counters(state, {Counter.GENERATIONS: float(told)})
        drop_events(state, before_s=observed.now_s - KEPT_S)


def _keep(
    state: sqlite3.Connection, outlook: Outlook | None, observed: Observed
) -> None:
    if outlook is not None:
        # Imported here: forecasts need NumPy, and most sites' ticks none of them.
        from freetrain.tick.foreseeing import keep  # noqa: PLC0415

        keep(state, outlook, observed)


def _of_leases(
    run: Run, observed: Observed, known: frozenset[LeaseKey]
) -> Iterator[Event]:
    """Yield what happened to leases.

    A lease has started well once its agent is heard: its job never fails, whatever
    becomes of the agent. So one that ends unheard, and that nobody ended, failed.
    """
    now_s = observed.now_s
    before = {lease.key: lease for lease in observed.before}
    for key in sorted(observed.hearing.first):
        yield Event(now_s, EventKind.STARTED, lease_name(key), 1)
    for lease in observed.belief.leases:
        was = before.get(lease.key)
        if lease.is_live or was is None or not was.is_live:
            continue
        was_heard = lease.key in known or run.folder.lease(lease.key).heartbeat.exists()
        has_failed = _failed(lease, observed, was_heard=was_heard)
        kind = EventKind.FAILED_START if has_failed else EventKind.ENDED
        yield Event(now_s, kind, lease_name(lease.key), 1, str(lease.ended or ""))


def _failed(lease: Lease, observed: Observed, *, was_heard: bool) -> bool:
    if failed_to_start(lease, observed.limits):
        return True
    was_told = lease.notice_s is not None or lease.cancel_s is not None
    by_itself = lease.ended is LeaseEnd.EXPECTED and not was_told
    return by_itself and not was_heard


def _generations(run: Run, standing: Standing) -> tuple[int, list[Event]]:
    """Return up to which generation there are files, and what those untold say."""
    told = standing.row.told_generation
    folder = run.folder.trainer(standing.row.name)
    untold = [g for g in generations(folder.assignments) if g > told][:_MOST_TOLD]
    events = []
    for generation in untold:
        try:
            assigned = read_assigned(folder, generation)
        except UnreadableFileError:
            continue
        said = f"generation {generation} by {assigned.author}: {assigned.reason}"
        events.append(
            Event(
                assigned.created_s,
                EventKind.ASSIGNED,
                standing.row.name,
                len(assigned.members),
                said,
            )
        )
    return max(untold, default=told), events


def _end(state: sqlite3.Connection, standing: Standing, now_s: float) -> None:
    outcome = standing.outcome
    if outcome is None:
        return
    name, message = standing.row.name, outcome.message
    if end_trainer(state, name, outcome.state, message=message, now_s=now_s):
        said = f"{outcome.state}: {message}"
        add_events(state, [Event(now_s, EventKind.TRAINER_ENDED, name, 0, said)])
