"""From what was seen, decided and done to the page that tells it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from freetrain.broker.explain import explain_holes, explain_trainers
from freetrain.broker.pace import paused_until_s
from freetrain.exchange.layout import lease_name
from freetrain.tick.came import came_lines
from freetrain.tick.caring import refusal_of
from freetrain.tick.page import HoleLine, LeaseLine, Page, TrainerLine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from freetrain.broker.lease import Lease, LeaseKey
    from freetrain.broker.limits import Limits
    from freetrain.tick.carry_out import Done
    from freetrain.tick.decision import Decided
    from freetrain.tick.observe import Observed
    from freetrain.tick.run import Run
    from freetrain.tick.standing import Standing


def page_of(  # noqa: PLR0913 - one fact each
    run: Run,
    observed: Observed,
    decided: Decided,
    done: Done,
    *,
    took_s: float,
    planner_s: float,
) -> Page:
    """Return the page of a tick; it tells of what was so when it began."""
    decision, outlook = decided.decision, decided.outlook
    pause_s = paused_until_s(observed.pace, observed.limits)
    is_paused = pause_s is not None and pause_s > observed.now_s
    problems = [*decided.problems, *done.problems]
    if done.error is not None:
        problems.append(str(done.error))
    return Page(
        at_s=observed.now_s,
        took_s=took_s,
        cluster=observed.config.cluster,
        release=str(observed.config.release),
        partition=observed.partition.name,
        mode=str(observed.limits.mode),
        is_torn=observed.snapshot.is_torn,
        is_plan_known=observed.is_plan_known,
        requests=run.backend.requests,
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
        priority=decided.deserts.priority,
        came=() if outlook is None else came_lines(outlook),
        promises=() if outlook is None else outlook.forecast.intervals(),
        forecaster="" if outlook is None else run.site.planner.forecaster,
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
    for standing in observed.trainers:
        why = explained.get(standing.row.name)
        line = _standing(standing, observed)
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
            rating=decided.deserts.reasons[line.name],
            is_background=line.name in decided.deserts.background,
        )


def _standing(standing: Standing, observed: Observed) -> TrainerLine:
    newest, outcome = standing.newest, standing.outcome
    members = () if newest is None else newest.members
    state = standing.row.state if outcome is None else outcome.state
    return TrainerLine(
        name=standing.row.name,
        state=str(state),
        message=standing.row.message if outcome is None else outcome.message,
        nodes=len(members),
        generation=0 if newest is None else newest.generation,
        changed_s=None if newest is None else newest.created_s,
        node_names=tuple(member.node for member in members),
        sizes=() if standing.job is None else standing.job.nodes.sizes,
        problem=standing.problem,
        is_diverging=_is_diverging(standing, observed),
    )


def _is_diverging(standing: Standing, observed: Observed) -> bool:
    learned, job = observed.learned.get(standing.row.name), standing.job
    if learned is None or job is None:
        return False
    # Imported here: a tick that has nothing to do must stay cheap.
    from freetrain.tick.diverging import is_diverging  # noqa: PLC0415

    return is_diverging(learned.past.told(), job.measure.better)


def _training(observed: Observed) -> dict[LeaseKey, str]:
    """Return who trains on each lease."""
    return {
        member.key: standing.row.name
        for standing in observed.trainers
        if standing.newest is not None
        for member in standing.newest.members
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
        beat = observed.hearing.beats.get(lease.key)
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
            is_silent=lease.key in observed.hearing.silent,
            trainer=training.get(lease.key, ""),
        )
