"""Runs commands in this process: a clock that counts, streams that remember."""

import io
import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from freetrain.cli.app import main
from freetrain.cli.output import CliContext

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


def run(*words: str | Path, cwd: Path, **changes: Any) -> Ran:  # noqa: ANN401
    """Run ``freetrain`` with *words* in *cwd*, with *changes* to the context."""
    context = a_context(cwd, **changes)
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


def written(folder: Path) -> tuple[Path, Path]:
    """Write a small log and a trainers file into *folder*."""
    log, trainers = folder / "holes.csv", folder / "trainers.toml"
    log.write_text(HOLES)
    trainers.write_text(TRAINERS)
    return log, trainers
