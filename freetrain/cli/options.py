"""Options that several verbs share: their types, help and ranges.

No ``from __future__ import annotations`` here and in the verbs: Typer reads the
annotations while the program runs.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer

from freetrain.losscurve.outlook import Better
from freetrain.planning.settings import POLICIES, Solver
from freetrain.replay.settings import DEFAULT_PRIORITY, Accounting
from freetrain.text import parse_duration

POLICY_NAMES = tuple(POLICIES)

DEMO_POLICIES = ("freetrain", "equal", "scavenger", "static")
"""Those whose difference needs no page of its own to be understood."""

MethodName = Literal["recorded", "easy", "slurm"]
"""The values of ``logs.schedule.Method``, which takes long to import."""


FormatName = Literal["swf", "jobs-csv", "fragments"]
"""What ``trace convert`` can write."""


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


def known_policies(values: list[str] | None) -> list[str]:
    """Refuse a policy that does not exist; name each one once."""
    for value in values or ():
        if value not in POLICY_NAMES:
            known = ", ".join(POLICY_NAMES)
            raise typer.BadParameter(f"there is no policy {value!r}; choose of {known}")
    return list(dict.fromkeys(values or POLICY_NAMES))


def _complete_policy(incomplete: str) -> list[str]:
    return [name for name in POLICY_NAMES if name.startswith(incomplete)]


MaybeLogFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="[LOG]",
        readable=False,  # whoever opens it finds out, and exits with 66
        help="A log as `freetrain trace info` reads it; or --pool.",
    ),
]
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
Trainers = Annotated[
    str,
    typer.Option(metavar="SET", help="hps, imagenet, quality:N or a TOML file."),
]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="NAME",
        help="freetrain, lookahead (takes longer than the rest together), equal, "
        "scavenger or static; repeat to compare.",
        callback=known_policies,
        autocompletion=_complete_policy,
        show_default="all",
    ),
]
Priorities = Annotated[
    list[str] | None,
    typer.Option(
        "--priority",
        metavar="NAME",
        help="Who deserves nodes: throughput, speedup, weight, fair, slaq and others "
        "(docs/quality.md); repeat to compare.",
        show_default=DEFAULT_PRIORITY,
    ),
]
PrioritySettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of the priorities that have it, as priority_settings of "
        "freetrain.toml, such as horizon_s=600; repeat for more.",
    ),
]
Against = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="A priority or policy that the others are held against, losers named.",
    ),
]
PoolNodes = Annotated[
    int | None,
    typer.Option(
        "--pool", metavar="N", min=1, help="N nodes of its own instead of a log."
    ),
]
Load = Annotated[
    float,
    typer.Option(
        metavar="X",
        help="quality:N: work that arrives, over what the nodes can do.",
        callback=above_zero,
    ),
]
Curves = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        readable=False,  # whoever opens it finds out, and exits with 66
        help="Trainers that are drawn: quality curves to draw from.",
        show_default="the recorded ones",
    ),
]
BetterValues = Annotated[
    Better,
    typer.Option(
        metavar="WHICH", help="--curves: whether higher or lower values are good."
    ),
]
EveryS = Annotated[
    float | None,
    typer.Option(
        "--every",
        metavar="S",
        help="Ask the policy at least this often, in seconds.",
        show_default="60 where ratings change with time",
        callback=above_zero,
    ),
]
AccountingName = Annotated[
    Accounting,
    typer.Option(
        "--accounting",
        metavar="NAME",
        help="How costs count: real, or published (as the paper's scripts), "
        "published+c.",
    ),
]
SolverName = Annotated[
    Solver,
    typer.Option(
        "--solver",
        metavar="NAME",
        help="What finds the plan: exact, cbc or highs (an extra to install).",
    ),
]
Nodes = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, help="The first N nodes only.", show_default="all"
    ),
]
StartS = Annotated[
    float,
    typer.Option(
        "--start",
        metavar="S",
        help="Second of the log to begin at (see trace info).",
        callback=zero_or_more,
    ),
]
Days = Annotated[
    float | None,
    typer.Option(
        metavar="D",
        help="Days to replay.",
        show_default="to the end",
        callback=above_zero,
    ),
]
Parallel = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Trainers that may run at a time.",
        show_default="10; all of quality:N",
    ),
]
Requeue = Annotated[
    bool, typer.Option("--requeue", metavar="", help="Trainers that finish start over.")
]
Learned = Annotated[
    bool,
    typer.Option(
        "--learned",
        metavar="",
        help="freetrain and lookahead learn speeds from what trainers do, and believe "
        "no user.",
    ),
]
TFwdS = Annotated[
    float,
    typer.Option(
        "--t-fwd",
        metavar="S",
        help="Look-ahead of the planner, in seconds.",
        callback=above_zero,
    ),
]
CostFactor = Annotated[
    float,
    typer.Option(
        metavar="F",
        help="Multiplies the costs of changing nodes; 0 for none.",
        callback=zero_or_more,
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        metavar="N", min=0, help="Of what is drawn: the trainers of quality:N."
    ),
]
