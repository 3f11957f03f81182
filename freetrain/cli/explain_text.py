"""Why things are as they are, for people; every time both ways."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from freetrain.broker.decide import HoleReason
from freetrain.cli.aim_text import aim_lines
from freetrain.cli.curves_text import bad_line_lines, outlook_lines, speed_lines
from freetrain.cli.expected_text import came_text, expected_lines
from freetrain.cli.maker_text import maker_text
from freetrain.cli.node_names import nodes_named
from freetrain.cli.pack_text import member_lines, pack_line
from freetrain.cli.plan_text import plan_lines
from freetrain.cli.times import age_text, ago, clock_text, short_age
from freetrain.cli.why_text import reason_of
from freetrain.client.status import Doing
from freetrain.state.tables import TrainerState
from freetrain.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from freetrain.client.status import Chapter, Curves, Overview, Standing
    from freetrain.state.files import Ending
    from freetrain.tick.page import HoleLine, Page, TrainerLine


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
    learned = () if curves is None else _learned(curves)
    story = _story(chapters, seen.now_s)
    return _text([*_trainer(one, seen), *learned, *story])


def _learned(curves: Curves) -> Iterator[str]:
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


def _tick(page: Page, seen: Overview) -> list[str]:
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


def _table(page: Page, now_s: float) -> Table:
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
