"""What a tick records of what it observed, and what it reports of all it did.

``record`` writes to the store what was observed and what it means happened since the
last tick, before anything is acted on. ``report_of`` puts observation, plan and actions
together as the status report.
"""

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
    put_backfill_plans,
    put_delivery,
    put_heartbeats,
    put_histories,
    put_intents,
    put_leases,
    put_loss_forecasts,
    put_priority_memory,
    put_reported_generation,
    seen_heartbeats,
)
from freetrain.tick.deliver import newly_reached
from freetrain.tick.holes import refusal_of
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
    from freetrain.config.job import TrainerJob
    from freetrain.tick.act import ActionResults
    from freetrain.tick.context import TickContext
    from freetrain.tick.lookahead import NodeForecasts
    from freetrain.tick.observe import Observed
    from freetrain.tick.plan import Decided
    from freetrain.tick.progress import TrainerProgress
    from freetrain.tick.trainers import TickTrainer


KEPT_S = 30 * 86_400.0
"""Events older than a month are dropped."""

_MOST_NEW = 100
"""Generations recorded of one trainer in one tick."""


def record(
    context: TickContext,
    observed: Observed,
    decided: Decided,
) -> None:
    """Record what was observed, and what it means happened since the last tick.

    All in one transaction: a tick that is killed before it records the same again.

    Raises:
        StoreError: It could not be written.
        OSError: Files could not be read.
    """
    ratings, forecasts = decided.ratings, decided.forecasts
    heard_before = frozenset(seen_heartbeats(context.state))
    news = [(t, *_new_generations(context, t)) for t in observed.trainers]
    with context.writing("what was observed") as state:
        put_intents(state, observed.belief.intents)
        put_leases(state, observed.belief.leases)
        put_backfill_plans(state, observed.plans)
        if forecasts is not None:
            # Imported here: most sites' ticks need no forecasts.
            from freetrain.tick.lookahead import keep  # noqa: PLC0415

            keep(state, forecasts, observed)
        put_heartbeats(state, observed.heartbeats.seen)
        put_priority_memory(state, ratings.priority, ratings.memory)
        put_loss_forecasts(state, decided.loss_forecasts)
        progress = observed.progress.items()
        put_histories(
            state, [known.row(name) for name, known in progress if known.is_read]
        )
        for delivery in newly_reached(observed):
            put_delivery(state, delivery)
        add_events(state, _lease_events(context, observed, heard_before))
        for trainer, last, events in news:
            add_events(state, events)
            if last > trainer.row.reported_generation:
                put_reported_generation(state, trainer.row.name, last)
            _record_outcome(state, trainer, observed.now_s)
        created = sum(len(events) for _, _, events in news)
        add_to_counters(state, {Counter.GENERATIONS: float(created)})
        drop_events(state, before_s=observed.now_s - KEPT_S)


def _lease_events(
    context: TickContext, observed: Observed, heard_before: frozenset[LeaseKey]
) -> Iterator[Event]:
    """Yield what happened to leases.

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
        was_heard = lease.key in heard_before or heartbeat.exists()
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
    """Return the newest generation that has a file, and events of those not recorded.

    Agents make generations, too.
    """
    recorded = trainer.row.reported_generation
    folder = context.folder.trainer(trainer.row.name)
    new = [g for g in generations(folder.assignments) if g > recorded][:_MOST_NEW]
    events = []
    for generation in new:
        try:
            assigned = read_assigned(folder, generation)
        except UnreadableFileError:
            continue
        events.append(
            Event(
                assigned.created_s,
                EventKind.ASSIGNED,
                trainer.row.name,
                len(assigned.members),
                f"generation {generation} by {assigned.author}: {assigned.reason}",
            )
        )
    return max(new, default=recorded), events


def _record_outcome(
    state: sqlite3.Connection, trainer: TickTrainer, now_s: float
) -> None:
    outcome = trainer.outcome
    if outcome is None:
        return
    name, message = trainer.row.name, outcome.message
    if end_trainer(state, name, outcome.state, message=message, now_s=now_s):
        detail = f"{outcome.state}: {message}"
        add_events(state, [Event(now_s, EventKind.TRAINER_ENDED, name, 0, detail)])


# The status report.


def report_of(  # noqa: PLR0913 - one fact each
    context: TickContext,
    observed: Observed,
    decided: Decided,
    done: ActionResults,
    *,
    took_s: float,
    planner_s: float,
) -> StatusReport:
    """Return the status report of a tick; it shows the state when the tick began."""
    decision, forecasts = decided.decision, decided.forecasts
    limits = observed.limits
    pause_s = paused_until_s(observed.pace, limits)
    is_paused = pause_s is not None and pause_s > observed.now_s
    training = {
        member.key: trainer.row.name
        for trainer in observed.trainers
        if trainer.newest is not None
        for member in trainer.newest.members
    }
    problems = [*decided.problems, *done.problems]
    if done.error is not None:
        problems.append(str(done.error))
    return StatusReport(
        at_s=observed.now_s,
        took_s=took_s,
        cluster=observed.config.cluster,
        release=str(observed.config.release),
        partition=observed.partition.name,
        mode=str(limits.mode),
        is_torn=observed.snapshot.is_torn,
        is_plan_known=observed.is_plan_known,
        requests=context.backend.requests,
        planner=str(decision.planned.outcome),
        planner_reason=decision.planned.reason,
        planner_gap=decision.planned.gap,
        is_by_lives=not decision.planned.is_by_m0,
        planner_s=planner_s,
        brake=str(decision.brake or ""),
        paused_until_s=pause_s if is_paused else None,
        churned=observed.pace.churned,
        caps={
            "leases": limits.most_leases,
            "requests_per_tick": limits.most_new_leases,
            "rpcs_per_tick": limits.most_calls,
            "churn_per_hour": limits.most_churn,
        },
        done={
            "generations": done.assigned,
            "leases asked for": done.asked,
            "leases ended": done.ended,
        },
        problems=tuple(problems),
        trainers=tuple(_trainer_lines(observed, decided)),
        holes=tuple(_hole_lines(observed, decided, training)),
        leases=tuple(_lease_lines(observed, training)),
        priority=decided.ratings.priority,
        came=() if forecasts is None else _lease_outcomes(forecasts),
        promises=() if forecasts is None else forecasts.forecast.intervals(),
        forecaster="" if forecasts is None else context.site.planner.forecaster,
        leaves=0 if forecasts is None else forecasts.known_leaves,
        leaf_rate=None if forecasts is None else forecasts.forecast.leaf_rate,
    )


def _trainer_lines(observed: Observed, decided: Decided) -> Iterator[TrainerLine]:
    decision, look = decided.decision, decided.look
    explanations = {
        explanation.trainer: explanation
        for explanation in explain_trainers(
            look.trainers,
            decision.wanted,
            decision.classes,
            holes=look.holes,
            brake=decision.brake,
        )
    }
    shapes = {trainer.name: trainer.shape for trainer in look.trainers}
    for trainer in observed.trainers:
        name, line = trainer.row.name, _trainer_line(trainer, observed)
        why = explanations.get(name)
        if why is not None:
            line = replace(
                line,
                reason=(
                    f"{why.reason}: {why.refusal}" if why.refusal else str(why.reason)
                ),
                planned_nodes=why.planned_nodes,
                usable_nodes=why.usable_nodes,
                shape=shapes[name],
                brake=str(why.brake or ""),
                rating=decided.ratings.reasons[name],
                is_background=name in decided.ratings.background,
            )
        yield line


def _trainer_line(trainer: TickTrainer, observed: Observed) -> TrainerLine:
    """Return what a trainer's files tell, without the plan."""
    row, newest, outcome = trainer.row, trainer.newest, trainer.outcome
    members = () if newest is None else newest.members
    progress, job = observed.progress.get(row.name), trainer.job
    return TrainerLine(
        name=row.name,
        state=str(row.state if outcome is None else outcome.state),
        message=row.message if outcome is None else outcome.message,
        nodes=len(members),
        generation=0 if newest is None else newest.generation,
        changed_s=None if newest is None else newest.created_s,
        node_names=tuple(member.node for member in members),
        sizes=() if job is None else job.nodes.sizes,
        problem=trainer.problem,
        is_diverging=_is_diverging(progress, job),
    )


def _is_diverging(progress: TrainerProgress | None, job: TrainerJob | None) -> bool:
    if progress is None or job is None:
        return False
    # Imported here: a tick that has nothing to do must stay cheap.
    from freetrain.tick.history import is_diverging  # noqa: PLC0415

    return is_diverging(progress.history.metric_points(), job.measure.better)


def _hole_lines(
    observed: Observed, decided: Decided, training: Mapping[LeaseKey, str]
) -> Iterator[HoleLine]:
    decision, forecasts = decided.decision, decided.forecasts
    holes = {hole.node: hole for found in decided.look.holes.values() for hole in found}
    trainers = {
        lease.node: training[lease.key]
        for lease in observed.belief.leases
        if lease.is_live and lease.node and lease.key in training
    }
    for why in explain_holes(
        decision.classes, decision.wanted, decision.actual, brake=decision.brake
    ):
        hole = holes[why.node]
        yield HoleLine(
            node=why.node,
            reason=str(why.reason),
            refusal=refusal_of(why, decided.look.claims),
            brake=str(why.brake or ""),
            end_s=hole.end_s,
            ends_by=str(hole.ends_by),
            blocker=hole.blocker,
            trainer=trainers.get(why.node, ""),
            expected=None
            if forecasts is None
            else forecasts.forecast.expected(why.node),
        )


def _lease_lines(
    observed: Observed, training: Mapping[LeaseKey, str]
) -> Iterator[LeaseLine]:
    for lease in observed.belief.leases:
        if not lease.is_live:
            continue
        heartbeat = observed.heartbeats.latest.get(lease.key)
        yield LeaseLine(
            name=lease_name(lease.key),
            job=lease.display_id,
            state=str(lease.state),
            node=lease.node,
            start_s=lease.start_s,
            end_s=lease.end_s,
            limit_min=lease.limit_min,
            shape=lease.shape,
            agent="" if heartbeat is None else str(heartbeat.state),
            is_silent=lease.key in observed.heartbeats.silent,
            trainer=training.get(lease.key, ""),
        )


def _lease_outcomes(forecasts: NodeForecasts) -> tuple[LeaseOutcome, ...]:
    """Return the forecasts and ends of the leases that ended last."""
    return tuple(
        LeaseOutcome(
            name=lease_name(LeaseKey(lease.uuid, lease.task)),
            node=lease.node,
            at_s=lease.at_s,
            horizon_s=lease.horizon_s,
            leaves=lease.departure_probability,
            even_s=lease.median_s,
            promised_s=lease.promised_s,
            ended_s=lease.ended_s,
            came=lease.outcome,
        )
        for lease in forecasts.ended
        if lease.ended_s is not None
    )
