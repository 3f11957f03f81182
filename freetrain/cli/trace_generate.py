"""``freetrain trace generate``: a log of a machine that does not exist."""

from typing import TYPE_CHECKING, Annotated

import typer

from freetrain.cli import options

if TYPE_CHECKING:
    from freetrain.cli.world import World

EXAMPLES = """
freetrain trace generate --nodes 512 --days 7 --seed 1 --out week.swf

freetrain trace generate --sample --out logs/samples
"""
MOST_NODES = 1_000_000
MOST_DAYS = 3_660
MOST_LOAD = 4.0

MachineNodes = Annotated[
    int,
    typer.Option(metavar="N", min=1, max=MOST_NODES, help="The machine's size."),
]
SpanDays = Annotated[
    float,
    typer.Option(
        metavar="D",
        help="Days that jobs are submitted on.",
        callback=options.above_zero_up_to(MOST_DAYS),
    ),
]
Load = Annotated[
    float,
    typer.Option(
        metavar="L",
        help="Node-time submitted over that of the machine.",
        callback=options.above_zero_up_to(MOST_LOAD),
    ),
]
ModelSeed = Annotated[
    int, typer.Option(metavar="N", min=0, help="The same seed, the same bytes.")
]
Starts = Annotated[
    bool,
    typer.Option(
        metavar="", help="Give jobs the start times that EASY backfilling finds."
    ),
]
Sample = Annotated[
    bool,
    typer.Option(
        "--sample", metavar="", help="The week that ships; --out is then a folder."
    ),
]


def generate(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    *,
    nodes: MachineNodes = 512,
    days: SpanDays = 7.0,
    load: Load = 0.9,
    seed: ModelSeed = 1,
    starts: Starts = True,
    sample: Sample = False,
    out: options.OutFile = None,
    force: options.Force = False,
) -> None:
    """Generate a workload by the Lublin-Feitelson model, as SWF."""
    # Imported here, so that help and completion stay quick.
    from freetrain.cli.trace_text import deliver, rendered  # noqa: PLC0415
    from logs import generate as lublin  # noqa: PLC0415
    from logs import generate as model  # noqa: PLC0415
    from logs import generate as samples  # noqa: PLC0415

    world: World = ctx.obj
    if sample:
        trace = samples.sample_trace()
        out = out / samples.SAMPLE_NAME if out is not None else None
    else:
        wanted = model.WorkloadModel(nodes=nodes, days=days, load=load, seed=seed)
        trace = lublin.generate(wanted)
        trace = samples.start_by_easy(trace) if starts else trace
    deliver(world, rendered(trace, "swf"), out=out, force=force)
