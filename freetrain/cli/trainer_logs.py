"""``freetrain logs``: what a trainer's worlds or agents printed, in order.

A ``Follower`` reads the files of all generations and goes on as they grow; a
``Printer`` writes their lines, under a title for each file. Scheduler logs are another
thing: package ``logs`` reads them, for ``freetrain trace`` and replays.
"""

import codecs
import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from freetrain.cli.context import CliContext, json_text, write_out
from freetrain.client.trainers import LIVE, as_ended, find_trainer, job_of
from freetrain.errors import UsageError
from freetrain.launch.base import logs_of
from freetrain.progress import GrowingFile, log_files
from freetrain.state.database import read_store
from freetrain.state.files import (
    AssignmentFile,
    StateDir,
    TrainerDir,
    UnreadableFileError,
    generations,
    lease_name,
    read_assigned,
)
from freetrain.state.tables import TrainerRow, trainers
from freetrain.text import one_line

EVERY_S = 0.5


def show_logs(  # noqa: PLR0913 - one parameter an option
    context: CliContext,
    config: Path | None,
    name: str,
    *,
    follow: bool,
    generation: int | None,
    tail: int | None,
    agent: bool,
    as_json: bool,
    on_turn: Callable[[], object] = lambda: None,
) -> None:
    """Show what the worlds of the trainer *name* printed, or its agents.

    *on_turn* is called before each look for more.
    """
    state = StateDir(context.site(config).state_directory)
    row = _row(state, name, context)
    folder = state.trainer(row.name)
    if generation is not None:
        check_generation(folder, generation)
    follower = (
        Follower(partial(agent_sources, state, folder, generation))
        if agent
        else follower_of(state, row, generation)
    )
    printer = Printer(
        partial(write_out, context),
        is_terminal=context.is_out_terminal,
        as_json=as_json,
    )
    with suppress(KeyboardInterrupt):
        lines = new_lines(follower)
        for source, line in lines if tail is None else deque(lines, maxlen=tail):
            printer.show(source, line)
        while follow:
            on_turn()
            ended = as_ended(state, _row(state, name, context))
            has_ended = ended.state not in LIVE
            for source, line in new_lines(follower):
                printer.show(source, line)
            if has_ended:
                break
            context.sleep(EVERY_S)
    if printer.is_unused and tail != 0:
        context.stderr.write(f"{row.name} has printed nothing so far.\n")


def _row(state: StateDir, name: str, context: CliContext) -> TrainerRow:
    with read_store(state.path, uid=context.uid) as connection:
        return find_trainer(trainers(connection), name)


# The files that worlds and agents print to


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """A file that a world or an agent prints to, and its title for people."""

    generation: int
    title: str
    path: Path


def check_generation(folder: TrainerDir, generation: int) -> None:
    """Refuse a generation that a trainer never had.

    Raises:
        UsageError: It had none of that number.
        OSError: The folder cannot be read.
    """
    known = generations(folder.assignments)
    if generation not in known:
        newest = f"the newest is {known[-1]}" if known else "there is none so far"
        raise UsageError(
            f"{folder.path.name} has no generation {generation}; {newest}. Nothing "
            f"was shown."
        )


def world_sources(
    folder: TrainerDir, logs: Path, generation: int | None, *, titles: dict[int, str]
) -> list[Source]:
    """Return the logs of a trainer's worlds: of one generation, or of all.

    *titles* keeps their titles, so that pieces of one log have the same.
    """
    found = []
    for number, path in log_files(logs):
        if generation is None or number == generation:
            if number not in titles:
                titles[number] = _world_title(folder, number)
            found.append(Source(number, titles[number], path))
    return found


def _world_title(folder: TrainerDir, generation: int) -> str:
    try:
        members = read_assigned(folder, generation).members
    except (OSError, UnreadableFileError):
        members = ()
    where = ", ".join(member.node for member in members)
    named = f"{folder.path.name}, generation {generation}"
    return f"{named} on {where}" if where else named


def agent_sources(
    state: StateDir, folder: TrainerDir, generation: int | None
) -> list[Source]:
    """Return the logs of the agents of one generation.

    *generation* is None for the newest that runs, or ran, somewhere.
    """
    assigned = _assigned(folder, generation)
    if assigned is None:
        return []
    return [
        Source(
            assigned.generation,
            f"agent on {member.node} ({lease_name(member.key)})",
            state.lease(member.key).log,
        )
        for member in assigned.members
    ]


def _assigned(folder: TrainerDir, generation: int | None) -> AssignmentFile | None:
    if generation is not None:
        return read_assigned(folder, generation)
    for number in reversed(generations(folder.assignments)):
        found = read_assigned(folder, number)
        if found.members:
            return found
    return None


# Reading them, and printing their lines

_PIECE_BYTES = 1 << 16
_FOLLOWED = 8
"""A follower reads its last files again; older ones are complete."""

_LINE = re.compile(r"[^\n]*\n|[^\n]+")


class _Feed:
    """One file, read on from where reading stopped; characters are never cut in two.

    With *tail_bytes* it begins with the lines of so many bytes at the end.
    """

    def __init__(self, path: Path, *, tail_bytes: int | None = None) -> None:
        self._file = GrowingFile(path)
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._is_cut = tail_bytes is not None and self._file.leave_out(tail_bytes)

    def read(self) -> Iterator[str]:
        while piece := self._file.grow(_PIECE_BYTES)[0]:
            if self._is_cut:
                piece = piece.partition(b"\n")[2] or piece
                self._is_cut = False
            yield self._decode(piece)
            if not self._file.backlog_bytes:
                break


class Follower:
    """Reads files as they grow, and new files as they appear."""

    def __init__(
        self, sources: Callable[[], list[Source]], *, tail_bytes: int | None = None
    ) -> None:
        """Take the function that lists the files; it is called before each reading.

        With *tail_bytes* only the ends of the last files are read at first.
        """
        self._sources = sources
        self._tail_bytes = tail_bytes
        self._feeds: dict[Source, _Feed] = {}
        self._is_first = True

    def read(self) -> Iterator[tuple[Source, str]]:
        """Yield the new text, file by file, the older generations first."""
        found, tail = sorted(self._sources()), self._tail_bytes
        reads_all = self._is_first and tail is None
        for source in found if reads_all else found[-_FOLLOWED:]:
            if source not in self._feeds:
                tail_bytes = tail if self._is_first else None
                self._feeds[source] = _Feed(source.path, tail_bytes=tail_bytes)
            for text in self._feeds[source].read():
                yield source, text
        self._is_first = False


def follower_of(
    state: StateDir,
    row: TrainerRow,
    generation: int | None,
    *,
    tail_bytes: int | None = None,
) -> Follower:
    """Return a follower of a trainer's worlds: of one generation, or of all."""
    folder, job = state.trainer(row.name), job_of(row)
    printed = folder.logs if job is None else logs_of(job, folder)
    sources = partial(world_sources, folder, printed, generation, titles={})
    return Follower(sources, tail_bytes=tail_bytes)


def new_lines(follower: Follower) -> Iterator[tuple[Source, str]]:
    """Yield the new lines; the last one may lack its end."""
    for source, text in follower.read():
        for line in _LINE.findall(text):
            yield source, line


class Printer:
    """Writes lines of several files, under a title whenever the file changes."""

    def __init__(
        self, write: Callable[[str], object], *, is_terminal: bool, as_json: bool
    ) -> None:
        """Take the place to write to, and whether it is a terminal, or for JSON."""
        self._write = write
        self._is_terminal = is_terminal
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
            self._write(json_text({**record, "text": text}))
            self._last = source
            return
        if source != self._last:
            ended = "\n" if self._is_line_open else ""
            self._write(f"{ended}==> {one_line(source.title)} <==\n")
        self._last = source
        shown = harmless(text) if self._is_terminal else text
        self._is_line_open = not shown.endswith("\n")
        self._write(shown)


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
