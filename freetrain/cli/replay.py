"""``freetrain replay``: training in the holes of a recorded log.

The options come first, then the checks of those that do not go together with seeds,
packs, leases of GPUs or the broker in the loop; ``freetrain.api.request`` has the
others. ``replay_run`` shows the results, and is imported when it is called, so that
``-h`` does without NumPy.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from freetrain.api.request import (
    DRAWN,
    POLICY_NAMES,
    ReplayRequest,
    Settings,
    check_policy_name,
    is_drawn,
    refuse_given,
)
from freetrain.broker.limits import Mode
from freetrain.cli.context import (
    AsJson,
    CliContext,
    CoresPerNode,
    Force,
    GpusPerNode,
    ScheduleMethod,
    SchedulerPasses,
    SkipBad,
    above_zero,
    zero_or_more,
)
from freetrain.errors import UsageError
from freetrain.lookahead.base import DEFAULT_FORECASTER, FORECASTERS, check_forecaster
from freetrain.losscurve.forecast import MetricDirection
from freetrain.planning.settings import Solver
from freetrain.replay.settings import (
    DEFAULT_PRIORITY,
    IN_THE_LOOP,
    PACK_RULES,
    PLACED,
    Accounting,
    LoopSettings,
    check_policy,
    usual_settings,
)
from freetrain.text import one_line, option_words

EXAMPLES = {
    "replay": """
freetrain replay summit.csv.gz --trainers imagenet --parallel 20

freetrain replay --pool 20 --trainers quality:40 --priority slaq --against fair

freetrain replay --pool 9 --trainers quality:20 --priority slaq --set horizon_s=600

freetrain replay jobs.txt --policy freetrain --policy scavenger --out report

freetrain replay summit.csv.gz --policy lookahead --policy freetrain --out report

freetrain replay KTH-SP2.swf.gz --schedule easy --days 7 --requeue --json

freetrain replay --pool 20 --priority slaq --priority tradl --loads 1 --loads 3

freetrain replay --packs 4 --trainers quality:24 --load 2 --seeds 20

freetrain replay KTH-SP2.swf.gz --schedule slurm --in-the-loop preempt --days 7
freetrain replay KTH-SP2.swf.gz --schedule slurm --in-the-loop yield --days 7

freetrain replay gpus.csv --gpus-per-node 8 --gpus-per-lease 1 --gpus-per-lease 2
""",
}
SWEEP_POOL = 20
SWEEP_TRAINERS = "quality:40"
SWEEP_AGAINST = "fair"
SWEEP_POLICY = ["freetrain"]
SWEEP_SEEDS = 5
"""Defaults of a replay over seeds and loads."""


def known_policies(values: list[str] | None) -> list[str]:
    """Refuse a policy that does not exist; name each one once."""
    try:
        for value in values or ():
            check_policy_name(value)
    except UsageError as error:
        raise typer.BadParameter(str(error)) from error
    return list(dict.fromkeys(values or POLICY_NAMES))


def _complete_policy(incomplete: str) -> list[str]:
    return [name for name in POLICY_NAMES if name.startswith(incomplete)]


MaybeLogFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="[LOG]",
        readable=False,  # opening it fails with exit code 66
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
        help="freetrain, lookahead and adaptive (each takes longer than the rest "
        "together), equal, scavenger or static; repeat to compare.",
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
        help="Which trainers come first: throughput, speedup, weight, fair, slaq and "
        "others (freetrain docs priorities); repeat to compare.",
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
PackNodes = Annotated[
    int | None,
    typer.Option(
        "--packs",
        metavar="N",
        min=1,
        help="N nodes with a pack each, whose members stay, or move by each rule; over "
        "seeds. --t-fwd is the packs' interval.",
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
        readable=False,  # opening it fails with exit code 66
        help="Trainers that are drawn: quality curves to draw from.",
        show_default="the recorded ones",
    ),
]
BetterValues = Annotated[
    MetricDirection,
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
        show_default="60 where ratings change with time, or speeds are learned",
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
GpusPerLease = Annotated[
    list[int] | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Leases of N GPUs, several on one node, beside leases of whole nodes; "
        "counts of trainers are GPUs. Repeat to compare.",
        show_default="whole nodes",
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
        "(freetrain docs lookahead); repeat to compare.",
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
        readable=False,  # opening it fails with exit code 66
        help="lookahead: which nodes are below one leaf switch, as scontrol show "
        "topology prints it.",
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
        help="yield: a last look so long before backfill's, if jobs wait and something "
        "has changed; none if not less than --lead.",
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
        help="yield: whether leases keep off nodes that a job would need for longer "
        "than a tick if another ended.",
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


OPTION_GROUPS = {
    "The machine": (
        *("pool", "packs", "schedule", "passes", "nodes", "start", "days"),
        *("cores_per_node", "gpus_per_node", "gpus_per_lease", "skip_bad"),
    ),
    "The trainers": (
        *("trainers", "load", "curves", "better", "parallel", "requeue", "learned"),
        "seed",
    ),
    "The policies": (
        *("policy", "priority", "settings", "forecaster", "topology", "against"),
        *("accounting", "cost_factor", "t_fwd", "every", "solver"),
    ),
    "Over seeds and loads": ("seeds", "loads", "processes"),
    "The broker in the loop": (
        *("in_the_loop", "tick", "lead", "last", "notice", "commit", "margin"),
        *("careful", "blind"),
    ),
}
"""How help groups the parameters of ``replay``; those of output are in none."""


def replay(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    log: MaybeLogFile = None,
    *,
    pool: PoolNodes = None,
    packs: PackNodes = None,
    trainers: Trainers = None,
    policy: Policies = None,
    priority: Priorities = None,
    settings: PrioritySettings = None,
    forecaster: ForecasterNames = None,
    against: Against = None,
    accounting: AccountingName = Accounting.REAL,
    schedule: ScheduleMethod = "recorded",
    passes: SchedulerPasses = "moment",
    nodes: Nodes = None,
    start: StartS = 0.0,
    days: Days = None,
    load: Load = 1.0,
    curves: Curves = None,
    better: BetterValues = MetricDirection.HIGHER,
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
    cores_per_node: CoresPerNode = None,
    gpus_per_node: GpusPerNode = None,
    gpus_per_lease: GpusPerLease = None,
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
    context: CliContext = ctx.obj
    refuse_name_as_log(log, context.cwd)
    given = {"tick": tick, "lead": lead, "last": last, "notice": notice}
    given |= {"commit": commit, "margin": margin}
    loop = loop_settings(in_the_loop, given, careful=careful, blind=blind)
    is_sweep = seeds is not None or bool(loads) or packs is not None
    if packs is not None:
        against = against or PLACED
        refused = {
            "a log": log is not None,
            "--pool": pool is not None,
            "--policy": policy != list(POLICY_NAMES),
            "--priority": bool(priority),
            "--set": bool(settings),
            "--parallel": parallel is not None,
            "--every": every is not None,
            "--requeue": requeue,
            "--learned": learned,
        }
        check_packs(refused, against)
        pool = packs
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
    request = ReplayRequest(
        log=None if log is None else context.cwd / log,
        named=str(log),
        pool=pool,
        packs=packs,
        trainers=trainers or "hps",
        policies=tuple(policy or ()),
        priorities=tuple(priority or (DEFAULT_PRIORITY,)),
        priority_settings=given_settings(settings or ()),
        forecasters=tuple(forecaster or ()),
        against=against,
        accounting=accounting,
        schedule=schedule,
        passes=passes,
        nodes=nodes,
        start_s=start,
        days=days,
        load=load,
        curves=None if curves is None else str(curves),
        better=better,
        parallel=parallel,
        every_s=every,
        requeue=requeue,
        learned=learned,
        topology=None if topology is None else str(topology),
        t_fwd_s=t_fwd,
        cost_factor=cost_factor,
        solver=solver,
        seed=seed or 0,
        cores_per_node=cores_per_node,
        gpus_per_node=gpus_per_node,
        skip_bad=skip_bad,
        record_steps=out is not None and not is_sweep,
        record_forecasts=not is_sweep and (as_json or out is not None),
    ).checked()
    if loop is not None:
        check_loop(request)
    if gpus_per_lease:
        check_leases(
            request,
            sizes=len(set(gpus_per_lease)),
            in_the_loop=loop is not None,
            has_folder=out is not None,
            is_sweep=is_sweep,
        )
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
        request = replace(
            request,
            policies=policies_in_the_loop(request.policies),
            gpus_per_lease=gpus_per_lease[0] if gpus_per_lease else None,
        )
        from freetrain.cli.replay_run import run_loop_and_show  # noqa: PLC0415

        run_loop_and_show(request, loop, context, as_json=as_json, out=out, force=force)
    elif gpus_per_lease:
        from freetrain.cli.replay_run import run_leases_and_show  # noqa: PLC0415

        sizes = tuple(dict.fromkeys(gpus_per_lease))
        run_leases_and_show(request, sizes, context, as_json=as_json)
    else:
        from freetrain.cli.replay_run import run_and_show  # noqa: PLC0415

        run_and_show(request, context, as_json=as_json, out=out, force=force)


_SETTING_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


def given_settings(words: Iterable[str]) -> Settings:
    """Return the settings in *words*, each by its name.

    Raises:
        UsageError: A word is not ``NAME=VALUE`` with a finite number, or a name is
            given twice.
    """
    found: dict[str, float] = {}
    for word in words:
        name, _, text = word.partition("=")
        name = name.strip()
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not _SETTING_NAME.fullmatch(name) or not math.isfinite(value):
            raise UsageError(
                f"--set {word}: expected NAME=VALUE with a finite number, as in "
                f"--set horizon_s=600. Nothing was replayed."
            )
        if name in found:
            raise UsageError(
                f"--set {name} is given twice, as {found[name]:g} and {value:g}. "
                f"Nothing was replayed. Give it once, or replay twice."
            )
        found[name] = value
    return tuple(found.items())


_OF_PREEMPT = ("--notice", "--commit")
_OF_YIELD = ("--lead", "--last", "--careful", "--careless")


def loop_settings(
    mode: Mode | None,
    given: Mapping[str, float | None],
    *,
    careful: bool | None,
    blind: bool,
) -> LoopSettings | None:
    """Return the settings of the loop; None without ``--in-the-loop``.

    *given* has ``--tick``, ``--lead``, ``--last``, ``--notice``, ``--commit`` and
    ``--margin`` by name, None where they are not given; *careful* is None without
    ``--careful`` and ``--careless``.

    Raises:
        UsageError: Options of a loop without one, or of the other mode.
    """
    named = [f"--{name}" for name, value in given.items() if value is not None]
    named += [] if careful is None else [_care(careful)]
    named += ["--blind"] * blind
    if mode is None:
        if named:
            fits = Mode.YIELD if named[0] in _OF_YIELD else Mode.PREEMPT
            raise UsageError(
                f"{named[0]} is for replays with --in-the-loop; nothing was replayed. "
                f"Add --in-the-loop {fits.value}, or leave it out."
            )
        return None
    for option in _OF_PREEMPT:
        if mode is Mode.YIELD and option in named:
            raise UsageError(
                f"{option} is for --in-the-loop preempt: under yield jobs wait for the "
                f"next tick. Nothing was replayed. Leave it out."
            )
    for option in _OF_YIELD:
        if mode is Mode.PREEMPT and option in named:
            raise UsageError(
                f"{option} is for --in-the-loop yield: under preempt jobs wait for no "
                f"tick. Nothing was replayed. Leave it out."
            )
    chosen: dict[str, Any] = {
        f"{name}_s": value for name, value in given.items() if value is not None
    }
    usual = usual_settings(mode)
    if careful is not None:
        chosen["is_careful"] = careful
    return replace(usual, knows_plans=not blind, **chosen)


def _care(is_careful: bool) -> str:  # noqa: FBT001 - the option's value
    return "--careful" if is_careful else "--careless"


def loop_words(loop: LoopSettings) -> list[str]:
    """Return the options that ask for *loop*, defaults spelled out."""
    is_preempt = loop.mode is Mode.PREEMPT
    given = {
        "in-the-loop": loop.mode,
        "tick": loop.tick_s,
        "lead": loop.lead_s,
        "last": loop.last_s,
        "notice": loop.notice_s if is_preempt else None,
        "commit": loop.commit_s if is_preempt else None,
        "margin": loop.margin_s,
        "careful": not is_preempt and loop.is_careful,
        "careless": not is_preempt and not loop.is_careful,
        "blind": not loop.knows_plans,
    }
    return [*option_words(given)]


# Options that do not go together


def refuse_name_as_log(log: Path | None, cwd: Path) -> None:
    """Refuse the second word of ``--priority slaq fair``, which would be a log.

    Raises:
        UsageError: It names a policy or a priority, and no file.
    """
    name = str(log)
    if log is None or (cwd / log).exists():
        return
    from freetrain.priority.base import priority_names  # noqa: PLC0415 - NumPy

    option = "--priority" if name in priority_names() else "--policy"
    if option == "--priority" or name in POLICY_NAMES:
        raise UsageError(
            f"{name!r} stands where the log does, and there is no such file; nothing "
            f"was replayed. To compare by it, write {option} {name}: the option takes "
            f"one name each time."
        )


def check_sweep(
    request: ReplayRequest, loads: Collection[float] | None, *, in_the_loop: bool
) -> None:
    """Refuse options that do not go with several seeds and loads.

    Raises:
        UsageError: There is such an option.
    """
    if request.priorities == (request.against,):
        raise UsageError(
            f"{request.against} would be held against itself; nothing was replayed. "
            f"Name another --priority, or another --against."
        )
    refused = {
        "--in-the-loop": in_the_loop,
        f"--policy {request.policies[-1]}: it holds priorities of the policy "
        f"freetrain against each other": request.policies != ("freetrain",),
        f"--trainers {one_line(request.trainers)}: it draws trainers. Say --trainers "
        f"{DRAWN}40": not is_drawn(request.trainers),
        "both --load and --loads": bool(loads) and request.load != 1.0,
    }
    said = (
        "a replay over --seeds and --loads does not go with {}. Nothing was replayed."
    )
    refuse_given(refused, said)


def check_packs(given: Mapping[str, bool], against: str) -> None:
    """Refuse options, *given* or not, that do not go with packs.

    Raises:
        UsageError: One is given, or *against* is no rule of packs.
    """
    if against not in PACK_RULES:
        raise UsageError(
            f"--against {one_line(against)} is no rule by which members of packs move; "
            f"nothing was replayed. Choose one of {', '.join(PACK_RULES)}."
        )
    refuse_given(
        given,
        "--packs does not go with {}: members of packs share nodes of their own by "
        "rules of their own. Nothing was replayed.",
    )


def check_leases(
    request: ReplayRequest,
    *,
    sizes: int,
    in_the_loop: bool,
    has_folder: bool,
    is_sweep: bool,
) -> None:
    """Refuse options that do not go with leases that are pieces of nodes.

    Raises:
        UsageError: There is such an option.
    """
    refused = {
        "--pool: there are no GPUs there": request.pool is not None,
        "--in-the-loop and another size: leases there are of one": in_the_loop
        and sizes > 1,
        "--out: a report is of leases of one size": has_folder and not in_the_loop,
        "--seeds, --loads and --packs": is_sweep,
        "--against": request.against is not None,
        "--topology: leases are not nodes": request.topology is not None,
    }
    refuse_given(refused, "--gpus-per-lease does not go with {}. Nothing was replayed.")


def check_loop(request: ReplayRequest) -> None:
    """Refuse options that do not go with the broker in the loop.

    Raises:
        UsageError: There is such an option.
    """
    refused = {
        "--pool: there are no jobs there": request.pool is not None,
        "--schedule recorded: that starts jobs at recorded times. Add --schedule slurm "
        "or easy": request.pool is None and request.schedule == "recorded",
        "--nodes: jobs need the whole machine": request.nodes is not None,
        "--every: it decides at ticks": request.every_s is not None,
        "--against": request.against is not None,
        "--topology: nodes of a log of jobs are any": request.topology is not None,
        "quality:N: a load needs a known pool": is_drawn(request.trainers),
    }
    refuse_given(refused, "--in-the-loop does not go with {}. Nothing was replayed.")


def policies_in_the_loop(policies: tuple[str, ...]) -> tuple[str, ...]:
    """Return *policies*; for the default, all, only those that can be in the loop.

    Raises:
        UsageError: One of them cannot be.
    """
    if policies == POLICY_NAMES:
        return IN_THE_LOOP
    for name in policies:
        check_policy(name)
    return policies
