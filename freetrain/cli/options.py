"""Options that several verbs share: their types, help and ranges.

No ``from __future__ import annotations`` here and in the verbs: Typer reads the
annotations while the program runs.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer

from freetrain.planning.settings import POLICIES
from freetrain.text import parse_duration

POLICY_NAMES = tuple(POLICIES)

MethodName = Literal["recorded", "easy", "slurm"]
"""The values of ``logs.schedule.Method``, which takes long to import."""


FormatName = Literal["swf", "jobs-csv", "fragments"]
"""The names of ``logs.read.FORMATS`` that can be written; a test holds them equal."""


def duration_s(text: str) -> float:
    """Parse a duration such as ``20s``."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def above_zero(value: float | None) -> float | None:
    """Refuse what is not a finite number above 0."""
    if value is not None and not 0 < value < math.inf:
        raise typer.BadParameter(f"{value:g} is not a number above 0")
    return value


def above_zero_up_to(most: float) -> Callable[[float], float]:
    """Return what refuses a number that is not above 0 and at most *most*."""

    def check(value: float) -> float:
        if not 0 < value <= most:
            raise typer.BadParameter(
                f"{value:g} is not a number above 0 and up to {most:g}"
            )
        return value

    return check


def zero_or_more(value: float | None) -> float | None:
    """Refuse what is not a finite number of 0 or more."""
    if value is not None and not 0 <= value < math.inf:
        raise typer.BadParameter(f"{value:g} is not a number of 0 or more")
    return value


LogFile = Annotated[
    Path,
    typer.Argument(
        metavar="LOG",
        readable=False,  # whoever opens it finds out, and exits with 66
        help="SWF, sacct --parsable2, job CSV or idle intervals; plain or gzipped.",
    ),
]
SkipBad = Annotated[
    int,
    typer.Option(
        metavar="N", min=0, help="Pass over up to N bad lines, and say how many."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", metavar="", help="JSON for programs.")]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        readable=False,  # whoever opens it finds out, and exits with 66
        help="The site's freetrain.toml; without it the first one found.",
    ),
]
Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Trainers.")]
Force = Annotated[
    bool, typer.Option("--force", metavar="", help="Replace what --out names.")
]
OutFile = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Write there instead of to stdout."),
]
OutFolder = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Write summary, steps and report.html."),
]
ScheduleMethod = Annotated[
    MethodName,
    typer.Option(
        "--schedule",
        metavar="NAME",
        help="Who starts jobs: recorded (as the log says), easy or slurm (simulated).",
    ),
]
