"""``freetrain top``: the trainers on a terminal, as they go, and keys to change them.

All that is shown comes from the functions behind ``freetrain status``, ``explain``,
``curves`` and ``logs``, and keys do what the verbs do; here are only the widgets.
Textual is an extra: nothing else may import this module.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import DataTable, Footer, Log, Sparkline, Static

from freetrain.cli.context import EXPECTED, CliContext, error_line, nodes_text
from freetrain.cli.explain import explanation, forecast_lines
from freetrain.cli.status import (
    EVERY_S,
    HEADINGS,
    TO_THE_RIGHT,
    broker_lines,
    reason_lines,
    trainer_row,
)
from freetrain.cli.submit import changed_text
from freetrain.cli.trainer_logs import EVERY_S as LOGS_EVERY_S
from freetrain.cli.trainer_logs import (
    Follower,
    Printer,
    Source,
    follower_of,
    new_lines,
)
from freetrain.client.curves import TrainerCurves, curves_of
from freetrain.client.status import Overview, TrainerStatus, overview
from freetrain.client.trainers import Verb, change
from freetrain.errors import UsageError
from freetrain.state.files import StateDir
from freetrain.text import one_line, scaled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rich.console import RenderableType

    from freetrain.state.tables import TrainerRow

MOST_LINES = 2_000
"""Lines of a log that are kept, the last ones."""
TAIL_BYTES = 1 << 18
"""Of each of the last logs, what is read of its end at first."""

KEYS = """\
Keys, for the trainer at the cursor:

  up, down    go to another trainer
  p           pause it: it commits, and leaves its nodes
  r           resume it, after a pause, a cancel or a failure
  e           why it has the nodes it has, and what happened to it
  l           what it prints: the last lines, and more as it prints it
  q           leave; trainers go on

  escape      back to the table

In the table "2 → 5" are nodes now and as planned, and "for" tells since when.
The curve runs over the work done; beside it stand its highest and lowest value.
"""

_BARS = 200
_OTHER_COLUMNS = 64
_SHORTEST_NAME = 16


def watch(context: CliContext, config: Path | None) -> None:
    """Show the trainers until the user quits.

    Raises:
        UsageError: There is no terminal.
        FreeTrainError: The state cannot be read.
    """
    if not context.can_ask:  # Textual draws on stderr
        raise UsageError(
            "`freetrain top` needs a terminal. Nothing was shown. `freetrain status` "
            "shows the same once."
        )
    top = Top(context, StateDir(context.site(config).state_directory))
    top.look()
    top.run()


class Top(App[None]):
    """The trainers, and the curve and the reasons of the one at the cursor."""

    ENABLE_COMMAND_PALETTE = False
    TITLE = "freetrain top"
    CSS = """
    #broker { height: auto; max-height: 4; }
    DataTable { height: auto; max-height: 50%; }
    #about { height: 1fr; border: round $primary; padding: 0 1; }
    #curve { height: 5; }
    #ends { width: auto; margin-right: 1; }
    Sparkline { width: 1fr; height: 5; }
    Sparkline > .sparkline--min-color { color: $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "change('pause')", "Pause"),
        Binding("r", "change('resume')", "Resume"),
        Binding("e", "explain", "Explain"),
        Binding("l", "logs", "Logs"),
        Binding("question_mark", "keys", "Keys"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
    ]

    def __init__(self, context: CliContext, state: StateDir) -> None:
        """Take whose trainers these are, and where they are."""
        super().__init__()
        self._user = context
        self._folder = state
        self._view: Overview | None = None
        self._curves: tuple[object, TrainerCurves | None] = (None, None)

    def compose(self) -> ComposeResult:
        """Yield what the broker does, the table, and what is known of one trainer."""
        yield Static(id="broker")
        yield DataTable[str | Text](cursor_type="row", zebra_stripes=True)
        with VerticalScroll(id="about"):
            yield Static(id="why")
            with Horizontal(id="curve"):
                yield Static(id="ends")
                yield Sparkline(summary_function=lambda bar: sum(bar) / len(bar))
            yield Static(id="forecast")
        yield Footer()

    def on_mount(self) -> None:
        """Show what is there, and look again and again."""
        self._table.focus()
        for heading in HEADINGS:
            self._table.add_column(_aligned(heading, heading), key=heading)
        self._refresh()
        self.set_interval(EVERY_S, self._refresh)

    @property
    def _table(self) -> DataTable[str | Text]:
        return self.query_one(DataTable)

    @property
    def _chosen(self) -> TrainerStatus | None:
        """The trainer at the cursor."""
        row = self._table.cursor_row
        trainers = () if self._view is None else self._view.standings
        return trainers[row] if row < len(trainers) else None

    def look(self) -> None:
        """Read the trainers anew; ask Slurm for nothing.

        Raises:
            FreeTrainError: They cannot be read.
        """
        self._view = overview(
            self._folder,
            name=None,
            uid=self._user.uid,
            now_s=self._user.now_s(),
            ended=False,
        )

    def _refresh(self) -> None:
        chosen = self._chosen
        try:
            self.look()
        except EXPECTED as error:
            self._put("#broker", f"Not read just now: {error_line(error)}")
            return
        view = self._view
        assert view is not None  # noqa: S101 - for mypy
        lines = [*broker_lines(view)]
        if not view.standings:
            lines.insert(0, "No trainer is there: `freetrain submit job.toml`.")
        if view.left_out:
            lines.append(
                f"{view.left_out} that ended earlier are left out; `freetrain status "
                f"--all` shows them."
            )
        self._put("#broker", "\n".join(map(one_line, lines)))
        self._fill(view, chosen)
        self._show_chosen()

    def _fill(self, view: Overview, chosen: TrainerStatus | None) -> None:
        """Put the trainers of *view* into the table; the cursor stays on *chosen*."""
        table = self._table
        names = [trainer.row.name for trainer in view.standings]
        if names != [str(key.value) for key in table.rows]:
            table.clear()
            for name in names:
                table.add_row(*("" for _ in HEADINGS), key=name)
            if chosen is not None and chosen.row.name in names:
                table.move_cursor(row=names.index(chosen.row.name))
        widest = max(_SHORTEST_NAME, self.screen.size.width - _OTHER_COLUMNS)
        for trainer in view.standings:
            first, *others = trainer_row(trainer, view)
            cells = (_shortened(str(first), widest), *others)
            for heading, cell in zip(HEADINGS, cells, strict=True):
                shown = _aligned(heading, cell)
                table.update_cell(trainer.row.name, heading, shown, update_width=True)

    def on_data_table_row_highlighted(self) -> None:
        """Show what is known of the trainer that the cursor came to."""
        self._show_chosen()

    def _show_chosen(self) -> None:
        chosen, view = self._chosen, self._view
        about = self.query_one("#about")
        about.display = chosen is not None
        if chosen is None or view is None:
            return
        about.border_title = Text(one_line(chosen.row.name))
        newest = chosen.worlds.newest
        where = ", ".join(member.node for member in newest.members) if newest else ""
        lines = [f"It is {chosen.doing}{f' on {where}' if where else ''}."]
        why = reason_lines(chosen, view)
        lines += (f"{text[:1].upper()}{text[1:]}" for text in why)
        self._put("#why", "\n".join(map(one_line, lines)))
        self._show_curve(self._curves_of(chosen, view))

    def _curves_of(
        self, trainer: TrainerStatus, view: Overview
    ) -> TrainerCurves | None:
        """Return the curves of *trainer*, which change with each tick alone."""
        at_s = None if view.report is None else view.report.at_s
        key = (trainer.row.name, trainer.row.submitted_s, at_s)
        if self._curves[0] != key:
            try:
                name, uid = trainer.row.name, self._user.uid
                found = next(iter(curves_of(self._folder, name=name, uid=uid)), None)
            except EXPECTED:  # the table says so
                return None
            self._curves = key, found
        return self._curves[1]

    def _show_curve(self, curves: TrainerCurves | None) -> None:
        points = [] if curves is None else _finite(curves)
        self.query_one("#curve").display = bool(points)
        self.query_one("#forecast").display = curves is not None and bool(points)
        if curves is None or not points:
            return
        low, high = (f"{of(value for _, value in points):.4g}" for of in (min, max))
        self._put("#ends", f"{high}\n\n\n\n{low}")
        self.query_one(Sparkline).data = _evenly(points)
        (begin, first), (end, last) = points[0], points[-1]
        seen = (
            f"{curves.metric}: {first:.4g} after {scaled(begin)} {curves.units}, "
            f"{last:.4g} after {scaled(end)}."
        )
        lines = map(one_line, (seen, *forecast_lines(curves)))
        self._put("#forecast", "\n".join(lines))

    def _put(self, where: str, text: str) -> None:
        self.query_one(where, Static).update(Text(text))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether a key counts: most do only where the table is seen."""
        del parameters
        is_of_table = action in {"change", "explain", "keys", "logs"}
        return not is_of_table or len(self.screen_stack) == 1

    def action_change(self, verb: str) -> None:
        """Pause or resume the trainer at the cursor; ask where a world would stop."""
        chosen = self._chosen
        if chosen is None:
            return
        name = chosen.row.name

        def go(is_sure: bool | None) -> None:  # noqa: FBT001 - Textual's call
            if is_sure:
                self._change(Verb(verb), name)

        if verb == Verb.PAUSE and chosen.nodes:
            where = nodes_text(chosen.nodes)
            self.push_screen(
                YesOrNo(f"Pause {name}? It commits and leaves {where}."), go
            )
        else:
            go(True)  # noqa: FBT003 - Textual's call

    def _change(self, verb: Verb, name: str) -> None:
        now_s, uid = self._user.now_s(), self._user.uid
        try:
            (changed,) = change(self._folder, verb, [name], now_s=now_s, uid=uid)
        except EXPECTED as error:
            self.notify(error_line(error), severity="error", markup=False)
        else:
            self.notify(changed_text(changed, verb), markup=False)
        self._refresh()

    def action_explain(self) -> None:
        """Show `freetrain explain` of the trainer at the cursor, or of all holes."""
        chosen = self._chosen
        name = None if chosen is None else chosen.row.name
        self._try_to_show(lambda: Reading(explanation(self._user, self._folder, name)))

    def action_logs(self) -> None:
        """Follow what the trainer at the cursor prints."""
        chosen = self._chosen
        if chosen is not None:
            row = chosen.row
            follower = follower_of(self._folder, row, None, tail_bytes=TAIL_BYTES)
            self.push_screen(Printed(row, follower))

    def _try_to_show(self, screen: Callable[[], Screen[None]]) -> None:
        try:
            self.push_screen(screen())
        except EXPECTED as error:
            self.notify(error_line(error), severity="error", markup=False)

    def action_keys(self) -> None:
        """Show what the keys do."""
        self.push_screen(Reading(Text(KEYS)))


def _aligned(heading: str, cell: str | Text) -> Text:
    text = cell.copy() if isinstance(cell, Text) else Text(cell)
    text.justify = "right" if heading in TO_THE_RIGHT else "left"
    return text


def _shortened(name: str, most: int) -> Text:
    """Return *name* without its middle: long names are often alike at both ends."""
    half = (most - 1) // 2
    return Text(name if len(name) <= most else f"{name[:half]}…{name[-half:]}")


def _finite(curves: TrainerCurves) -> list[tuple[float, float]]:
    """Return work and value of the measured points, in order of work."""
    points = ((point.samples, point.value) for point in curves.measured)
    return sorted(point for point in points if all(map(math.isfinite, point)))


def _evenly(points: list[tuple[float, float]]) -> list[float]:
    """Return values at ``_BARS`` places that are equally far apart in work."""
    import numpy as np  # noqa: PLC0415 - as everywhere

    work, values = zip(*points, strict=True)
    places = np.linspace(work[0], work[-1], _BARS)
    return [float(value) for value in np.interp(places, work, values)]


class YesOrNo(ModalScreen[bool]):
    """A question, answered by a key."""

    CSS = """
    YesOrNo { align: center middle; }
    YesOrNo > Static { width: 60; height: auto; padding: 1 2; border: thick $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "Yes"),
        Binding("n,escape", "dismiss(False)", "No"),
    ]

    def __init__(self, question: str) -> None:
        """Take the question, which ends with a full stop."""
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """Yield the question and its keys."""
        yield Static(Text(f"{self._question}\n\ny: yes    n: no"))


_BACK: list[BindingType] = [
    Binding("escape,e,l,question_mark", "app.pop_screen", "Back")
]


class Reading(Screen[None]):
    """A text to read."""

    BINDINGS: ClassVar[list[BindingType]] = _BACK

    def __init__(self, text: RenderableType) -> None:
        """Take the text."""
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """Yield the text and the keys."""
        with VerticalScroll():
            yield Static(self._text)
        yield Footer()


class Printed(Screen[None]):
    """What a trainer prints, as it prints it."""

    BINDINGS: ClassVar[list[BindingType]] = _BACK

    def __init__(self, row: TrainerRow, follower: Follower) -> None:
        """Take the trainer, and what reads its logs."""
        super().__init__()
        self._row = row
        self._follower = follower
        self._log = Log(max_lines=MOST_LINES)
        self._printer = Printer(self._log.write, is_terminal=True, as_json=False)

    def compose(self) -> ComposeResult:
        """Yield the lines and the keys."""
        yield self._log
        yield Footer()

    def on_mount(self) -> None:
        """Show the last lines, and go on until the screen is left."""
        self._log.border_title = self._row.name
        self.run_worker(self._follow())

    async def _follow(self) -> None:
        said = ""
        while True:
            try:
                # A file system may take its time, and keys and drawing must not wait.
                lines = await asyncio.to_thread(self._new_lines)
            except EXPECTED as error:
                lines, problem = deque(), error_line(error)
            else:
                problem = f"{self._row.name} has printed nothing so far."
            for source, line in lines:
                self._printer.show(source, line)
            if self._printer.is_unused and problem != said:
                self.notify(problem, markup=False)
                said = problem
            await asyncio.sleep(LOGS_EVERY_S)

    def _new_lines(self) -> deque[tuple[Source, str]]:
        return deque(new_lines(self._follower), maxlen=MOST_LINES)
