"""Options of a replay with the broker in the loop.

No ``from __future__ import annotations`` here: Typer reads the annotations while the
program runs.
"""

from typing import Annotated

import typer

from freetrain.cli.options import above_zero, zero_or_more
from freetrain.replay.loop_settings import Mode

InTheLoop = Annotated[
    Mode | None,
    typer.Option(
        "--in-the-loop",
        metavar="MODE",
        help="Let a broker tick while --schedule easy or slurm starts jobs, which "
        "take its leases (preempt) or wait for them (yield).",
    ),
]
TickS = Annotated[
    float | None,
    typer.Option(
        "--tick",
        metavar="S",
        help="In the loop: seconds between two looks of the broker.",
        show_default="60, or 30 under yield",
        callback=above_zero,
    ),
]
LeadS = Annotated[
    float | None,
    typer.Option(
        "--lead",
        metavar="S",
        help="yield: the broker looks so long before multiples of --tick, at which "
        "backfill does.",
        show_default="5",
        callback=zero_or_more,
    ),
]
LastS = Annotated[
    float | None,
    typer.Option(
        "--last",
        metavar="S",
        help="yield: a last look so long before backfill's, where somebody waits and "
        "something has changed; none if not less than --lead.",
        show_default="3",
        callback=zero_or_more,
    ),
]
NoticeS = Annotated[
    float | None,
    typer.Option(
        "--notice",
        metavar="S",
        help="preempt: how long a job waits for our leases at most.",
        show_default="30",
        callback=zero_or_more,
    ),
]
CommitS = Annotated[
    float | None,
    typer.Option(
        "--commit",
        metavar="S",
        help="preempt: how long a trainer takes to commit and go.",
        show_default="5",
        callback=zero_or_more,
    ),
]
MarginS = Annotated[
    float | None,
    typer.Option(
        "--margin",
        metavar="S",
        help="In the loop: leases end so long before a planned start.",
        show_default="30 under yield; under preempt they stay",
        callback=zero_or_more,
    ),
]
Careful = Annotated[
    bool | None,
    typer.Option(
        "--careful/--careless",
        metavar="",
        help="yield: whether leases keep off what somebody would need for longer than "
        "a tick if one job ended.",
        show_default="careful",
    ),
]
Blind = Annotated[
    bool,
    typer.Option(
        "--blind",
        metavar="",
        help="In the loop: the broker does not see what is planned.",
    ),
]
