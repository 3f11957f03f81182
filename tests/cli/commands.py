"""Runs commands in this process, in a user's folder with a configuration and a job.

A clock counts and streams remember. Also which verbs there are, and command lines as
documents show them.
"""

import io
import itertools
import json
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from typer.core import TyperCommand, TyperGroup

from freetrain.cli.app import LazyVerb, command_line, main
from freetrain.cli.context import CliContext
from freetrain.state.files import StateDir

NOW_S = 1_900_000_000.0


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command left behind."""

    code: int
    stdout: str
    stderr: str


class Terminal(io.StringIO):
    """A stream that somebody watches."""

    def isatty(self) -> bool:
        return True


def a_context(
    cwd: Path,
    **changes: Any,  # noqa: ANN401 - fields of CliContext
) -> CliContext:
    """Return a context in which an hour is no time, with *changes* to it."""
    ticks = itertools.count()
    outside: dict[str, Any] = {
        "clock": lambda: float(next(ticks)),
        "peak_rss_bytes": lambda: 123_456_789,
        "stdin": io.StringIO(),
        "stdout": io.StringIO(),
        "stderr": io.StringIO(),
        "is_terminal": False,
        "cwd": cwd,
        "environ": {"HOME": str(cwd), "PATH": os.defpath},
        "uid": os.getuid(),
        "now_s": lambda: NOW_S,
        "sleep": lambda _: None,
    }
    return CliContext(**(outside | changes))


def run(*words: str | Path, cwd: Path | None = None, **changes: Any) -> Ran:  # noqa: ANN401
    """Run ``freetrain`` with *words*, with *changes* to the context.

    *cwd* is the current folder unless it is given: in tests of commands an empty one.
    """
    context = a_context(cwd or Path.cwd(), **changes)
    code = main([str(word) for word in words], context=context)
    return Ran(code, text_of(context.stdout), text_of(context.stderr))


def text_of(stream: TextIO) -> str:
    """Return what was written to a stream of ``a_context``."""
    assert isinstance(stream, io.StringIO)
    return stream.getvalue()


HOLES = """\
node,idle_start_s,idle_end_s
0,0,7200
1,0,3600
1,5400,7200
2,600,7200
3,0,7200
"""

JOBS = """\
job,submit_s,start_s,run_s,nodes,req_s,user
a,0,0,600,2,1200,u1
b,0,0,300,1,600,u2
c,100,900,300,4,600,u1
"""

TRAINERS = """\
[[trainer]]
name = "small"
count = 3
every = "60s"
samples = 20_000
scaling = { "1" = 10.0, "2" = 18.0 }
fixed_nodes = 1
"""


def written() -> tuple[Path, Path]:
    """Write a small log and a trainers file into the current folder."""
    log, trainers = Path("holes.csv"), Path("trainers.toml")
    log.write_text(HOLES)
    trainers.write_text(TRAINERS)
    return log, trainers


JOB = """\
name = "digits"
command = ["python3", "train.py"]

[nodes]
max = 8
"""


def at_home(job: str = JOB, folder: Path | None = None) -> StateDir:
    """Write a configuration and a job file; return where the state will be."""
    folder = folder or Path.cwd()
    (folder / "freetrain.toml").write_text('state_directory = "state"\n')
    (folder / "job.toml").write_text(job)
    return StateDir(folder / "state")


def run_json(*words: str | Path, **changes: Any) -> Any:  # noqa: ANN401 - JSON
    """Return what a command shows with ``--json``."""
    ran = run(*words, "--json", **changes)
    assert ran.code == 0, ran.stderr
    return json.loads(ran.stdout)


def summary(folder: str) -> Any:  # noqa: ANN401 - JSON
    """Return the summary of a report that a replay wrote into *folder*."""
    return json.loads((Path(folder) / "summary.json").read_bytes())


def refused(*words: str, code: int, cwd: Path | None = None) -> str:
    """Return the one line with which a command refuses."""
    ran = run(*words, cwd=cwd)
    assert ran.code == code, ran.stderr
    assert ran.stdout == ""
    assert ran.stderr.count("\n") == 1
    return ran.stderr


def verbs() -> list[tuple[str, ...]]:
    """Return the words of every verb, hidden ones left out."""
    return sorted(words for words, verb in lazy_verbs() if not verb.hidden)


def lazy_verbs() -> Iterator[tuple[tuple[str, ...], TyperCommand]]:
    """Yield every verb as it stands before its module is imported, by its words."""
    yield from _verbs(command_line(), ())


def _verbs(
    group: TyperGroup, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], TyperCommand]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from _verbs(command, (*words, name))
        elif isinstance(command, TyperCommand):
            yield (*words, name), command


def _command(words: tuple[str, ...]) -> TyperCommand | TyperGroup:
    command: object = command_line()
    for word in words:
        assert isinstance(command, TyperGroup)
        command = command.commands[word]
    assert isinstance(command, TyperCommand | TyperGroup)
    return command.loaded if isinstance(command, LazyVerb) else command


def options(words: tuple[str, ...]) -> set[str]:
    """Return the long names of the options of one verb."""
    params = _command(words).params
    names = (name for param in params for name in param.opts + param.secondary_opts)
    return {name for name in names if name.startswith("--")}


def examples(words: tuple[str, ...]) -> list[str]:
    """Return the command lines that the help of one verb shows as examples."""
    shown = str(_command(words).epilog or "").splitlines()
    return [line for line in shown if line.startswith("freetrain ")]


def parse(line: str) -> None:
    """Parse *line* as the program would, without running it."""
    command: object = command_line()
    words = shlex.split(line)[1:]
    while isinstance(command, TyperGroup):
        command = command.commands[words.pop(0)]
    assert isinstance(command, TyperCommand)
    command.make_context("freetrain", words)
