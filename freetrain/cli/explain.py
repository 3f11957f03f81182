"""``freetrain explain`` and ``freetrain curves``: the reasons behind the plan.

``explain`` shows why trainers have the nodes they have, and what holes are used for;
``curves`` the measured values of trainers, their fits, and when targets are expected.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from freetrain.api.context import UserContext
from freetrain.api.writing import write_file
from freetrain.broker.reasons import TrainerReason
from freetrain.cli.context import (
    CliContext,
    age_text,
    ago,
    clock_text,
    json_text,
    nodes_named,
    nodes_text,
    print_out,
    short_age,
    write_out,
)
from freetrain.cli.status import (
    aim_lines,
    member_lines,
    pack_line,
)
from freetrain.cli.submit import number_or_word, survey_record, survey_text
from freetrain.client.curves import (
    Aim,
    TrainerCurves,
    curves_of,
    job_to_try,
    range_sentence,
)
from freetrain.client.status import (
    Doing,
    Overview,
    TrainerStatus,
    generation_history,
    overview,
    pack_record,
    reason_of,
)
from freetrain.client.trainers import author_text
from freetrain.errors import BadDataError
from freetrain.launch.base import logs_of, run_dir_of
from freetrain.lookahead.base import NodeForecast
from freetrain.lookahead.promises import DelayInterval
from freetrain.losscurve.fit import FittedForecast
from freetrain.losscurve.forecast import MetricPoint
from freetrain.progress import survey_of
from freetrain.state.files import AssignmentFile, GenerationEnding, StateDir
from freetrain.state.tables import TrainerState
from freetrain.text import (
    counted,
    gap_percent,
    one_line,
    per_cent,
    render_duration,
    scaled,
    shown,
)
from freetrain.tick.status_report import (
    HoleLine,
    LeaseOutcome,
    StatusReport,
    TrainerLine,
)
from milp.answer import PlanStatus

Generations = Sequence[tuple[AssignmentFile, GenerationEnding | None]]
"""A trainer's generations and how they ended, the oldest first."""

MOST_GENERATIONS = 12
"""Generations of a trainer that are shown, the newest ones."""


MOST_OUTCOMES = 6
"""Leases whose forecast is compared with their end, the last ones."""


def explain_and_show(
    context: CliContext, config: Path | None, trainer: str | None, *, as_json: bool
) -> None:
    """Explain the plan for *trainer*; without it for all, and for every hole."""
    state = StateDir(context.site(config).state_directory)
    if as_json:
        record = explain_record(*_facts(context, state, trainer, is_detailed=True))
        write_out(context, json_text(record, allow_nan=False))
    else:
        print_out(context, explanation(context, state, trainer))


def explanation(
    context: UserContext, state: StateDir, trainer: str | None
) -> RenderableType:
    """Return the explanation for *trainer*, or for all and for every hole.

    Raises:
        FreeTrainError: There is no such trainer, or the state cannot be read.
    """
    is_detailed = trainer is not None
    view, generations, learned = _facts(
        context, state, trainer, is_detailed=is_detailed
    )
    parts: list[RenderableType] = []
    for standing in view.standings:
        name = standing.row.name
        lines = _trainer_lines(standing, view, generations[name], learned.get(name))
        parts.append(_joined([*lines]))
    return Group(*parts, *([] if is_detailed else [_holes_screen(view)]))


def _facts(
    context: UserContext, state: StateDir, trainer: str | None, *, is_detailed: bool
) -> tuple[Overview, dict[str, Generations], dict[str, TrainerCurves]]:
    now_s, uid = context.now_s(), context.uid
    view = overview(state, name=trainer, uid=uid, now_s=now_s, ended=False)
    most = MOST_GENERATIONS if is_detailed else 0
    names = [standing.row.name for standing in view.standings]
    generations: dict[str, Generations] = {
        name: generation_history(state.trainer(name), most=most) for name in names
    }
    known = curves_of(state, name=trainer, uid=uid) if is_detailed else ()
    return view, generations, {each.name: each for each in known}


def _trainer_lines(
    trainer: TrainerStatus,
    view: Overview,
    generations: Generations,
    curves: TrainerCurves | None,
) -> Iterator[str]:
    """Yield why *trainer* has its nodes, its progress, and its last generations.

    *curves* is None to leave the progress out.
    """
    yield from _state_lines(trainer, view)
    if curves is not None:
        yield from _learned_lines(curves)
    happened = sorted(
        event for made, ending in generations for event in _events(made, ending)
    )
    for at_s, generation, text in happened:
        when = f"{clock_text(at_s)} ({ago(at_s, view.now_s)})"
        yield f"{when}: generation {generation} {text}"


def _state_lines(trainer: TrainerStatus, view: Overview) -> Iterator[str]:
    name = trainer.row.name
    age = age_text(view.now_s - trainer.since_s)
    yield f"{name} is {trainer.doing}, for {age} now."
    why = reason_of(trainer, view)
    line = view.of_trainer(name)
    is_wanted = trainer.is_wanted and trainer.ended_s is None
    if why:
        yield f"Why: {why}"
    elif is_wanted and line is not None and line.reason:
        yield f"Why: {line.reason}."
    if is_wanted and line is not None:
        yield from _counts(trainer, line)
        if view.report is not None and trainer.nodes == line.planned_nodes:
            yield from _limit_lines(trainer, line, view.report)
        yield from _rating(line, view)
        if view.report is not None and line.node_names:
            yield from _forecast_lines(view.report, view.now_s, trainer=line)
    elif is_wanted and trainer.doing is Doing.WAITING:
        yield "No tick has seen it yet; `freetrain cron show` tells what makes ticks."
    yield from (f"{text[:1].upper()}{text[1:]}" for text in aim_lines(trainer, view))
    if trainer.pack is not None:
        yield f"It is a pack: {pack_line(trainer.pack)}."
        yield from member_lines(trainer.pack)
    if is_wanted and view.report is not None and view.is_tick_missing:
        yield "No tick for ten minutes or more: nothing changes without one."


def _counts(trainer: TrainerStatus, line: TrainerLine) -> Iterator[str]:
    job = None if trainer.job is None else trainer.job.without_sizes(trainer.left_out)
    sizes = _sizes(() if job is None else job.nodes.sizes)
    yield (
        f"Nodes: {trainer.nodes} now, {line.planned_nodes} planned; "
        f"{line.usable_nodes} meet its requirement; it can use {sizes}."
    )
    newer = trainer.generation - line.generation
    if newer > 0:
        what = f"{newer} newer generation{'' if newer == 1 else 's'}"
        yield f"The last tick did not know of {what} yet."


def _limit_lines(
    trainer: TrainerStatus, line: TrainerLine, report: StatusReport
) -> Iterator[str]:
    """Yield what keeps a trainer that runs as planned from more nodes."""
    if line.reason != TrainerReason.AS_PLANNED:
        return
    now, larger, free = line.planned_nodes, line.larger_nodes, line.free_nodes
    if line.sizes and now >= line.sizes[-1]:
        by = "" if trainer.left_out else ", by [nodes] of its job file"
        yield f"More: {now} are the most that it can use{by}."
    if not larger:
        return
    if free < larger - now:
        yield (
            f"More: its next size, {larger}, takes {larger - now} more that are idle "
            f"and meet its requirement; there {'is' if free == 1 else 'are'} "
            f"{free or 'none'}."
        )
        yield from _unusable_lines(report)
        return
    left = f"More: {nodes_text(free)} would be left for it, and a change to {larger}"
    if line.pays_after_s is None:
        yield f"{left} is not expected to make it faster."
    elif report.is_by_lives:
        yield f"{left} gains too little for as long as nodes are expected to stay."
    elif line.pays_after_s >= report.t_fwd_s:
        after, over = map(render_duration, (line.pays_after_s, report.t_fwd_s))
        yield f"{left} makes up for its pause after {after}; a plan counts {over}."


def _unusable_lines(report: StatusReport) -> Iterator[str]:
    """Yield how many idle nodes cannot be planned with, by the reason."""
    whys = Counter(hole.refusal for hole in report.holes if hole.refusal)
    if whys:
        counts = (f"{count}, as {why}" for why, count in whys.most_common())
        yield f"Idle, but not to be planned with: {'; '.join(counts)}."
    if report.limit:
        yield f"Slurm's limit: {report.limit}."


def _sizes(sizes: Sequence[int]) -> str:
    if not sizes:
        return "none"
    if sizes == tuple(range(sizes[0], sizes[-1] + 1)):
        return f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else str(sizes[0])
    return ", ".join(map(str, sizes))


def _rating(line: TrainerLine, view: Overview) -> Iterator[str]:
    if line.rating and view.report is not None:
        last = " It gets only what the others leave." if line.is_background else ""
        yield f"Rated by {view.report.priority}: {line.rating}.{last}"


def _learned_lines(curves: TrainerCurves) -> Iterator[str]:
    yield from speed_lines(curves)
    if not curves.measured:
        yield (
            f"No {curves.metric} was read by a tick so far. [quality] metric of the "
            f"job file says which value counts."
        )
    else:
        yield from forecast_lines(curves)
    yield from bad_line_lines(curves)


def _events(
    made: AssignmentFile, ending: GenerationEnding | None
) -> Iterator[tuple[float, int, str]]:
    """Yield when a generation was made and when it ended: time, number and text."""
    where = nodes_named(member.node for member in made.members) or "no nodes"
    said = f"on {where}, by {author_text(made.author)}: {made.reason}"
    yield made.created_s, made.generation, said
    if ending is not None:
        why = f": {ending.message}" if ending.message else ""
        yield ending.ended_s, ending.generation, f"{_ending_text(ending)}{why}"


def _ending_text(ending: GenerationEnding) -> str:
    """Return how a generation ended, with its steps where the program reported any."""
    step = f", step {ending.step:,}" if ending.step else ""
    committed = f", committed {ending.committed_step:,}"
    return f"{ending.words}{step}{committed if ending.committed_step else ''}"


def _holes_screen(view: Overview) -> RenderableType:
    """Return the uses of the last tick's holes, and the state of the tick itself."""
    report, now_s = view.report, view.now_s
    if report is None:
        why = view.problem or "No tick has looked at Slurm so far"
        return _joined(["", f"{why.rstrip('.')}. `freetrain holes` looks now."])
    outcomes = _forecast_outcomes(report, now_s)
    if not report.holes:
        return _joined(["", *outcomes, *_tick_lines(report, now_s), "It saw no hole."])
    lines = [*_forecast_lines(report, now_s), *outcomes, *_tick_lines(report, now_s)]
    return Group("", _holes_table(report, now_s), "", _joined(lines))


def _holes_table(report: StatusReport, now_s: float) -> Table:
    together: dict[tuple[str, ...], list[HoleLine]] = defaultdict(list)
    for hole in report.holes:
        together[hole.used_for, _end(hole, now_s)].append(hole)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 2, 0, 0))
    table.add_column("holes", justify="right", no_wrap=True)
    for heading in ("which", "used for", "they end"):
        table.add_column(heading, overflow="fold")
    for (used_for, end), holes in together.items():
        which = nodes_named(dict.fromkeys(hole.node for hole in holes))
        cells = (str(len(holes)), which, one_line(used_for), one_line(end))
        table.add_row(*map(Text, cells))
    return table


def _end(hole: HoleLine, now_s: float) -> str:
    by = f"{hole.ends_by} {hole.blocker}".strip()
    if hole.end_s is None:
        return by
    left_s = hole.end_s - now_s
    return f"{_when(left_s)}: {by}"


def _when(left_s: float) -> str:
    return f"in {short_age(left_s)}" if left_s >= 0.0 else f"{short_age(-left_s)} ago"


def _tick_lines(report: StatusReport, now_s: float) -> list[str]:
    torn = ", during backfill" if report.is_torn else ""
    where = (
        f"partition {report.partition} of {report.cluster}, mode {report.mode}{torn}"
    )
    when = f"{ago(report.at_s, now_s)} ({clock_text(report.at_s)})"
    lines = [f"Seen {when} in {where}."]
    if report.forecaster:
        lines.append(f"How long nodes stay is predicted by {report.forecaster}.")
    if report.held_back:
        lines.append(f"No more leases are asked for: {report.held_back}.")
    if report.paused_until_s is not None:
        lines.append(f"Paused until {clock_text(report.paused_until_s)}.")
    return [*lines, *plan_lines(report), *report.problems]


def plan_lines(report: StatusReport) -> Iterator[str]:
    """Yield the gap of the last plan to its bound; nothing without a plan."""
    is_wanted = any(trainer.state == TrainerState.WANTED for trainer in report.trainers)
    if report.planner_gap is None or not is_wanted:
        return
    lives = "by how long nodes are expected to stay"
    counted = f"counted {lives if report.is_by_lives else 'as if every node stayed'}"
    if report.planner == PlanStatus.PROVEN:
        yield f"The plan is proven to be the best, {counted}."
    else:
        stays = " that stays" if report.planner == PlanStatus.KEPT else ""
        most = gap_percent(report.planner_gap)
        yield f"The plan{stays} is at most {most} below the best, {counted}."
    if report.planner_reason:
        yield f"Of the plan: {report.planner_reason.rstrip('.')}."


def _forecast_lines(
    report: StatusReport, now_s: float, *, trainer: TrainerLine | None = None
) -> Iterator[str]:
    """Yield the forecasts of *trainer*'s nodes or pieces of them, or of every hole.

    Equal ones share a line.
    """
    alike: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    forecasts, whole = [], {}
    for hole in report.holes:
        if hole.expected is None or not _is_of(trainer, hole):
            continue
        forecasts.append(hole.expected)
        if not hole.piece:
            whole[hole.node] = hole.expected
        gpu = hole.piece.rpartition("#")[2]
        unit = "GPU" if gpu else "node"
        text = _forecast_text(hole.expected, now_s, unit=unit)
        alike[text][f"GPU {gpu} of " if gpu else ""].append(hole.node)
    for text, names in alike.items():
        which = (f"{of}{nodes_named(nodes)}" for of, nodes in names.items())
        yield f"Expected of {', '.join(which)}: {text}"
    if trainer is None:
        yield from _neighbour_lines(whole)
    if any(forecast.is_learning for forecast in forecasts):
        yield "Too little was seen of these nodes so far to plan by that."


def _is_of(trainer: TrainerLine | None, hole: HoleLine) -> bool:
    """Tell whether *hole* is one of *trainer*'s; any is where that is None."""
    if trainer is None:
        return True
    is_there = hole.node in trainer.node_names
    return is_there and (not hole.piece or hole.trainer == trainer.name)


def _forecast_text(forecast: NodeForecast, now_s: float, *, unit: str) -> str:
    odds = (
        f"{per_cent(forecast.leaves)} to leave within {short_age(forecast.horizon_s)}"
    )
    stays = f"as likely as not to stay {short_age(forecast.even_s)} or longer"
    parts = [
        odds,
        stays if forecast.even_s else "more likely than not gone in a minute",
    ]
    if forecast.together > 1:
        parts.append(f"together with {counted(forecast.together - 1, unit)} more")
    if forecast.run > 1:
        times = f"{forecast.times_in_line:.1f} times as likely as others"
        parts.append(f"for its place in line {times}")
    if forecast.promised_s is not None:
        left_s = forecast.promised_s - now_s
        when = f"in {short_age(left_s)}" if left_s >= 0.0 else "now, which is overdue"
        parts.append(f"promised to another job {when}")
    return "; ".join(parts) + "."


def _neighbour_lines(forecasts: Mapping[str, NodeForecast]) -> Iterator[str]:
    """Yield which nodes are expected to go first for their place among neighbours."""
    in_runs = {node: each for node, each in forecasts.items() if each.run > 1}
    if not in_runs:
        return
    run = max(each.run for each in in_runs.values())
    yield f"Neighbours by name leave together here, up to {nodes_text(run)} in a row."
    times = {node: each.times_in_line for node, each in in_runs.items()}
    first, last = max(times.values()), min(times.values())
    if first > last:
        ends = (
            nodes_named(node for node, value in times.items() if value == end)
            for end in (first, last)
        )
        yield "For their place among them {} are expected first, {} last.".format(*ends)


def _forecast_outcomes(report: StatusReport, now_s: float) -> list[str]:
    """Return how forecasts turned out, for leases, promises and neighbours."""
    leases = [_outcome_text(lease, now_s) for lease in report.came[:MOST_OUTCOMES]]
    return [*leases, *map(_promise_text, report.promises), *_leaf_lines(report)]


def _outcome_text(lease: LeaseOutcome, now_s: float) -> str:
    lived = short_age(lease.ended_s - lease.at_s)
    odds = f"{per_cent(lease.leaves)} to leave within {short_age(lease.horizon_s)}"
    promise = ""
    if lease.promised_s is not None:
        promise = f", promised away at {clock_text(lease.promised_s)}"
    return (
        f"{ago(lease.ended_s, now_s)}: the lease on {lease.node} was over after "
        f"{lived} ({lease.came}); expected were {odds}{promise}."
    )


def _promise_text(promise: DelayInterval) -> str:
    return (
        f"Of {nodes_text(promise.nodes)} promised {short_age(promise.lead_s)} ahead or "
        f"more, {per_cent(promise.early)} left early and {per_cent(promise.late)} "
        f"late; eight of ten between {_after(promise.low_s)} and "
        f"{_after(promise.high_s)}, half by {_after(promise.middle_s)}."
    )


def _after(seconds: float) -> str:
    return f"{short_age(abs(seconds))} {'early' if seconds < 0.0 else 'late'}"


def _leaf_lines(report: StatusReport) -> Iterator[str]:
    if report.leaves and report.leaf_rate is not None:
        yield (
            f"Slurm reports {report.leaves} leaf switches or blocks: two idle nodes "
            f"below one are taken to leave together {per_cent(report.leaf_rate)} of "
            f"the times that either leaves."
        )


def _joined(lines: Sequence[str]) -> Text:
    return Text("\n".join(map(one_line, lines)), overflow="fold")


def explain_record(
    view: Overview,
    generations: Mapping[str, Generations],
    learned: Mapping[str, TrainerCurves],
) -> dict[str, Any]:
    """Return the record of ``--json``; values that no tick reported are empty."""
    report = view.report
    return {
        "now_s": view.now_s,
        "at_s": None if report is None else report.at_s,
        "problems": list(report.problems) if report else [],
        "limit": report.limit if report else "",
        "priority": report.priority if report else "",
        "forecaster": (report.forecaster if report else "") or None,
        "plan": None
        if report is None
        else {
            "outcome": report.planner,
            "reason": report.planner_reason,
            "gap": report.planner_gap,
            "is_by_lives": report.is_by_lives,
        },
        "trainers": [
            {
                "name": trainer.row.name,
                "doing": str(trainer.doing),
                "reason": reason_of(trainer, view),
                "tick": view.of_trainer(trainer.row.name),
                "learned": None
                if (known := learned.get(trainer.row.name)) is None
                else forecast_record(known),
                "pack": None if trainer.pack is None else pack_record(trainer.pack),
                "generations": [
                    _generation_record(made, ending)
                    for made, ending in generations[trainer.row.name]
                ],
            }
            for trainer in view.standings
        ],
        "holes": report.holes if report else (),
        "leases": report.leases if report else (),
        "came": report.came if report else (),
        "promises": report.promises if report else (),
        "leaves": report.leaves if report else 0,
        "leaf_rate": report.leaf_rate if report else None,
    }


def _generation_record(
    made: AssignmentFile, ending: GenerationEnding | None
) -> dict[str, Any]:
    return {
        "generation": made.generation,
        "created_s": made.created_s,
        "author": made.author,
        "reason": made.reason,
        "nodes": [member.node for member in made.members],
        "ending": ending,
    }


# freetrain curves


def show_tried(
    context: CliContext, config: Path | None, file: Path, *, as_json: bool
) -> None:
    """Show what is understood of the progress files of a job, or of one file.

    Raises:
        BadDataError: Nothing is.
    """
    job = job_to_try(context.cwd / file, named=str(file), home=context.home)
    folder = StateDir(context.site(config).state_directory).trainer(job.name)
    survey = survey_of(job, run_dir_of(job, folder).path, logs_of(job, folder))
    if as_json:
        write_out(context, json_text(survey_record(survey), allow_nan=False))
    else:
        write_out(context, survey_text(survey, job))
    if not survey.records:
        raise BadDataError(f"{shown(str(file))}: no progress was understood.")


def show_curves(  # noqa: PLR0913 - one parameter an option
    context: CliContext,
    config: Path | None,
    trainer: str | None,
    *,
    out: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Show curves and forecasts of *trainer*, or of all; draw them in *out*."""
    state = StateDir(context.site(config).state_directory)
    all_curves = curves_of(state, name=trainer, uid=context.uid)
    if out is not None:
        from freetrain.report.curves import render_page  # noqa: PLC0415 - Plotly

        write_file(context.cwd / out, render_page(all_curves).encode(), force=force)
    if as_json:
        write_out(context, json_text(curves_record(all_curves), allow_nan=False))
        return
    print_out(context, _curves_screen(all_curves))
    if out is not None:
        write_out(context, f"\nDrawn in {out}.\n")


MEASURED_ROWS = 8
AHEAD = (1.1, 1.25, 1.5, 2.0)
"""Times the work done at which a forecast is shown."""

DIVERGING = (
    "It is diverging: its last values are no numbers, or far worse than its best. "
    "Priorities that look at losses give it what others leave."
)
_FEW = 1e3
_MANY = 1e7


def _curves_screen(all_curves: Sequence[TrainerCurves]) -> RenderableType:
    """Return the curves of each trainer, for a console of any width."""
    if not all_curves:
        return Text("No trainer is there that is not over.")
    parts: list[RenderableType] = []
    for curves in all_curves:
        parts += ["", *_curve_parts(curves)] if parts else list(_curve_parts(curves))
    return Group(*parts)


def _curve_parts(curves: TrainerCurves) -> Iterator[RenderableType]:
    yield _line(f"{curves.name}: {curves.metric}, where {curves.better} is better")
    if not curves.measured:
        for text in ("No value was read by a tick so far.", *bad_line_lines(curves)):
            yield _line(text)
        return
    yield _values_table(curves)
    if curves.is_diverging:
        yield _line(DIVERGING)
    for text in (
        *forecast_lines(curves),
        *speed_lines(curves),
        *bad_line_lines(curves),
    ):
        yield _line(text)


def _line(text: str) -> Text:
    return Text(one_line(text), overflow="fold")


def _values_table(curves: TrainerCurves) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for heading in (curves.units, curves.metric, "range"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for point in _evenly(curves.measured):
        table.add_row(_amount(point.samples), f"{point.value:.4g}", "", "measured")
    if curves.loss_forecast is not None:
        for row in _ahead(curves.loss_forecast):
            table.add_row(*row)
    return table


def _evenly(points: Sequence[MetricPoint]) -> list[MetricPoint]:
    """Return ``MEASURED_ROWS`` of *points* at most, the first and last included."""
    if len(points) <= MEASURED_ROWS:
        return list(points)
    step = (len(points) - 1) / (MEASURED_ROWS - 1)
    return [points[round(k * step)] for k in range(MEASURED_ROWS)]


def _ahead(loss_forecast: FittedForecast) -> Iterator[tuple[str, str, str, str]]:
    done = loss_forecast.points[-1].samples
    for times in AHEAD:
        expected = loss_forecast.expected(times * done)
        within = f"{expected.low:.4g} to {expected.high:.4g}"
        yield _amount(times * done), f"{expected.value:.4g}", within, "expected"


def forecast_lines(curves: TrainerCurves) -> Iterator[str]:
    """Yield the fitted family and when each target is expected, a sentence a line."""
    if curves.loss_forecast is None:
        yield "Its values say nothing of what is to come."
        return
    odd = sum(not math.isfinite(point.value) for point in curves.measured)
    left_out = f", {odd} left out that are no numbers" if odd else ""
    yield (
        f"Forecast of {curves.metric}: {curves.loss_forecast.family}, fitted to "
        f"{len(curves.loss_forecast.points)} values{left_out}. "
        f"{range_sentence(curves.loss_forecast)}"
    )
    for aim in curves.aims:
        yield _aim_line(aim, curves)


def _aim_line(aim: Aim, curves: TrainerCurves) -> str:
    what = f"{aim.tier} at {aim.value:g}"
    if math.isinf(aim.work):
        return f"{what}: not expected to be reached."
    if aim.in_s == 0:
        return f"{what}: reached after {_amount(aim.work)} {curves.units}."
    when = "" if aim.in_s is None else f", {render_duration(aim.in_s)} of training away"
    return f"{what}: expected after {_amount(aim.work)} {curves.units}{when}."


def speed_lines(curves: TrainerCurves) -> Iterator[str]:
    """Yield the speeds that were measured, in one line."""
    if curves.speeds:
        speeds = (f"{_amount(s)} on {nodes_text(n)}" for n, s in curves.speeds)
        yield f"{curves.units.capitalize()} a second, measured: {', '.join(speeds)}."


def bad_line_lines(curves: TrainerCurves) -> Iterator[str]:
    """Yield how many lines were left out, in one line; nothing for none."""
    if curves.bad_lines:
        yield (
            f"Left out: {counted(curves.bad_lines, 'line')} of its progress that could "
            f"not be understood."
        )


def _amount(value: float) -> str:
    """Return an amount of work, or of work a second."""
    if value >= _MANY:
        return scaled(value)
    return f"{value:,.0f}" if value >= _FEW else f"{value:.4g}"


def curves_record(all_curves: Iterable[TrainerCurves]) -> list[dict[str, Any]]:
    """Return a record for each trainer; unknown values are null."""
    return [_curve_record(curves) for curves in all_curves]


def forecast_record(curves: TrainerCurves) -> dict[str, Any]:
    """Return the summary of *curves* and the forecast, without the measured values."""
    expected = None
    if curves.loss_forecast is not None:
        then = curves.loss_forecast.expected(
            AHEAD[0] * curves.loss_forecast.points[-1].samples
        )
        expected = {"value": then.value, "low": then.low, "high": then.high}
    return {
        "name": curves.name,
        "metric": curves.metric,
        "better": str(curves.better),
        "unit": curves.unit,
        "work": curves.work,
        "total": curves.total,
        "per_s": curves.per_s,
        "speeds": {str(nodes): speed for nodes, speed in curves.speeds},
        "is_diverging": curves.is_diverging,
        "family": curves.loss_forecast.family if curves.loss_forecast else None,
        "expected": expected,
        "siblings": len(curves.loss_forecast.guides) if curves.loss_forecast else 0,
        "aims": [_aim_record(aim) for aim in curves.aims],
        "bad_lines": curves.bad_lines,
    }


def _curve_record(curves: TrainerCurves) -> dict[str, Any]:
    forecast = curves.forecast
    return forecast_record(curves) | {
        "points": [
            {"t_s": p.t_s, "work": p.samples, "value": number_or_word(p.value)}
            for p in curves.measured
        ],
        "forecast": None
        if forecast is None
        else [
            {"work": work, "value": value, "low": _finite(low), "high": _finite(high)}
            for work, value, low, high in zip(
                forecast.work, forecast.values, forecast.low, forecast.high, strict=True
            )
        ],
    }


def _aim_record(aim: Aim) -> dict[str, Any]:
    return {
        "tier": aim.tier,
        "value": aim.value,
        "work": _finite(aim.work),
        "in_s": None if aim.in_s is None else _finite(aim.in_s),
        "is_expected": math.isfinite(aim.work),
    }


def _finite(value: float) -> float | None:
    """Return *value* for JSON; null where it is not finite."""
    return value if math.isfinite(value) else None
