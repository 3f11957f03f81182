"""``freetrain run`` and ``freetrain init``: their options.

``freetrain.cli.draft`` does the work; it is imported when one is called.
"""

from pathlib import Path
from typing import Annotated

import typer

from freetrain.cli.context import CliContext, Config, Force

EXAMPLES = {
    "run": """
freetrain run --nodes 1:8 -- torchrun --nproc-per-node 4 train.py --save ckpt

freetrain run --nodes 1:16 --gpus-per-lease 1 -- torchrun train.py

freetrain run --dry-run -- python train.py
""",
    "init": """
freetrain init train.py

freetrain init train.py --nodes 1:8 --yes --out resnet.toml

freetrain init --nodes 1:8 -- torchrun --nproc-per-node 4 train.py --lr 0.1
""",
}
CONTEXT_SETTINGS = {"run": {"allow_interspersed_args": False}}
"""Words after the program's name are the program's, also without ``--``."""

Nodes = Annotated[
    str,
    typer.Option(
        metavar="MIN:MAX",
        help="How many nodes, or leases of GPUs, it may have.",
        show_default="1, or as its launcher says",
    ),
]
Gpus = Annotated[
    int | None,
    typer.Option(
        "--gpus-per-lease",
        metavar="N",
        min=1,
        help="Leases of N GPUs of a node, beside other jobs.",
        show_default="whole nodes",
    ),
]
Name = Annotated[
    str,
    typer.Option(metavar="NAME", help="The trainer's.", show_default="the script's"),
]
Checkpoint = Annotated[
    str,
    typer.Option(
        metavar="PATH",
        help="The file or folder in which it saves.",
        show_default="as its source shows",
    ),
]
SavesEvery = Annotated[
    str,
    typer.Option(
        "--every",
        metavar="TIME",
        help="How often it saves.",
        show_default="10min",
    ),
]


def run(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- COMMAND...",
            help="As elsewhere: torchrun, accelerate launch, mpirun, python, ...",
        ),
    ],
    *,
    nodes: Nodes = "",
    gpus_per_lease: Gpus = None,
    name: Name = "",
    checkpoint: Checkpoint = "",
    every: SavesEvery = "",
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", metavar="", help="Only show the job file; write nothing."
        ),
    ] = False,
    go_on: Annotated[
        bool,
        typer.Option("--go-on", metavar="", help="Go on with an ended training."),
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", metavar="", help="Replace NAME.job.toml."),
    ] = False,
    config: Config = None,
) -> None:
    """Make a job file of a command, submit it, and follow what it prints."""
    from freetrain.cli.draft import run_and_follow, wishes_of  # noqa: PLC0415

    context: CliContext = ctx.obj
    wishes = wishes_of(
        nodes=nodes,
        gpus=gpus_per_lease,
        name=name,
        checkpoint=checkpoint,
        every=every,
    )
    run_and_follow(
        context,
        config,
        command,
        wishes,
        is_dry_run=dry_run,
        go_on=go_on,
        force=force,
    )


def init(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SCRIPT | -- COMMAND",
            help="The training script, or a command as for `freetrain run`; without "
            "it the only script of this folder.",
        ),
    ] = None,
    *,
    nodes: Nodes = "",
    gpus_per_lease: Gpus = None,
    name: Name = "",
    checkpoint: Checkpoint = "",
    every: SavesEvery = "",
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The job file.")
    ] = Path("job.toml"),
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", metavar="", help="Ask nothing; what is not seen is marked."
        ),
    ] = False,
    force: Force = False,
) -> None:
    """Write a commented job file for a script or command; ask the rest."""
    from freetrain.cli.draft import wishes_of, write_draft  # noqa: PLC0415

    context: CliContext = ctx.obj
    wishes = wishes_of(
        nodes=nodes,
        gpus=gpus_per_lease,
        name=name,
        checkpoint=checkpoint,
        every=every,
    )
    asks = context.can_ask and not yes
    write_draft(context, command or (), wishes, out=out, asks=asks, force=force)
