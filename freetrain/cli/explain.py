"""``freetrain explain``: why a trainer has what it has, and why holes are empty."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from freetrain.broker.decide import HoleReason
from freetrain.cli import options
from freetrain.cli.curves import (
    bad_line_lines,
    outlook_lines,
    outlook_record,
    speed_lines,
)
from freetrain.cli.output import json_text, print_out, write_out
from freetrain.cli.wording import (
    age_text,
    ago,
    aim_lines,
    clock_text,
    maker_text,
    member_lines,
    nodes_named,
    nodes_text,
    pack_line,
    pack_record,
    reason_of,
    short_age,
)
from freetrain.client.status import (
    Chapter,
    Curves,
    Doing,
    Overview,
    Standing,
    curves_of,
    history,
    overview,
)
from freetrain.lookahead.base import Expected
from freetrain.lookahead.calibration import Interval
from freetrain.state.files import Ending, StateDir
from freetrain.state.tables import TrainerState
from freetrain.text import gap_percent, one_line, per_cent
from freetrain.tick.status_report import (
    HoleLine,
    LeaseOutcome,
    StatusReport,
    TrainerLine,
)
from milp.planner import Outcome

if TYPE_CHECKING:
    from freetrain.cli.context import CliContext

EXAMPLES = {
    "explain": """
freetrain explain digits

freetrain explain

freetrain explain --json
""",
}
MOST_CHAPTERS = 12


def explain(
    ctx: typer.Context,
    trainer: Annotated[
        str | None,
        typer.Argument(metavar="[TRAINER]", help="Without it all, and every hole."),
    ] = None,
    *,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Say why trainers have the nodes they have, and what holes are used for."""
    context: CliContext = ctx.obj
    state = StateDir(context.site(config).state_directory)
    now_s = context.now_s()
    seen = overview(state, name=trainer, uid=context.uid, now_s=now_s, ended=False)
    most = MOST_CHAPTERS if trainer is not None or as_json else 0
    chapters = {
        one.row.name: history(state.trainer(one.row.name), most=most)
        for one in seen.standings
    }
    is_asked = trainer is not None or as_json
    learned = _learned(state, trainer, uid=context.uid) if is_asked else {}
    if as_json:
        record = explain_record(seen, chapters, learned)
        write_out(context, json_text(record, allow_nan=False))
        return
    for one in seen.standings:
        name = one.row.name
        print_out(context, trainer_part(one, seen, chapters[name], learned.get(name)))
    if trainer is None:
        print_out(context, holes_part(seen))


def _learned(state: "StateDir", trainer: str | None, *, uid: int) -> dict[str, Curves]:

    return {one.name: one for one in curves_of(state, name=trainer, uid=uid)}


def trainer_part(
    one: Standing,
    seen: Overview,
    chapters: Sequence[Chapter],
    curves: Curves | None = None,
) -> RenderableType:
    """Return why *one* has what it has, and what became of it so far.

    Args:
        one: The trainer.
        seen: Everything there is to see.
        chapters: Its last generations.
        curves: What its own words say; None to leave that out.
    """
    learned = () if curves is None else _learned_lines(curves)
    story = _story(chapters, seen.now_s)
    return _text([*_trainer(one, seen), *learned, *story])


def _learned_lines(curves: Curves) -> Iterator[str]:
    yield from speed_lines(curves)
    if not curves.told:
        yield f"No {curves.metric} was read by a tick so far."
    else:
        yield from outlook_lines(curves)
    yield from bad_line_lines(curves)


def holes_part(seen: Overview) -> RenderableType:
    """Return what the holes of the last tick are used for, and its own state."""
    page = seen.page
    if page is None:
        why = seen.problem or "No tick has looked at Slurm so far"
        return _text(["", f"{why.rstrip('.')}. `freetrain holes` looks now."])
    came = came_text(page, seen.now_s)
    if not page.holes:
        return _text(["", *came, *_tick(page, seen), "It saw no hole."])
    said = [*expected_lines(page, seen.now_s), *came]
    return Group("", _table(page, seen.now_s), "", _text([*said, *_tick(page, seen)]))


def _text(lines: Sequence[str]) -> Text:
    return Text("\n".join(map(one_line, lines)), overflow="fold")


def _trainer(one: Standing, seen: Overview) -> Iterator[str]:
    name = one.row.name
    yield f"{name} is {one.doing}, for {age_text(seen.now_s - one.since_s)} now."
    why = reason_of(one, seen)
    line = seen.of_trainer(name)
    is_wanted = one.row.state is TrainerState.WANTED
    if why:
        yield f"Why: {why}"
    elif is_wanted and line is not None and line.reason:
        yield f"Why: {line.reason}."
    if is_wanted and line is not None:
        yield from _counts(one, line)
        yield from _rating(line, seen)
        yield from _expected(line, seen)
    elif is_wanted and one.doing is Doing.WAITING:
        yield "No tick has seen it yet; `freetrain cron show` tells what makes ticks."
    yield from (f"{said[:1].upper()}{said[1:]}" for said in aim_lines(one, seen))
    if one.pack is not None:
        yield f"It is a pack: {pack_line(one.pack)}."
        yield from member_lines(one.pack)
    if is_wanted and seen.page is not None and seen.is_tick_missing:
        yield "No tick for ten minutes or more: nothing changes without one."


def _rating(line: TrainerLine, seen: Overview) -> Iterator[str]:
    if line.rating and seen.page is not None:
        last = " It gets only what the others leave." if line.is_background else ""
        yield f"Rated by {seen.page.priority}: {line.rating}.{last}"


def _expected(line: TrainerLine, seen: Overview) -> Iterator[str]:
    if seen.page is not None and line.node_names:
        yield from expected_lines(seen.page, seen.now_s, nodes=set(line.node_names))


def _counts(one: Standing, line: TrainerLine) -> Iterator[str]:
    sizes = _sizes(() if one.job is None else one.job.nodes.sizes)
    yield (
        f"Nodes: {one.nodes} now, {line.planned_nodes} planned; {line.usable_nodes} "
        f"meet its requirement; it can use {sizes}."
    )
    newer = one.generation - line.generation
    if newer > 0:
        what = f"{newer} newer generation{'' if newer == 1 else 's'}"
        yield f"The last tick did not know of {what} yet."


def _sizes(sizes: Sequence[int]) -> str:
    if not sizes:
        return "none"
    if sizes == tuple(range(sizes[0], sizes[-1] + 1)):
        return f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else str(sizes[0])
    return ", ".join(map(str, sizes))


def _story(chapters: Sequence[Chapter], now_s: float) -> list[str]:
    """Return what happened, in the order in which it did."""
    happened = sorted(one for chapter in chapters for one in _happened(chapter))
    return [
        f"{clock_text(at_s)} ({ago(at_s, now_s)}): generation {number} {said}"
        for at_s, number, said in happened
    ]


def _happened(chapter: Chapter) -> Iterator[tuple[float, int, str]]:
    made, ending = chapter.assigned, chapter.ending
    where = nodes_named(member.node for member in made.members) or "no nodes"
    said = f"on {where}, by {maker_text(made.author)}: {made.reason}"
    yield made.created_s, made.generation, said
    if ending is not None:
        why = f": {ending.message}" if ending.message else ""
        yield ending.ended_s, ending.generation, f"{_how_it_ended(ending)}{why}"


def _how_it_ended(ending: Ending) -> str:
    """Return the steps too, of those that are known: some programs tell of none."""
    step = f", step {ending.step:,}" if ending.step else ""
    committed = f", committed {ending.committed_step:,}"
    return f"{ending.ended.words}{step}{committed if ending.committed_step else ''}"


def _tick(page: StatusReport, seen: Overview) -> list[str]:
    torn = ", during backfill" if page.is_torn else ""
    where = f"partition {page.partition} of {page.cluster}, mode {page.mode}{torn}"
    when = f"{ago(page.at_s, seen.now_s)} ({clock_text(page.at_s)})"
    lines = [f"Seen {when} in {where}."]
    if page.forecaster:
        lines.append(f"How long nodes stay is foretold by {page.forecaster}.")
    if page.held_back:
        lines.append(f"No more leases are asked for: {page.held_back}.")
    if page.paused_until_s is not None:
        lines.append(f"Paused until {clock_text(page.paused_until_s)}.")
    return [*lines, *plan_lines(page), *page.problems]


def _table(page: StatusReport, now_s: float) -> Table:
    together: dict[tuple[str, ...], list[HoleLine]] = defaultdict(list)
    for hole in page.holes:
        together[_what_for(hole), _end(hole, now_s)].append(hole)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 2, 0, 0))
    table.add_column("holes", justify="right", no_wrap=True)
    for heading in ("which", "used for", "they end"):
        table.add_column(heading, overflow="fold")
    for (what_for, end), holes in together.items():
        which = nodes_named(hole.node for hole in holes)
        cells = (str(len(holes)), which, one_line(what_for), one_line(end))
        table.add_row(*map(Text, cells))
    return table


def _what_for(hole: HoleLine) -> str:
    if hole.reason == HoleReason.TRAINING and hole.trainer:
        return hole.trainer
    why = hole.refusal or hole.brake
    empty = "nothing: " if hole.reason in _EMPTY else ""
    return f"{empty}{hole.reason}{f' ({why})' if why else ''}"


_EMPTY = {HoleReason.UNUSABLE, HoleReason.UNWANTED, HoleReason.HELD_BACK}


def _end(hole: HoleLine, now_s: float) -> str:
    by = f"{hole.ends_by} {hole.blocker}".strip()
    if hole.end_s is None:
        return by
    left_s = hole.end_s - now_s
    return f"{_when(left_s)}: {by}"


def _when(left_s: float) -> str:
    return f"in {short_age(left_s)}" if left_s >= 0.0 else f"{short_age(-left_s)} ago"


_MOST_CAME = 6


def expected_lines(
    page: StatusReport, now_s: float, *, nodes: Collection[str] | None = None
) -> Iterator[str]:
    """Yield what is expected of nodes, those alike in one line.

    Args:
        page: The last tick's.
        now_s: Unix time.
        nodes: Those to tell of; None for every hole.
    """
    told = [
        (hole.node, hole.expected)
        for hole in page.holes
        if hole.expected is not None and (nodes is None or hole.node in nodes)
    ]
    alike: dict[str, list[str]] = defaultdict(list)
    for node, expected in told:
        alike[_said(expected, now_s)].append(node)
    for said, names in alike.items():
        yield f"Expected of {nodes_named(names)}: {said}"
    if nodes is None:
        yield from _line(told)
    if any(expected.is_learning for _, expected in told):
        yield "Too little was seen of these nodes so far to plan by that."


def came_text(page: StatusReport, now_s: float) -> list[str]:
    """Return what came of leases that ended last, of promises, and of neighbours."""
    leases = [_came(one, now_s) for one in page.came[:_MOST_CAME]]
    return [*leases, *map(_promised, page.promises), *_leaves(page)]


def _said(one: Expected, now_s: float) -> str:
    odds = f"{per_cent(one.leaves)} to leave within {short_age(one.horizon_s)}"
    stays = f"as likely as not to stay {short_age(one.even_s)} or longer"
    parts = [odds, stays if one.even_s else "more likely than not gone in a minute"]
    if one.together > 1:
        parts.append(f"together with {nodes_text(one.together - 1)} more")
    if one.run > 1:
        times = f"{one.times_in_line:.1f} times as likely as others"
        parts.append(f"for its place in line {times}")
    if one.promised_s is not None:
        left_s = one.promised_s - now_s
        when = f"in {short_age(left_s)}" if left_s >= 0.0 else "now, which is overdue"
        parts.append(f"promised to somebody's job {when}")
    return "; ".join(parts) + "."


def _line(told: Sequence[tuple[str, Expected]]) -> Iterator[str]:
    """Yield which of all nodes go first, where they go by their place in line."""
    times = {node: one.times_in_line for node, one in told if one.run > 1}
    if not times:
        return
    run = max(one.run for _, one in told)
    yield f"Neighbours by name leave together here, up to {nodes_text(run)} in a row."
    first, last = max(times.values()), min(times.values())
    if first > last:
        ends = (
            nodes_named(node for node, one in times.items() if one == end)
            for end in (first, last)
        )
        yield "For their place among them {} are expected first, {} last.".format(*ends)


def _came(one: LeaseOutcome, now_s: float) -> str:
    lived = short_age(one.ended_s - one.at_s)
    said = f"{per_cent(one.leaves)} to leave within {short_age(one.horizon_s)}"
    promise = ""
    if one.promised_s is not None:
        promise = f", promised away at {clock_text(one.promised_s)}"
    return (
        f"{ago(one.ended_s, now_s)}: the lease on {one.node} was over after {lived} "
        f"({one.came}); expected were {said}{promise}."
    )


def _promised(one: Interval) -> str:
    return (
        f"Of {nodes_text(one.nodes)} promised {short_age(one.lead_s)} ahead or more, "
        f"{per_cent(one.early)} left early and {per_cent(one.late)} late; eight of "
        f"ten between {_after(one.low_s)} and {_after(one.high_s)}, half by "
        f"{_after(one.middle_s)}."
    )


def _leaves(page: StatusReport) -> Iterator[str]:
    if page.leaves and page.leaf_rate is not None:
        yield (
            f"Slurm tells {page.leaves} leaf switches or blocks: two idle nodes below "
            f"one are taken to leave together {per_cent(page.leaf_rate)} of the times "
            f"that either leaves."
        )


def _after(seconds: float) -> str:
    return f"{short_age(abs(seconds))} {'early' if seconds < 0.0 else 'late'}"


def plan_lines(page: StatusReport) -> Iterator[str]:
    """Yield how far the plan is from the best there can be; nothing without one."""
    is_wanted = any(one.state == TrainerState.WANTED for one in page.trainers)
    if page.planner_gap is None or not is_wanted:
        return
    lives = "by how long nodes are expected to stay"
    counted = f"counted {lives if page.is_by_lives else 'as if every node stayed'}"
    if page.planner == Outcome.PROVEN:
        yield f"The plan is proven to be the best, {counted}."
    else:
        stays = " that stays" if page.planner == Outcome.KEPT else ""
        most = gap_percent(page.planner_gap)
        yield f"The plan{stays} is at most {most} below the best, {counted}."
    if page.planner_reason:
        yield f"Of the plan: {page.planner_reason.rstrip('.')}."


def explain_record(
    seen: Overview,
    chapters: Mapping[str, Sequence[Chapter]],
    learned: Mapping[str, Curves],
) -> dict[str, Any]:
    """Return the reasons for everything; what no tick told is empty."""
    page = seen.page
    return {
        "now_s": seen.now_s,
        "at_s": None if page is None else page.at_s,
        "problems": list(page.problems) if page else [],
        "priority": page.priority if page else "",
        "forecaster": (page.forecaster if page else "") or None,
        "plan": None if page is None else _plan(page),
        "trainers": [
            {
                "name": one.row.name,
                "doing": str(one.doing),
                "reason": reason_of(one, seen),
                "tick": None
                if (line := seen.of_trainer(one.row.name)) is None
                else asdict(line),
                "learned": None
                if (known := learned.get(one.row.name)) is None
                else outlook_record(known),
                "pack": None if one.pack is None else pack_record(one.pack),
                "generations": [_chapter(c) for c in chapters[one.row.name]],
            }
            for one in seen.standings
        ],
        "holes": [asdict(hole) for hole in page.holes] if page else [],
        "leases": [asdict(lease) for lease in page.leases] if page else [],
        "came": [asdict(one) for one in page.came] if page else [],
        "promises": [asdict(one) for one in page.promises] if page else [],
        "leaves": page.leaves if page else 0,
        "leaf_rate": page.leaf_rate if page else None,
    }


def _plan(page: StatusReport) -> dict[str, Any]:
    return {
        "outcome": page.planner,
        "reason": page.planner_reason,
        "gap": page.planner_gap,
        "is_by_lives": page.is_by_lives,
    }


def _chapter(chapter: Chapter) -> dict[str, Any]:
    made, ending = chapter.assigned, chapter.ending
    return {
        "generation": made.generation,
        "created_s": made.created_s,
        "author": made.author,
        "reason": made.reason,
        "nodes": [member.node for member in made.members],
        "ending": None if ending is None else asdict(ending),
    }
