"""Recording what a tick observed and learned, and removing what is long over.

Actions are not recorded here: ``tick.act`` records each as it is carried out.
"""

from __future__ import annotations

import shutil
from collections import Counter as Count
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

from freetrain.broker.lease import LeaseEnd, LeaseKey
from freetrain.broker.limits import failed_to_start
from freetrain.broker.reasons import EndReason
from freetrain.state.files import (
    UnreadableFileError,
    generation_name,
    generations,
    lease_name,
    read_assigned,
)
from freetrain.state.tables import (
    Event,
    EventKind,
    TickCounter,
    add_events,
    add_to_counters,
    drop_events,
    end_trainer,
    forget_histories,
    forget_intents,
    forget_leases,
    has_old_histories,
    has_old_intents,
    old_leases,
    put_awaited_preemptions,
    put_backfill_plans,
    put_call_memory,
    put_delivery,
    put_heartbeats,
    put_histories,
    put_intents,
    put_known_limits,
    put_leases,
    put_limit_memory,
    put_loss_forecasts,
    put_priority_memory,
    put_reported_generation,
    seen_heartbeats,
)
from freetrain.tick.act import newly_reached
from freetrain.tick.environment import may_exist
from freetrain.tick.leases import output_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from freetrain.broker.lease import Lease, LeaseKey
    from freetrain.state.files import TrainerDir
    from freetrain.tick.environment import TickContext
    from freetrain.tick.observe import Observed
    from freetrain.tick.plan import TickPlan
    from freetrain.tick.trainers import TickTrainer


EVENTS_KEPT_S = 30 * 86_400.0
"""Events older than a month are dropped."""

_MOST_NEW = 100
"""Generations recorded of one trainer in one tick."""


def record(
    context: TickContext,
    observed: Observed,
    plan: TickPlan,
) -> None:
    """Record what was observed and learned, and the events since the last tick.

    All in one transaction: a tick that is killed before it records the same again.

    Raises:
        StoreError: It could not be written.
    """
    heard_before = frozenset(seen_heartbeats(context.state))
    news = [(t, *_new_generations(context, t)) for t in observed.trainers]
    with context.writing("what was observed") as state:
        put_intents(state, observed.belief.intents)
        put_leases(state, observed.belief.leases)
        record_learned(state, observed, plan)
        put_heartbeats(state, observed.heartbeats.seen)
        put_loss_forecasts(state, plan.loss_forecasts)
        progress = observed.progress.items()
        put_histories(
            state, [known.row(name) for name, known in progress if known.is_read]
        )
        for delivery in newly_reached(observed):
            put_delivery(state, delivery)
        add_events(state, _lease_events(context, observed, heard_before))
        add_events(state, _room_events(observed))
        for trainer, last, events in news:
            add_events(state, events)
            if last > trainer.row.reported_generation:
                put_reported_generation(state, trainer.row.name, last)
            _record_final_state(state, trainer, observed.now_s)
        created = sum(len(events) for _, _, events in news)
        add_to_counters(state, {TickCounter.GENERATIONS: float(created)})
        drop_events(state, before_s=observed.now_s - EVENTS_KEPT_S)
    observed.room.is_recorded = True


def record_learned(
    state: sqlite3.Connection, observed: Observed, plan: TickPlan
) -> None:
    """Record what the next plan goes on from, inside the caller's transaction.

    Raises:
        StoreError: It could not be written.
    """
    put_backfill_plans(state, observed.plans)
    put_call_memory(state, plan.calls)
    put_limit_memory(state, plan.limits.memory)
    put_known_limits(state, plan.limits.known)
    put_awaited_preemptions(state, plan.awaited)
    if plan.forecasts is not None:
        # Imported here: most sites' ticks need no forecasts.
        from freetrain.tick.lookahead import save  # noqa: PLC0415

        save(state, plan.forecasts, observed)
    put_priority_memory(state, plan.ratings.priority, plan.ratings.memory)


def _room_events(observed: Observed) -> Iterator[Event]:
    """Yield for each submission how many leases were asked to make room, and why.

    Waiting leases were cancelled first.
    """
    asked = Count((key.uuid, why) for key, why in observed.gave_way.items())
    ways = sorted(asked.items(), key=lambda way: way[0][1] is not EndReason.MAKES_ROOM)
    for (uuid, why), count in ways:
        yield Event(observed.now_s, EventKind.YIELDED, uuid, count, str(why))


def _lease_events(
    context: TickContext, observed: Observed, heard_before: frozenset[LeaseKey]
) -> Iterator[Event]:
    """Yield the events of leases: started, failed to start, ended.

    A lease has started well once its agent is heard: its job never fails, whatever
    becomes of the agent. So a lease that ends by itself, and was never heard, failed.
    """
    now_s = observed.now_s
    previous = {lease.key: lease for lease in observed.previous_leases}
    for key in sorted(observed.heartbeats.new):
        yield Event(now_s, EventKind.STARTED, lease_name(key), 1)
    for lease in observed.belief.leases:
        was = previous.get(lease.key)
        if lease.is_live or was is None or not was.is_live:
            continue
        heartbeat = context.folder.lease(lease.key).heartbeat
        was_heard = lease.key in heard_before or may_exist(heartbeat)
        has_failed = _has_failed(lease, observed, was_heard=was_heard)
        kind = EventKind.FAILED_START if has_failed else EventKind.ENDED
        yield Event(now_s, kind, lease_name(lease.key), 1, str(lease.ended or ""))


def _has_failed(lease: Lease, observed: Observed, *, was_heard: bool) -> bool:
    if failed_to_start(lease, observed.limits):
        return True
    was_asked_to_end = lease.notice_s is not None or lease.cancel_s is not None
    ended_by_itself = lease.ended is LeaseEnd.EXPECTED and not was_asked_to_end
    return ended_by_itself and not was_heard


def _new_generations(
    context: TickContext, trainer: TickTrainer
) -> tuple[int, list[Event]]:
    """Return up to which generation files were read, and events of those not recorded.

    Agents make generations, too.
    """
    recorded = trainer.row.reported_generation
    folder = context.folder.trainer(trainer.row.name)
    events: list[Event] = []
    try:
        found = generations(folder.assignments)
    except OSError:
        return recorded, events
    for generation in [g for g in found if g > recorded][:_MOST_NEW]:
        try:
            assigned = read_assigned(folder, generation)
        except UnreadableFileError:
            recorded = generation
            continue
        except OSError:  # a later tick reads on from here
            break
        recorded = generation
        events.append(
            Event(
                assigned.created_s,
                EventKind.ASSIGNED,
                trainer.row.name,
                len(assigned.members),
                f"generation {generation} by {assigned.author}: {assigned.reason}",
            )
        )
    return recorded, events


def _record_final_state(
    state: sqlite3.Connection, trainer: TickTrainer, now_s: float
) -> None:
    final = trainer.final
    if final is None:
        return
    name, message = trainer.row.name, final.message
    if end_trainer(state, name, final.state, message=message, now_s=now_s):
        detail = f"{final.state}: {message}"
        add_events(state, [Event(now_s, EventKind.TRAINER_ENDED, name, 0, detail)])


# Removing what is long over: a little in each tick, and only what no reader can need.

LEASES_KEPT_S = 3 * 86_400.0
"""Leases are kept so long after their deadline; much longer than any can last."""

KEPT_GENERATIONS = 200
"""Generations of each trainer that are kept, however old.

Agents look back fifty at most, ticks a hundred.
"""

_MOST_LEASES = 50

_MOST_GENERATIONS = 50


def tidy(context: TickContext, observed: Observed) -> str:
    """Remove some of what is long over; return why something could not be removed.

    The earlier of two clocks counts: a clock that is ahead must not make things old.

    Raises:
        StoreError: The state cannot be written.
    """
    before_s = min(observed.now_s, context.environment.now_s()) - LEASES_KEPT_S
    faults: list[OSError] = []
    _remove_leases(context, before_s, faults)
    _remove_generations(context, observed.trainers, before_s, faults)
    if not faults:
        return ""
    return f"old files stay, since one cannot be removed: {faults[0]}"


def _remove_leases(
    context: TickContext, before_s: float, faults: list[OSError]
) -> None:
    old = old_leases(context.state, before_s=before_s, most=_MOST_LEASES)
    for key, job_id in tuple(old.items()):
        try:
            with context.effect("removing a lease's files"):
                _remove_lease_files(context, key, job_id, before_s)
        except OSError as error:
            faults.append(error)
            del old[key]
    has_rows = (has_old_intents, has_old_histories)
    if not old and not any(has(context.state, before_s=before_s) for has in has_rows):
        return
    with context.writing("what is forgotten") as state:
        forget_leases(state, old)
        forget_intents(state, before_s=before_s)
        forget_histories(state, before_s=before_s)


def _remove_lease_files(
    context: TickContext, key: LeaseKey, job_id: int | None, before_s: float
) -> None:
    _remove_folder(context.folder.lease(key).path)
    if job_id is None:
        return
    output = output_of(context.folder, job_id)
    with suppress(FileNotFoundError):
        if output.stat().st_mtime < before_s:  # numbers of jobs are used again
            output.unlink()


def _remove_generations(
    context: TickContext,
    trainers: Iterable[TickTrainer],
    before_s: float,
    faults: list[OSError],
) -> None:
    left = _MOST_GENERATIONS
    for trainer in trainers:
        newest = trainer.newest
        if newest is None or newest.generation <= KEPT_GENERATIONS:
            continue
        folder = context.folder.trainer(trainer.row.name)
        try:
            old = _old_generations(folder, trainer, before_s)[:left]
            left -= len(old)
            for generation in old:
                with context.effect("removing a generation's files"):
                    _remove_generation(folder, generation, trainer)
        except OSError as error:
            faults.append(error)


def _old_generations(
    folder: TrainerDir, trainer: TickTrainer, before_s: float
) -> list[int]:
    """Return the generations of which no lease can be left, the oldest first.

    A generation was over, or about to be, when the next one was made.
    """
    found = generations(folder.assignments)
    removable = found[: max(0, len(found) - KEPT_GENERATIONS + 1)]
    old: list[int] = []
    for generation, following in pairwise(removable[: _MOST_GENERATIONS + 1]):
        made_s = folder.assignment(following).stat().st_mtime
        if generation > trainer.row.reported_generation or made_s >= before_s:
            break
        old.append(generation)
    return old


def _remove_generation(
    folder: TrainerDir, generation: int, trainer: TickTrainer
) -> None:
    """Remove a generation's files, last the one by which it is found.

    Endings tell how long a trainer has run: a trainer with a limit keeps them.
    """
    name = generation_name(generation)
    _remove_folder(folder.world(generation))
    (folder.logs / f"{name}.log").unlink(missing_ok=True)
    for notice in folder.notices.glob(f"{name}.*"):
        notice.unlink(missing_ok=True)
    job = trainer.job
    if job is not None and job.work.time_limit_s is None:
        folder.ending(generation).unlink(missing_ok=True)
    folder.assignment(generation).unlink(missing_ok=True)


def _remove_folder(path: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(path)
