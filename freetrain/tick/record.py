"""What happened since the last tick, written down: leases, trainers, generations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from freetrain.broker.decide import explain_holes, explain_trainers
from freetrain.broker.lease import LeaseEnd, LeaseKey
from freetrain.broker.limits import failed_to_start, paused_until_s
from freetrain.state.files import (
    UnreadableFileError,
    generations,
    lease_name,
    read_assigned,
)
from freetrain.state.tables import (
    Counter,
    Event,
    EventKind,
    add_events,
    add_to_counters,
    drop_events,
    end_trainer,
    put_beats,
    put_delivery,
    put_intents,
    put_leases,
    put_memory,
    put_outlooks,
    put_pasts,
    put_plans,
    put_told_generation,
    seen_beats,
)
from freetrain.tick.deliver import newly_reached
from freetrain.tick.history import is_diverging
from freetrain.tick.plan import refusal_of
from freetrain.tick.status_report import (
    HoleLine,
    LeaseLine,
    LeaseOutcome,
    StatusReport,
    TrainerLine,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping

    from freetrain.broker.lease import Lease
    from freetrain.broker.limits import Limits
    from freetrain.tick.act import ActionResults
    from freetrain.tick.context import TickContext
    from freetrain.tick.lookahead import Outlook
    from freetrain.tick.observe import Observed
    from freetrain.tick.plan import Decided
    from freetrain.tick.rate import Ratings
    from freetrain.tick.trainers import ObservedTrainer


# ----------------------------------------------------------------------
# What happened since the last tick, written down: leases, trainers, generations.

KEPT_S = 30 * 86_400.0
"""Events older than a month are dropped."""

_MOST_TOLD = 100
"""Generations told of one trainer in one tick."""


def record(
    context: TickContext,
    observed: Observed,
    ratings: Ratings,
    outlook: Outlook | None = None,
) -> None:
    """Write down what was observed, and what it means happened since the last tick.

    All of it at once: a tick that is killed before it tells the same again.

    Raises:
        StoreError: It could not be written.
        OSError: Files could not be read.
    """
    known = frozenset(seen_beats(context.state))
    news = [(one, *_generations(context, one)) for one in observed.trainers]
    with context.writing("what was observed") as state:
        put_intents(state, observed.belief.intents)
        put_leases(state, observed.belief.leases)
        put_plans(state, observed.plans)
        _keep(state, outlook, observed)
        put_beats(state, observed.heartbeats.seen)
        put_memory(state, ratings.priority, ratings.memory)
        put_outlooks(state, ratings.fresh)
        progress = observed.progress.items()
        put_pasts(state, [one.row(name) for name, one in progress if one.is_read])
        for delivery in newly_reached(observed):
            put_delivery(state, delivery)
        add_events(state, _of_leases(context, observed, known))
        for trainer, last, events in news:
            add_events(state, events)
            if last > trainer.row.told_generation:
                put_told_generation(state, trainer.row.name, last)
            _end(state, trainer, observed.now_s)
        told = sum(len(events) for _, _, events in news)
        add_to_counters(state, {Counter.GENERATIONS: float(told)})
        drop_events(state, before_s=observed.now_s - KEPT_S)


def _keep(
    state: sqlite3.Connection, outlook: Outlook | None, observed: Observed
) -> None:
    if outlook is not None:
        # Imported here: forecasts need NumPy, and most sites' ticks none of them.
        from freetrain.tick.lookahead import keep  # noqa: PLC0415

        keep(state, outlook, observed)


def _of_leases(
    context: TickContext, observed: Observed, known: frozenset[LeaseKey]
) -> Iterator[Event]:
    """Yield what happened to leases.

    A lease has started well once its agent is heard: its job never fails, whatever
    becomes of the agent. So one that ends unheard, and that nobody ended, failed.
    """
    now_s = observed.now_s
    before = {lease.key: lease for lease in observed.previous_leases}
    for key in sorted(observed.heartbeats.new):
        yield Event(now_s, EventKind.STARTED, lease_name(key), 1)
    for lease in observed.belief.leases:
        was = before.get(lease.key)
        if lease.is_live or was is None or not was.is_live:
            continue
        was_heard = (
            lease.key in known or context.folder.lease(lease.key).heartbeat.exists()
        )
        has_failed = _failed(lease, observed, was_heard=was_heard)
        kind = EventKind.FAILED_START if has_failed else EventKind.ENDED
        yield Event(now_s, kind, lease_name(lease.key), 1, str(lease.ended or ""))


def _failed(lease: Lease, observed: Observed, *, was_heard: bool) -> bool:
    if failed_to_start(lease, observed.limits):
        return True
    was_told = lease.notice_s is not None or lease.cancel_s is not None
    by_itself = lease.ended is LeaseEnd.EXPECTED and not was_told
    return by_itself and not was_heard


def _generations(
    context: TickContext, trainer: ObservedTrainer
) -> tuple[int, list[Event]]:
    """Return up to which generation there are files, and what those untold say."""
    told = trainer.row.told_generation
    folder = context.folder.trainer(trainer.row.name)
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
                trainer.row.name,
                len(assigned.members),
                said,
            )
        )
    return max(untold, default=told), events


def _end(state: sqlite3.Connection, trainer: ObservedTrainer, now_s: float) -> None:
    outcome = trainer.outcome
    if outcome is None:
        return
    name, message = trainer.row.name, outcome.message
    if end_trainer(state, name, outcome.state, message=message, now_s=now_s):
        said = f"{outcome.state}: {message}"
        add_events(state, [Event(now_s, EventKind.TRAINER_ENDED, name, 0, said)])


# ----------------------------------------------------------------------
# From what was seen, decided and done to the page that tells it.


def report_of(  # noqa: PLR0913 - one fact each
    context: TickContext,
    observed: Observed,
    decided: Decided,
    done: ActionResults,
    *,
    took_s: float,
    planner_s: float,
) -> StatusReport:
    """Return the page of a tick; it tells of what was so when it began."""
    decision, outlook = decided.decision, decided.outlook
    pause_s = paused_until_s(observed.pace, observed.limits)
    is_paused = pause_s is not None and pause_s > observed.now_s
    problems = [*decided.problems, *done.problems]
    if done.error is not None:
        problems.append(str(done.error))
    return StatusReport(
        at_s=observed.now_s,
        took_s=took_s,
        cluster=observed.config.cluster,
        release=str(observed.config.release),
        partition=observed.partition.name,
        mode=str(observed.limits.mode),
        is_torn=observed.snapshot.is_torn,
        is_plan_known=observed.is_plan_known,
        requests=context.backend.requests,
        planner=str(decision.answer.outcome),
        planner_reason=decision.answer.reason,
        planner_gap=decision.answer.gap,
        is_by_lives=not decision.answer.is_by_m0,
        planner_s=planner_s,
        brake=str(decision.brake or ""),
        paused_until_s=pause_s if is_paused else None,
        churned=observed.pace.churned,
        caps=_caps(observed.limits),
        done={
            "generations": done.assigned,
            "leases asked for": done.asked,
            "leases ended": done.ended,
        },
        problems=tuple(problems),
        trainers=tuple(_trainers(observed, decided)),
        holes=tuple(_holes(observed, decided)),
        leases=tuple(_leases(observed)),
        priority=decided.ratings.priority,
        came=() if outlook is None else lease_outcomes(outlook),
        promises=() if outlook is None else outlook.forecast.intervals(),
        forecaster="" if outlook is None else context.site.planner.forecaster,
        leaves=0 if outlook is None else outlook.known_leaves,
        leaf_rate=None if outlook is None else outlook.forecast.leaf_rate,
    )


def _caps(limits: Limits) -> dict[str, int]:
    return {
        "leases": limits.most_leases,
        "requests_per_tick": limits.most_new_leases,
        "rpcs_per_tick": limits.most_calls,
        "churn_per_hour": limits.most_churn,
    }


def _trainers(observed: Observed, decided: Decided) -> Iterator[TrainerLine]:
    decision, look = decided.decision, decided.look
    explained = {
        one.trainer: one
        for one in explain_trainers(
            look.trainers,
            decision.wanted,
            decision.classes,
            holes=look.holes,
            brake=decision.brake,
        )
    }
    shapes = {one.name: one.shape for one in look.trainers}
    for trainer in observed.trainers:
        why = explained.get(trainer.row.name)
        line = _standing(trainer, observed)
        if why is None:
            yield line
            continue
        yield replace(
            line,
            reason=f"{why.reason}: {why.refusal}" if why.refusal else str(why.reason),
            planned_nodes=why.planned_nodes,
            usable_nodes=why.usable_nodes,
            shape=shapes[line.name],
            brake=str(why.brake or ""),
            rating=decided.ratings.reasons[line.name],
            is_background=line.name in decided.ratings.background,
        )


def _standing(trainer: ObservedTrainer, observed: Observed) -> TrainerLine:
    newest, outcome = trainer.newest, trainer.outcome
    members = () if newest is None else newest.members
    state = trainer.row.state if outcome is None else outcome.state
    return TrainerLine(
        name=trainer.row.name,
        state=str(state),
        message=trainer.row.message if outcome is None else outcome.message,
        nodes=len(members),
        generation=0 if newest is None else newest.generation,
        changed_s=None if newest is None else newest.created_s,
        node_names=tuple(member.node for member in members),
        sizes=() if trainer.job is None else trainer.job.nodes.sizes,
        problem=trainer.problem,
        is_diverging=_is_diverging(trainer, observed),
    )


def _is_diverging(trainer: ObservedTrainer, observed: Observed) -> bool:
    progress, job = observed.progress.get(trainer.row.name), trainer.job
    if progress is None or job is None:
        return False
    return is_diverging(progress.history.metric_points(), job.measure.better)


def _training(observed: Observed) -> dict[LeaseKey, str]:
    """Return who trains on each lease."""
    return {
        member.key: trainer.row.name
        for trainer in observed.trainers
        if trainer.newest is not None
        for member in trainer.newest.members
    }


def _holes(observed: Observed, decided: Decided) -> Iterator[HoleLine]:
    decision, outlook = decided.decision, decided.outlook
    found = {hole.node: hole for holes in decided.look.holes.values() for hole in holes}
    on = _names(observed.belief.leases, _training(observed))
    for why in explain_holes(
        decision.classes, decision.wanted, decision.actual, brake=decision.brake
    ):
        hole = found[why.node]
        yield HoleLine(
            node=why.node,
            reason=str(why.reason),
            refusal=refusal_of(why, decided.look.claims),
            brake=str(why.brake or ""),
            end_s=hole.end_s,
            ends_by=str(hole.ends_by),
            blocker=hole.blocker,
            trainer=on.get(why.node, ""),
            expected=None if outlook is None else outlook.forecast.expected(why.node),
        )


def _names(
    leases: tuple[Lease, ...], training: Mapping[LeaseKey, str]
) -> dict[str, str]:
    return {
        lease.node: training[lease.key]
        for lease in leases
        if lease.is_live and lease.node and lease.key in training
    }


def _leases(observed: Observed) -> Iterator[LeaseLine]:
    training = _training(observed)
    for lease in observed.belief.leases:
        if not lease.is_live:
            continue
        beat = observed.heartbeats.latest.get(lease.key)
        yield LeaseLine(
            name=lease_name(lease.key),
            job=lease.display_id,
            state=str(lease.state),
            node=lease.node,
            start_s=lease.start_s,
            end_s=lease.end_s,
            limit_min=lease.limit_min,
            shape=lease.shape,
            agent="" if beat is None else str(beat.state),
            is_silent=lease.key in observed.heartbeats.silent,
            trainer=training.get(lease.key, ""),
        )


def lease_outcomes(outlook: Outlook) -> tuple[LeaseOutcome, ...]:
    """Return what came of the leases that ended last, as the last look told."""
    return tuple(
        LeaseOutcome(
            name=lease_name(LeaseKey(told.uuid, told.task)),
            node=told.node,
            at_s=told.at_s,
            horizon_s=told.horizon_s,
            leaves=told.leaves,
            even_s=told.even_s,
            promised_s=told.promised_s,
            ended_s=told.ended_s,
            came=told.came,
        )
        for told in outlook.ended
        if told.ended_s is not None
    )
