"""``freetrain logs``: what a trainer printed."""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

import typer

from freetrain.cli import options
from freetrain.cli.context import CliContext
from freetrain.cli.output import json_text, write_out
from freetrain.client.change import find_trainer
from freetrain.client.status import (
    Follower,
    Source,
    WorldLogs,
    agent_sources,
    check_generation,
)
from freetrain.client.submit import LIVE, job_of
from freetrain.launch.request import logs_of
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
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Show what a trainer's program printed, generation by generation."""
    context: CliContext = ctx.obj
    request = LogRequest(
        state=StateDir(context.site(config).state_directory),
        name=name,
        generation=generation,
        of_agents=agent,
        tail=tail,
        follow=follow,
        as_json=as_json,
    )
    print_logs(request, context)


EVERY_S = 0.5
_LINE = re.compile(r"[^\n]*\n|[^\n]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRequest:
    """What is to be shown.

    Attributes:
        state: The state directory.
        name: The trainer.
        generation: Only this one; None for all.
        of_agents: Whether the agents' logs are meant.
        tail: Only so many last lines; None for all.
        follow: Whether to go on as it grows.
        as_json: Whether each line is to be an object.
    """

    state: StateDir
    name: str
    generation: int | None
    of_agents: bool
    tail: int | None
    follow: bool
    as_json: bool


def print_logs(request: LogRequest, context: CliContext) -> None:
    """Show what *request* asks for; following ends when the trainer has ended.

    Raises:
        UsageError: There is no such trainer, or no such generation.
        StoreError: The state cannot be read.
        OSError: A folder cannot be read.
    """
    row = _row(request, context)
    if request.generation is not None:
        folder = request.state.trainer(row.name)
        check_generation(folder, request.generation)
    follower = Follower(_sources(request, row))
    printer = Printer(context, as_json=request.as_json)
    with suppress(KeyboardInterrupt):
        for source, line in _last(request, _lines(follower)):
            printer.show(source, line)
        while request.follow:
            has_ended = _row(request, context).state not in LIVE
            for source, line in _lines(follower):
                printer.show(source, line)
            if has_ended:
                break
            context.sleep(EVERY_S)
    if printer.is_unused and request.tail != 0:
        context.stderr.write(f"{row.name} has printed nothing so far.\n")


class Printer:
    """Writes pieces of several files, and says whose they are as they change."""

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
        """Write *text*, which *source* printed."""
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
    """Return *text* with all but line breaks and tabs shown instead of done."""
    return "".join(
        char
        if char.isprintable() or char in "\n\t"
        else "\n"
        if char == "\r"
        else char.encode("unicode_escape").decode()
        for char in text.replace("\r\n", "\n")
    )


def _row(request: LogRequest, context: CliContext) -> TrainerRow:
    with read_store(request.state.path, uid=context.uid) as connection:
        return find_trainer(trainers(connection), request.name)


def _sources(request: LogRequest, row: TrainerRow) -> Callable[[], Iterable[Source]]:
    state, generation = request.state, request.generation
    folder = state.trainer(row.name)
    if request.of_agents:
        return lambda: agent_sources(state, folder, generation=generation)
    job = job_of(row)
    logs = folder.logs if job is None else logs_of(job, folder)
    return WorldLogs(folder, logs, generation=generation)


def _lines(follower: Follower) -> Iterator[tuple[Source, str]]:
    """Yield what is new, cut after each line; the last one may lack its end."""
    for source, text in follower.read():
        for line in _LINE.findall(text):
            yield source, line


def _last(
    request: LogRequest, lines: Iterator[tuple[Source, str]]
) -> Iterator[tuple[Source, str]]:
    return lines if request.tail is None else iter(deque(lines, maxlen=request.tail))
