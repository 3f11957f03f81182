"""A world for commands to run in: a clock that counts, streams that remember."""

import io
import itertools
from dataclasses import dataclass
from pathlib import Path

from freetrain.cli.app import main
from freetrain.cli.world import World


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command left behind."""

    code: int
    stdout: str
    stderr: str


def run(*words: str | Path, cwd: Path, is_terminal: bool = False) -> Ran:
    """Run ``freetrain`` with *words* in *cwd*."""
    ticks = itertools.count()
    stdout, stderr = io.StringIO(), io.StringIO()
    world = World(
        clock=lambda: float(next(ticks)),
        peak_rss_bytes=lambda: 123_456_789,
        stdout=stdout,
        stderr=stderr,
        is_terminal=is_terminal,
        cwd=cwd,
    )
    code = main([str(word) for word in words], world=world)
    return Ran(code, stdout.getvalue(), stderr.getvalue())


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
