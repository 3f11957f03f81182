"""``freetrain logs``: what a trainer printed."""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Annotated

import typer

from freetrain.cli.context import AsJson, CliContext, Config, json_text, write_out
from freetrain.client.logs import (
    Follower,
    Source,
    WorldLogs,
    agent_sources,
    check_generation,
)
from freetrain.client.trainers import LIVE, find_trainer, job_of
from freetrain.launch.base import logs_of
from freetrain.state.database import read_store
from freetrain.state.files import StateDir
from freetrain.state.tables import TrainerRow, trainers
from freetrain.text import one_line

EXAMPLES = {
    "logs": """
freetrain logs digits --tail 50

freetrain logs -f digits

freetrain logs digits --generation 3 --agent
""",
}


EVERY_S = 0.5
_LINE = re.compile(r"[^\n]*\n|[^\n]+")


def logs(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The trainer.")],
    *,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", metavar="", help="Go on as it prints more."),
    ] = False,
    generation: Annotated[
        int | None,
        typer.Option(
            metavar="G", min=1, help="Only this one.", show_default="all of them"
        ),
    ] = None,
    tail: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, help="Only the last N lines.", show_default="all"
        ),
    ] = None,
    agent: Annotated[
        bool,
        typer.Option("--agent", metavar="", help="What its agents did instead."),
    ] = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show what a trainer's program printed, generation by generation."""
    context: CliContext = ctx.obj
    state = StateDir(context.site(config).state_directory)
    row = _row(state, name, context)
    folder = state.trainer(row.name)
    if generation is not None:
        check_generation(folder, generation)
    sources: Callable[[], Iterable[Source]]
    if agent:
        sources = partial(agent_sources, state, folder, generation=generation)
    else:
        job = job_of(row)
        printed = folder.logs if job is None else logs_of(job, folder)
        sources = WorldLogs(folder, printed, generation=generation)
    follower = Follower(sources)
    printer = Printer(context, as_json=as_json)
    with suppress(KeyboardInterrupt):
        lines = _new_lines(follower)
        for source, line in lines if tail is None else deque(lines, maxlen=tail):
            printer.show(source, line)
        while follow:
            has_ended = _row(state, name, context).state not in LIVE
            for source, line in _new_lines(follower):
                printer.show(source, line)
            if has_ended:
                break
            context.sleep(EVERY_S)
    if printer.is_unused and tail != 0:
        context.stderr.write(f"{row.name} has printed nothing so far.\n")


def _row(state: StateDir, name: str, context: CliContext) -> TrainerRow:
    with read_store(state.path, uid=context.uid) as connection:
        return find_trainer(trainers(connection), name)


def _new_lines(follower: Follower) -> Iterator[tuple[Source, str]]:
    """Yield what is new, cut after each line; the last one may lack its end."""
    for source, text in follower.read():
        for line in _LINE.findall(text):
            yield source, line


class Printer:
    """Writes lines of several files, under a title whenever the file changes."""

    def __init__(self, context: CliContext, *, as_json: bool) -> None:
        """Take where to write, and whether programs read it."""
        self._context = context
        self._as_json = as_json
        self._last: Source | None = None
        self._is_line_open = False

    @property
    def is_unused(self) -> bool:
        """Whether nothing was written so far."""
        return self._last is None

    def show(self, source: Source, text: str) -> None:
        """Write *text*, a line of *source*."""
        if self._as_json:
            record = {"generation": source.generation, "from": source.title}
            write_out(self._context, json_text({**record, "text": text}))
            self._last = source
            return
        if source != self._last:
            ended = "\n" if self._is_line_open else ""
            write_out(self._context, f"{ended}==> {one_line(source.title)} <==\n")
        self._last = source
        shown = harmless(text) if self._context.is_out_terminal else text
        self._is_line_open = not shown.endswith("\n")
        write_out(self._context, shown)


def harmless(text: str) -> str:
    """Return *text* with control characters but line breaks and tabs spelled out."""
    return "".join(
        char
        if char.isprintable() or char in "\n\t"
        else "\n"
        if char == "\r"
        else char.encode("unicode_escape").decode()
        for char in text.replace("\r\n", "\n")
    )
