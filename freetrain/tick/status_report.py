"""The status report: what the last tick saw, did, and why, as JSON, metrics and a line.

``freetrain status`` and ``explain`` show this file, so that they ask Slurm nothing.
Names of fields are keys of its JSON, which users read.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from freetrain.broker.lease import LeaseKey, LeaseState
from freetrain.broker.limits import paused_until_s
from freetrain.broker.reasons import Brake, HoleReason, Refusal
from freetrain.lookahead.base import NodeForecast  # noqa: TC001 - read by msgspec
from freetrain.lookahead.promises import DelayInterval  # noqa: TC001
from freetrain.opening import read_json
from freetrain.state.files import AgentState, UnreadableFileError, lease_name
from freetrain.state.tables import TickCounter, TrainerState
from freetrain.text import gap_percent
from milp.answer import PlanStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from freetrain.broker.decide import HoleExplanation
    from freetrain.broker.yielding import Claims
    from freetrain.config.job import TrainerJob
    from freetrain.state.files import Heartbeat
    from freetrain.tick.act import ActionResults
    from freetrain.tick.environment import TickContext
    from freetrain.tick.lookahead import NodeForecasts
    from freetrain.tick.observe import Observed
    from freetrain.tick.plan import TickPlan
    from freetrain.tick.trainers import TickTrainer, TrainerProgress


VERSION = 1

TICKS_SILENT_S = 600.0
"""Without a tick for so long, something is wrong with the program that calls it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusReport:
    """What one tick saw, did, and why.

    Attributes:
        at_s: When the snapshot was taken, by slurmctld's clock, Unix time.
        took_s: How long the tick took.
        cluster: ClusterName.
        release: slurmctld's release.
        partition: Where leases are submitted unless a trainer says otherwise.
        mode: Whether Slurm preempts leases or the broker yields.
        is_torn: Whether backfill was at work during the snapshot.
        is_plan_known: Whether backfill's plans could be trusted all the same.
        requests: Slurm commands run.
        planner: How far the plan can be trusted to be the best.
        planner_reason: Why, where there is more to say.
        planner_gap: How far the plan is at most below the best, by the planner's own
            objective (``milp.gap``), 0 to 2; None where an older version wrote this.
        is_by_lives: Whether that objective goes by expected lives of nodes.
        planner_s: How long planning took.
        brake: What keeps all leases from being asked for, empty for nothing.
        waits_since_s: By job of another user that could start but for our leases: since
            when it waits for them to leave, Unix time.
        limit: The limit of an account, user or QOS that leaves room for no more leases
            than there are, with its value; empty for none.
        paused_until_s: Until when failed starts make it pause, Unix time; None for
            no pause.
        churned: Leases asked for and given up by choice in the last hour.
        caps: The most there may be, by name.
        done: Number of actions, by kind.
        problems: What went wrong, for people. Hostile text.
        trainers: In order of submission.
        holes: In Slurm's order, those that cannot be used last.
        leases: Those that are not gone.
        priority: The priority that rated the trainers.
        came: Forecasts and ends of the leases that ended last, the newest first.
        promises: How reliable backfill's planned starts were.
        forecaster: What forecasts how long nodes stay; empty without look-ahead.
        leaves: Leaf switches, or blocks, whose nodes are taken to be close; 0 for
            none known.
        leaf_rate: How often two idle nodes below one of them left together, of the
            times that either did, 0 to 1; None where none are known.
        t_fwd_s: The time over which a plan counts gains; 0 where an older version
            wrote this.
        version: Of this format.
    """

    at_s: float
    took_s: float
    cluster: str
    release: str
    partition: str
    mode: str
    is_torn: bool
    is_plan_known: bool
    requests: int
    planner: str
    planner_reason: str
    planner_s: float
    brake: str
    paused_until_s: float | None
    churned: int
    caps: dict[str, int]
    done: dict[str, int]
    problems: tuple[str, ...]
    trainers: tuple[TrainerLine, ...]
    holes: tuple[HoleLine, ...]
    leases: tuple[LeaseLine, ...]
    priority: str = ""
    came: tuple[LeaseOutcome, ...] = ()
    promises: tuple[DelayInterval, ...] = ()
    leaves: int = 0
    leaf_rate: float | None = None
    planner_gap: float | None = None
    is_by_lives: bool = False
    forecaster: str = ""
    limit: str = ""
    waits_since_s: dict[str, float] = field(default_factory=dict)
    t_fwd_s: float = 0.0
    version: int = VERSION

    @property
    def held_back(self) -> str:
        """What keeps leases from trainers that want nodes; empty where none does."""
        if not any(t.state == TrainerState.WANTED for t in self.trainers):
            return ""
        if self.limit and self.brake in {"", Brake.SUBMIT_LIMIT}:
            return f"{Brake.SUBMIT_LIMIT}: {self.limit}"
        return self.brake


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerLine:
    """A trainer, and why it has the nodes it has.

    Attributes:
        name: Its name.
        state: What its user wants of it, or how it ended.
        message: Why it ended, else empty. Hostile text.
        reason: Why it has the nodes it has, empty where it wants none.
        nodes: Nodes of its newest generation.
        planned_nodes: Nodes that the plan gives it.
        usable_nodes: Nodes that meet its requirement, other trainers' included.
        generation: Its newest generation, 0 for none.
        changed_s: When that was made, Unix time; None for never.
        node_names: Its nodes, the head's first.
        shape: What its leases require of their nodes.
        sizes: Node counts that it can use.
        brake: What keeps leases for it from being asked for, empty for nothing.
        larger_nodes: A larger size of one that has what the plan gives it: of those for
            which nodes are left the one that pays first, else the next; 0 for none.
        free_nodes: Nodes that it could use and that the plan leaves idle.
        pays_after_s: When the larger size has made up for the change, by the speeds
            that the plan goes by; None where it is not faster, or there is none.
        problem: Why nothing can be done about it, or its progress is not read; else
            empty.
        rating: Why the priority values it as it does, empty where it wants no nodes.
        is_background: Whether it gets only what the others leave.
        is_diverging: Whether its metric has gone wrong.
        is_stalled: Whether its world makes no steps any more.
        bad_metrics: By metric, how many lines of its progress had no number for it.
        unseen: That it trains and no step of it was read so far, and what makes them
            seen; empty where that is not so.
    """

    name: str
    state: str
    message: str = ""
    reason: str = ""
    nodes: int = 0
    planned_nodes: int = 0
    usable_nodes: int = 0
    generation: int = 0
    changed_s: float | None = None
    node_names: tuple[str, ...] = ()
    shape: str = ""
    sizes: tuple[int, ...] = ()
    brake: str = ""
    larger_nodes: int = 0
    free_nodes: int = 0
    pays_after_s: float | None = None
    problem: str = ""
    rating: str = ""
    is_background: bool = False
    is_diverging: bool = False
    is_stalled: bool = False
    bad_metrics: dict[str, int] = field(default_factory=dict)
    unseen: str = ""

    @property
    def why(self) -> str:
        """Why it is as it is: a problem, its end, or the plan's reason."""
        brake = f" ({self.brake})" if self.brake else ""
        return self.problem or self.message or f"{self.reason}{brake}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HoleLine:
    """A hole, and what it is used for.

    Attributes:
        node: NodeName.
        reason: What it is used for, or why it is not.
        refusal: Why it cannot be planned with, empty where it can.
        brake: What keeps leases from being asked for, empty for nothing.
        end_s: When it ends, Unix time; None where that is not known, or never.
        ends_by: Why it ends then.
        blocker: The job or reservation that ends it, empty for none.
        trainer: The trainer there, empty for none.
        expected: The forecast of the node, or of the piece; None without look-ahead.
        piece: NodeName, ``#`` and the number of the last of its GPUs where it is a
            piece of a node; else empty. As jobs take GPUs, the highest numbers go.
    """

    node: str
    reason: str
    refusal: str = ""
    brake: str = ""
    end_s: float | None = None
    ends_by: str = ""
    blocker: str = ""
    trainer: str = ""
    expected: NodeForecast | None = None
    piece: str = ""

    @property
    def used_for(self) -> str:
        """The trainer there, or what it is used for, or why for nothing."""
        if self.reason == HoleReason.TRAINING and self.trainer:
            return self.trainer
        why = self.refusal or self.brake
        empty = "nothing: " if self.reason in _EMPTY else ""
        return f"{empty}{self.reason}{f' ({why})' if why else ''}"


_EMPTY = {HoleReason.UNUSABLE, HoleReason.UNWANTED, HoleReason.HELD_BACK}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLine:
    """A lease that waits, runs or ends.

    Attributes:
        name: Its name, as files have it.
        job: What scancel calls its job.
        state: A ``LeaseState``.
        node: Its node, empty before it runs.
        start_s: When it started, Unix time, None before.
        end_s: When its limit ends it, Unix time, None before it runs.
        limit_min: Its time limit, whole minutes.
        shape: What it required of its node.
        agent: State of its agent, empty where none is heard.
        is_silent: Whether its agent cannot be planned with now.
        trainer: The trainer there, empty for none.
    """

    name: str
    job: str
    state: str
    node: str
    start_s: float | None
    end_s: float | None
    limit_min: int
    shape: str
    agent: str
    is_silent: bool
    trainer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseOutcome:
    """The forecast of a lease's node when it began to run, and how the lease ended.

    Attributes:
        name: The lease's name, as files have it.
        node: Its node.
        at_s: When it was seen to run first, Unix time.
        horizon_s: How far ``leaves`` reaches.
        leaves: Forecast probability that the node leaves within the horizon.
        even_s: Forecast time for which it stays with a probability of at least 1/2.
        promised_s: Start that backfill had planned there, Unix time; None for none.
        ended_s: When the lease was over, as far as snapshots tell, Unix time.
        came: How it ended.
    """

    name: str
    node: str
    at_s: float
    horizon_s: float
    leaves: float
    even_s: float
    promised_s: float | None
    ended_s: float
    came: str


# From a tick.


def report_of(  # noqa: PLR0913 - one fact each
    context: TickContext,
    observed: Observed,
    plan: TickPlan,
    done: ActionResults,
    *,
    took_s: float,
    planner_s: float,
) -> StatusReport:
    """Return the status report of a tick; it shows the state when the tick began."""
    decision, forecasts = plan.decision, plan.forecasts
    limits = observed.limits
    pause_s = paused_until_s(observed.pace, limits)
    is_paused = pause_s is not None and pause_s > observed.now_s
    training = {
        member.key: trainer.row.name
        for trainer in observed.trainers
        if trainer.newest is not None
        for member in trainer.newest.members
    }
    problems = [*plan.problems, *done.problems]
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
        limit=_binding_limit(plan),
        paused_until_s=pause_s if is_paused else None,
        churned=observed.pace.churned,
        caps={
            "leases": limits.most_leases,
            "leases_per_tick": limits.most_new_leases,
            "rpcs_per_tick": limits.most_calls,
            "churn_per_hour": limits.most_churn,
        },
        done={
            "generations": done.assigned,
            "leases asked for": done.asked,
            "leases ended": done.ended,
            "leases shortened": len(observed.room.new_ends_s),
            "leases given up to others": len(observed.gave_way),
        },
        problems=tuple(problems),
        trainers=tuple(_trainer_lines(observed, plan)),
        holes=tuple(_hole_lines(plan, training)),
        waits_since_s=_waits_since_s(observed, plan),
        leases=tuple(_lease_lines(observed, training)),
        priority=plan.ratings.priority,
        came=() if forecasts is None else _lease_outcomes(forecasts),
        promises=() if forecasts is None else forecasts.forecast.intervals(),
        forecaster="" if forecasts is None else context.site.planner.forecaster,
        leaves=0 if forecasts is None else forecasts.known_leaves,
        leaf_rate=None if forecasts is None else forecasts.forecast.leaf_rate,
        t_fwd_s=context.site.planner.t_fwd_s,
    )


def _binding_limit(plan: TickPlan) -> str:
    """Return the limit that keeps leases from being asked for; empty for none."""
    decision = plan.decision
    is_refused = Refusal.SUBMIT_LIMIT in decision.refused.values()
    is_binding = is_refused or decision.brake is Brake.SUBMIT_LIMIT
    return plan.limits.allowed.why if is_binding else ""


def _waits_since_s(observed: Observed, plan: TickPlan) -> dict[str, float]:
    """Return since when jobs that could start wait for our leases to leave."""
    claims = plan.situation.claims
    since_s = {str(job): seen.since_s for job, seen in plan.awaited.items()}
    for lease in observed.belief.leases:
        job = claims.leased.get(lease.node)
        if not lease.is_live or lease.notice_s is None or job is None:
            continue
        if lease.node not in claims.kept_free.nodes:  # the job cannot start yet
            since_s[str(job)] = min(since_s.get(str(job), math.inf), lease.notice_s)
    return since_s


def _trainer_lines(observed: Observed, plan: TickPlan) -> Iterator[TrainerLine]:
    explanations = {why.trainer: why for why in plan.decision.trainers}
    shapes = {trainer.name: trainer.shape for trainer in plan.situation.trainers}
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
                larger_nodes=0 if why.larger is None else why.larger.nodes,
                free_nodes=0 if why.larger is None else why.larger.free_nodes,
                pays_after_s=None if why.larger is None else why.larger.pays_after_s,
                rating=plan.ratings.reasons[name],
                is_background=name in plan.ratings.background,
            )
        yield line


def _trainer_line(trainer: TickTrainer, observed: Observed) -> TrainerLine:
    """Return what a trainer's files tell, without the plan."""
    row, newest, final = trainer.row, trainer.newest, trainer.final
    members = () if newest is None else newest.members
    progress, job = observed.progress.get(row.name), trainer.job
    beat = observed.heartbeats.latest.get(members[0].key) if members else None
    is_of_newest = (
        beat is not None and newest is not None and beat.generation == newest.generation
    )
    head = beat if is_of_newest else None
    return TrainerLine(
        name=row.name,
        state=str(row.state if final is None else final.state),
        message=row.message if final is None else final.message,
        nodes=len(members),
        generation=0 if newest is None else newest.generation,
        changed_s=None if newest is None else newest.created_s,
        node_names=tuple(member.node for member in members),
        sizes=() if job is None else job.nodes.sizes,
        problem=trainer.problem or ("" if progress is None else progress.problem),
        is_diverging=_is_diverging(progress, job),
        is_stalled=head is not None and head.is_stalled,
        bad_metrics={} if progress is None else dict(progress.bookmark.bad_metrics),
        unseen=_unseen(head, progress, job),
    )


def _unseen(
    head: Heartbeat | None, progress: TrainerProgress | None, job: TrainerJob | None
) -> str:
    if head is None or progress is None or job is None or job.elastic:
        return ""
    is_seen = progress.history.reported_s is not None or progress.problem
    if head.state is not AgentState.TRAINING or is_seen:
        return ""
    if job.progress is None:
        return (
            "its steps are not seen, nor its speeds learned, as its job file has no "
            "[progress]: `freetrain docs job-file` tells what to write there, and "
            "`freetrain curves --try FILE` how a file of its own would be read"
        )
    place = "what it prints" if job.progress.files is None else job.progress.files
    return (
        f"no step of it was read so far from {place}: `freetrain curves --try JOBFILE` "
        f"shows what its [progress] finds there"
    )


def _is_diverging(progress: TrainerProgress | None, job: TrainerJob | None) -> bool:
    if progress is None or job is None:
        return False
    # Imported here: a tick that has nothing to do must stay cheap.
    from freetrain.losscurve.fit import has_diverged  # noqa: PLC0415

    return has_diverged(progress.history.metric_points(), job.measure.better)


def _hole_lines(plan: TickPlan, training: Mapping[LeaseKey, str]) -> Iterator[HoleLine]:
    claims, forecasts = plan.situation.claims, plan.forecasts
    holes = {
        hole.node: hole for found in plan.situation.holes.values() for hole in found
    }
    for why in plan.decision.holes:
        hole = holes[why.node]
        yield HoleLine(
            node=why.node,
            reason=str(why.reason),
            refusal=_refusal(why, claims),
            brake=str(why.brake or ""),
            end_s=hole.end_s,
            ends_by=str(hole.ends_by),
            blocker=hole.blocker,
            trainer="" if why.lease is None else training.get(why.lease, ""),
            expected=None
            if forecasts is None
            else forecasts.expected(why.node, why.piece),
            piece=why.piece,
        )


def _refusal(why: HoleExplanation, claims: Claims) -> str:
    """Return why a hole cannot be planned with, for people; empty where it can."""
    if why.node in claims.kept_free.nodes:
        return f"{why.refusal}: {claims.kept_free.nodes[why.node]}"
    return str(why.refusal or "")


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
            is_silent=lease.key in observed.heartbeats.not_ready,
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


# As JSON.


def render_report(report: StatusReport) -> str:
    """Return *report* as JSON that every reader takes: no infinity, no surrogates."""
    return json.dumps(as_plain(report), indent=1, allow_nan=False) + "\n"


def as_plain(report: StatusReport) -> dict[str, object]:
    """Return *report* as plain values for JSON; what is infinite is None."""
    return {name: _plain(value) for name, value in asdict(report).items()}


_MOST_BYTES = 1 << 26


def read_status_report(path: Path) -> StatusReport | None:
    """Return the report of the last tick; None before the first.

    Raises:
        UnreadableFileError: It is no such report, or another version's.
        OSError: It cannot be read.
    """
    try:
        fields: Any = read_json(path, most_bytes=_MOST_BYTES)
        _check_version(fields["version"])
        return msgspec.convert(fields, StatusReport)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise UnreadableFileError(path, error) from error


def _check_version(version: object) -> None:
    if version != VERSION:
        raise ValueError(f"version {version}, expected {VERSION}")


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


# In one line.


def summary_line(report: StatusReport) -> str:
    """Return what a tick saw and did, in one line for the log."""
    states = Counter(lease.state for lease in report.leases)
    wanting = [t for t in report.trainers if t.state == TrainerState.WANTED]
    running = sum(t.nodes > 0 for t in wanting)
    parts = [
        f"{len(report.holes)} holes",
        f"{states[LeaseState.RUNNING]} leases run, {states[LeaseState.PENDING]} wait",
        f"{running} of {len(wanting)} trainers run",
        *(_plan(report) if wanting else ()),
        (
            f"asked for {report.done['leases asked for']} leases, "
            f"ended {report.done['leases ended']}, "
            f"shortened {report.done['leases shortened']}, "
            f"made {report.done['generations']} generations"
        ),
        f"{report.requests} requests, {report.took_s:.2f} s",
    ]
    if report.is_torn:
        parts.append("a look during backfill")
    if report.held_back:
        parts.append(f"asking for no more: {report.held_back}")
    parts += [f"problem: {problem}" for problem in report.problems]
    return "; ".join(parts)


def _plan(report: StatusReport) -> list[str]:
    if report.planner_gap is None or report.planner == PlanStatus.PROVEN:
        return []
    return [f"plan at most {gap_percent(report.planner_gap)} below the best"]


# In numbers.

_COUNTERS = {
    TickCounter.TICKS: ("ticks_total", "Ticks that came to their end."),
    TickCounter.FAILED_TICKS: ("failed_ticks_total", "Ticks that did not."),
    TickCounter.REQUESTS: ("slurm_requests_total", "Slurm commands run."),
    TickCounter.LEASES_ASKED: ("leases_asked_total", "Leases asked for."),
    TickCounter.GENERATIONS: (
        "generations_total",
        "Generations of trainers, those that only start or stop one included.",
    ),
    TickCounter.IDLE_NODE_S: (
        "idle_node_seconds_total",
        "Time of nodes that were idle or ours, as ticks saw it.",
    ),
    TickCounter.LEASED_NODE_S: (
        "leased_node_seconds_total",
        "Time of nodes that leases held.",
    ),
    TickCounter.TRAINING_NODE_S: (
        "training_node_seconds_total",
        "Time of nodes that trainers had; over idle time it is the coverage.",
    ),
    TickCounter.KEPT_PLANS: ("kept_plans_total", "Ticks whose planner had no plan."),
    TickCounter.GIVEN_UP: (
        "leases_given_up_total",
        "Leases given up as jobs of others needed their nodes.",
    ),
}


def render_metrics(report: StatusReport, sums: Mapping[TickCounter, float]) -> str:
    """Return the metrics file, in the text format of Prometheus."""
    lines: list[str] = []
    for counter, (name, help_text) in _COUNTERS.items():
        lines += _metric(name, "counter", help_text, [("", sums[counter])])
    for name, help_text, values in _gauges(report):
        lines += _metric(name, "gauge", help_text, values)
    return "".join(f"{line}\n" for line in lines)


def _gauges(
    report: StatusReport,
) -> Iterable[tuple[str, str, list[tuple[str, float]]]]:
    leases = Counter(lease.state for lease in report.leases)
    states = [s for s in LeaseState if s is not LeaseState.GONE]
    trainers = Counter(trainer.state for trainer in report.trainers)
    yield "last_tick_timestamp_seconds", "When it looked.", [("", report.at_s)]
    yield "last_tick_seconds", "How long it took.", [("", report.took_s)]
    yield "planner_seconds", "How long deciding took.", [("", report.planner_s)]
    yield (
        "planner_outcome",
        "1 for how far the last plan can be trusted.",
        _labelled("outcome", {str(o): float(o == report.planner) for o in PlanStatus}),
    )
    if report.planner_gap is not None:
        yield (
            "planner_gap_ratio",
            "How far the last plan is below its bound, over the larger of the two.",
            [("", report.planner_gap)],
        )
    yield (
        "leases",
        "Leases by state.",
        _labelled("state", {str(s): float(leases[str(s)]) for s in states}),
    )
    yield (
        "trainers",
        "Trainers by state.",
        _labelled("state", {str(s): float(trainers[str(s)]) for s in TrainerState}),
    )
    yield "holes", "Nodes that are idle or ours.", [("", float(len(report.holes)))]
    training = sum(trainer.nodes for trainer in report.trainers)
    yield "training_nodes", "Nodes that trainers have.", [("", float(training))]
    waits_s = [report.at_s - since_s for since_s in report.waits_since_s.values()]
    yield (
        "jobs_waiting_for_leases",
        "Jobs of others that could start but for leases.",
        [("", float(len(waits_s)))],
    )
    yield (
        "longest_wait_for_leases_seconds",
        "For how long the first of them has waited for leases to leave.",
        [("", max(waits_s, default=0.0))],
    )
    for name, help_text, count in (
        (
            "stalled_trainers",
            "Trainers with nodes that make no steps.",
            sum(trainer.is_stalled for trainer in report.trainers),
        ),
        (
            "diverging_trainers",
            "Trainers whose metric has gone wrong.",
            sum(
                trainer.is_diverging and trainer.nodes > 0
                for trainer in report.trainers
            ),
        ),
    ):
        yield name, help_text, [("", float(count))]
    yield "torn_look", "Whether backfill was at work.", [("", float(report.is_torn))]
    yield "problems", "What went wrong.", [("", float(len(report.problems)))]


def _labelled(label: str, values: Mapping[str, float]) -> list[tuple[str, float]]:
    return [(f'{{{label}="{name}"}}', value) for name, value in values.items()]


def _metric(
    name: str, kind: str, help_text: str, values: Iterable[tuple[str, float]]
) -> list[str]:
    full = f"freetrain_{name}"
    samples = [f"{full}{labels} {value:.15g}" for labels, value in values]
    return [f"# HELP {full} {help_text}", f"# TYPE {full} {kind}", *samples]
