"""``freetrain contest``: priorities against each other, over seeds and loads."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from freetrain.cli import options
from freetrain.cli.output import write_file, write_out
from freetrain.cli.priority_settings import given_settings
from freetrain.cli.request import DRAWN, ReplayRequest
from freetrain.cli.unused import refuse_unused
from freetrain.errors import UsageError
from freetrain.losscurve.outlook import Better
from freetrain.replay.settings import ReplaySettings

if TYPE_CHECKING:
    from freetrain.cli.world import World

EXAMPLES = """
freetrain contest slaq tradl --load 1 --load 3

freetrain contest slaq --set horizon_s=600 --load 20 --seeds 3 --seed 6

freetrain contest specon --against fair --pool 20 --count 40 --seeds 5 --processes 2
"""

Contestants = Annotated[
    list[str], typer.Argument(metavar="PRIORITY...", help="As --priority of replay.")
]
POOL = 20
"""Nodes, where neither they nor a log are named."""

Pool = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Nodes that nobody takes away.",
        show_default=str(POOL),
    ),
]
Log = Annotated[
    Path | None,
    typer.Option(
        metavar="LOG",
        readable=False,  # whoever opens it finds out, and exits with 66
        help="The idle nodes of a log instead of --pool.",
    ),
]
Count = Annotated[int, typer.Option(metavar="N", min=1, help="Trainers a draw.")]
Loads = Annotated[
    list[float],
    typer.Option(
        "--load",
        metavar="X",
        min=0.001,
        help="Work that arrives, over what the nodes can do; repeat for more.",
    ),
]
Seeds = Annotated[int, typer.Option(metavar="N", min=1, help="Draws a load.")]
FirstSeed = Annotated[
    int,
    typer.Option("--seed", metavar="N", min=0, help="The first draw's; others follow."),
]
Processes = Annotated[
    int, typer.Option(metavar="N", min=1, help="Draws replayed at a time.")
]


def contest(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    priorities: Contestants,
    *,
    against: Annotated[
        str, typer.Option(metavar="NAME", help="The priority they are held against.")
    ] = "fair",
    settings: options.PrioritySettings = None,
    pool: Pool = None,
    log: Log = None,
    nodes: options.Nodes = None,
    start: options.StartS = 0.0,
    days: options.Days = None,
    count: Count = 40,
    load: Loads = [1.0],  # noqa: B006 - Typer copies it
    seeds: Seeds = 5,
    seed: FirstSeed = 1,
    curves: options.Curves = None,
    better: options.BetterValues = Better.HIGHER,
    every: options.EveryS = None,
    t_fwd: options.TFwdS = 120.0,
    cost_factor: options.CostFactor = 1.0,
    processes: Processes = 1,
    as_json: options.AsJson = False,
    out: options.OutFile = None,
    force: options.Force = False,
) -> None:
    """Hold priorities against one of them: the same trainers, the same nodes."""
    # Imported here: reading numpy for `freetrain -h` would make it wait.
    from freetrain.cli.bouts import Contest, hold  # noqa: PLC0415
    from freetrain.cli.contest_text import contest_text  # noqa: PLC0415

    world: World = ctx.obj
    names = [name for name in dict.fromkeys(priorities) if name != against]
    _refuse_nothing(names, pool, log, against=against)
    nodes_of_its_own = pool or POOL
    request = ReplayRequest(
        log=None if log is None else world.cwd / log,
        named=f"{nodes_of_its_own} nodes" if log is None else str(log),
        pool=nodes_of_its_own if log is None else None,
        trainers=f"{DRAWN}{count}",
        curves=None if curves is None else str(curves),
        better=better,
        policies=("freetrain",),
        priorities=(*names, against),
        priority_settings=given_settings(settings or ()),
        against=against,
        schedule="recorded",
        nodes=nodes,
        start_s=start,
        days=days,
        skip_bad=0,
        seed=0,
        settings=ReplaySettings(
            parallel=None,
            look_every_s=every,
            t_fwd_s=t_fwd,
            cost_factor=cost_factor,
            record_steps=False,
        ),
    )
    refuse_unused(request)
    wanted = Contest(
        request=request,
        loads=tuple(load),
        seeds=tuple(range(seed, seed + seeds)),
        processes=processes,
    )
    scores = hold(wanted, world)
    if as_json or out is not None:
        text = json.dumps([asdict(score) for score in scores], indent=2) + "\n"
    else:
        text = contest_text(scores, world, against=against)
    if out is None:
        write_out(world, text)
    else:
        write_file(world.cwd / out, text.encode("utf-8"), force=force)


def _refuse_nothing(
    names: list[str], pool: int | None, log: Path | None, *, against: str
) -> None:
    """Refuse a contest of one, and two pools.

    Raises:
        UsageError: It is one of these.
    """
    if not names:
        raise UsageError(
            f"{against} would be held against itself; nothing was replayed. Name "
            f"another priority, or another --against."
        )
    if pool is not None and log is not None:
        raise UsageError(
            "expected either --log or --pool, and not both; nothing was replayed."
        )
