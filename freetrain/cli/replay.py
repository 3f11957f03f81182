"""``freetrain replay``: what a log's holes would have trained.

Here are its options, and from them the request. ``replay_run`` replays it under several
policies, or over seeds and loads; ``replay_loop`` with the broker in the loop. Both are
imported when they are called, so that ``-h`` does without NumPy.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from freetrain.broker.limits import Mode
from freetrain.cli.context import (
    AsJson,
    CliContext,
    Force,
    ScheduleMethod,
    SkipBad,
    above_zero,
    zero_or_more,
)
from freetrain.errors import UsageError
from freetrain.lookahead.base import (
    DEFAULT_FORECASTER,
    FORECASTERS,
    check_forecaster,
)
from freetrain.losscurve.forecast import Better
from freetrain.planning.settings import POLICIES, Solver
from freetrain.replay.settings import DEFAULT_PRIORITY, Accounting, ReplaySettings

EXAMPLES = {
    "replay": """
freetrain replay summit.csv.gz --trainers imagenet --parallel 20

freetrain replay --pool 20 --trainers quality:40 --priority slaq --against fair

freetrain replay --pool 9 --trainers quality:20 --priority slaq --set horizon_s=600

freetrain replay jobs.txt --policy freetrain --policy scavenger --out report

freetrain replay summit.csv.gz --policy lookahead --policy freetrain --out report

freetrain replay KTH-SP2.swf.gz --schedule easy --days 7 --requeue --json

freetrain replay --pool 20 --priority slaq --priority tradl --loads 1 --loads 3

freetrain replay KTH-SP2.swf.gz --schedule slurm --in-the-loop preempt --days 7
freetrain replay KTH-SP2.swf.gz --schedule slurm --in-the-loop yield --days 7
""",
}


POLICY_NAMES = tuple(POLICIES)

PARALLEL = 10
"""Trainers at a time, as in the published evaluation."""

SWEEP_POOL = 20
SWEEP_TRAINERS = "quality:40"
SWEEP_AGAINST = "fair"
SWEEP_POLICY = ["freetrain"]
SWEEP_SEEDS = 5
"""What a replay over seeds and loads does where an option does not say."""


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
Trainers = Annotated[
    str | None,
    typer.Option(
        metavar="SET",
        help="hps, imagenet, quality:N or a TOML file.",
        show_default="hps; quality:40 over seeds",
    ),
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
        "(docs/reference/priorities.md); repeat to compare.",
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
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Of what is drawn: the trainers of quality:N.",
        show_default="0; 1 over seeds",
    ),
]
Seeds = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Hold priorities against one of them over N seeds from --seed on, "
        "trainers drawn anew for each.",
        show_default="none; 5 with --loads",
    ),
]
Loads = Annotated[
    list[float] | None,
    typer.Option(
        metavar="X",
        min=0.001,
        help="Over seeds: each of these loads in turn; repeat for more.",
        show_default="that of --load",
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Over seeds: draws replayed at a time.",
        show_default="1",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Write summary, steps and report.html; over seeds one JSON file.",
    ),
]


def _known_forecasters(values: list[str] | None) -> list[str]:
    """Refuse a forecaster that does not exist; name each one once."""
    try:
        for value in values or ():
            check_forecaster(value)
    except UsageError as error:
        raise typer.BadParameter(str(error)) from error
    return list(dict.fromkeys(values or ()))


def _complete_forecaster(incomplete: str) -> list[str]:
    return [name for name in FORECASTERS if name.startswith(incomplete)]


ForecasterNames = Annotated[
    list[str] | None,
    typer.Option(
        "--forecaster",
        metavar="NAME",
        help=f"lookahead: predict how long nodes stay by {' or '.join(FORECASTERS)} "
        "(docs/notes/lookahead.md); repeat to compare.",
        show_default=DEFAULT_FORECASTER,
        callback=_known_forecasters,
        autocompletion=_complete_forecaster,
    ),
]
TopologyFile = Annotated[
    Path | None,
    typer.Option(
        "--topology",
        metavar="FILE",
        readable=False,  # whoever opens it finds out, and exits with 66
        help="lookahead: which nodes are below one leaf switch, as scontrol show "
        "topology tells it.",
    ),
]
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


def replay(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    log: MaybeLogFile = None,
    *,
    pool: PoolNodes = None,
    trainers: Trainers = None,
    policy: Policies = None,
    priority: Priorities = None,
    settings: PrioritySettings = None,
    forecaster: ForecasterNames = None,
    against: Against = None,
    accounting: AccountingName = Accounting.REAL,
    schedule: ScheduleMethod = "recorded",
    nodes: Nodes = None,
    start: StartS = 0.0,
    days: Days = None,
    load: Load = 1.0,
    curves: Curves = None,
    better: BetterValues = Better.HIGHER,
    parallel: Parallel = None,
    every: EveryS = None,
    requeue: Requeue = False,
    learned: Learned = False,
    topology: TopologyFile = None,
    t_fwd: TFwdS = 120.0,
    cost_factor: CostFactor = 1.0,
    solver: SolverName = Solver.EXACT,
    seed: Seed = None,
    seeds: Seeds = None,
    loads: Loads = None,
    processes: Processes = None,
    skip_bad: SkipBad = 0,
    in_the_loop: InTheLoop = None,
    tick: TickS = None,
    lead: LeadS = None,
    last: LastS = None,
    notice: NoticeS = None,
    commit: CommitS = None,
    margin: MarginS = None,
    careful: Careful = None,
    blind: Blind = False,
    as_json: AsJson = False,
    out: Out = None,
    force: Force = False,
) -> None:
    """Replay a scheduler log and compare policies for training in its holes."""
    # NumPy and the planner take longer than all the rest together.
    from freetrain.cli.replay_request import (  # noqa: PLC0415
        ReplayRequest,
        check_loop,
        check_sweep,
        given_settings,
        is_drawn,
        loop_settings,
        policies_in_the_loop,
        refuse_name_as_log,
        refuse_unused,
        with_baseline_policy,
        with_baseline_priority,
    )

    context: CliContext = ctx.obj
    refuse_name_as_log(log, context.cwd)
    given = {"tick": tick, "lead": lead, "last": last, "notice": notice}
    given |= {"commit": commit, "margin": margin}
    loop = loop_settings(in_the_loop, given, careful=careful, blind=blind)
    is_sweep = seeds is not None or bool(loads)
    if is_sweep:
        pool = SWEEP_POOL if log is None and pool is None else pool
        trainers, against = trainers or SWEEP_TRAINERS, against or SWEEP_AGAINST
        policy = SWEEP_POLICY if policy == list(POLICY_NAMES) else policy
        seed = 1 if seed is None else seed
    elif processes is not None:
        raise UsageError(
            "--processes is for replays with --seeds or --loads; nothing was replayed. "
            "Leave it out."
        )
    if (log is None) == (pool is None):
        raise UsageError(
            "expected either a log or --pool N, and not both; nothing was replayed. "
            "`freetrain demo` replays a log that ships."
        )
    trainers = trainers or "hps"
    request = ReplayRequest(
        log=None if log is None else context.cwd / log,
        named=f"{pool} nodes" if log is None else str(log),
        pool=pool,
        trainers=trainers,
        load=load,
        curves=None if curves is None else str(curves),
        topology=None if topology is None else str(topology),
        better=better,
        policies=with_baseline_policy(policy or [], against),
        priorities=with_baseline_priority(priority or [DEFAULT_PRIORITY], against),
        priority_settings=given_settings(settings or ()),
        forecasters=tuple(forecaster or ()),
        against=against,
        schedule=schedule,
        nodes=nodes,
        start_s=start,
        days=days,
        skip_bad=skip_bad,
        seed=seed or 0,
        settings=ReplaySettings(
            accounting=accounting,
            parallel=parallel or (None if is_drawn(trainers) else PARALLEL),
            t_fwd_s=t_fwd,
            look_every_s=every,
            learns_speeds=learned,
            cost_factor=cost_factor,
            requeue=requeue,
            solver=solver,
            record_steps=out is not None and not is_sweep,
            record_forecasts=not is_sweep
            and log is not None
            and (as_json or out is not None),
        ),
    )
    if loop is not None:
        check_loop(request)
    refuse_unused(request)
    if is_sweep:
        check_sweep(request, loads, in_the_loop=loop is not None)
        from freetrain.cli.replay_run import run_sweep_and_show  # noqa: PLC0415

        run_sweep_and_show(
            request,
            context,
            loads=tuple(loads or [load]),
            seeds=range(request.seed, request.seed + (seeds or SWEEP_SEEDS)),
            processes=processes or 1,
            as_json=as_json,
            out=out,
            force=force,
        )
    elif loop is not None:
        request = replace(request, policies=policies_in_the_loop(request.policies))
        from freetrain.cli.replay_loop import run_loop_and_show  # noqa: PLC0415

        run_loop_and_show(request, loop, context, as_json=as_json, out=out, force=force)
    else:
        from freetrain.cli.replay_run import run_and_show  # noqa: PLC0415

        run_and_show(request, context, as_json=as_json, out=out, force=force)
