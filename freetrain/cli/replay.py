"""``freetrain replay``: what a log's holes would have trained."""

import json
from dataclasses import replace
from pathlib import Path

import typer

from freetrain.cli import loop_options, options
from freetrain.cli.forecaster import ForecasterNames
from freetrain.cli.leaves import TopologyFile
from freetrain.cli.loop_request import check_loop, loop_settings, policies_in_the_loop
from freetrain.cli.output import check_folder, write_folder, write_out
from freetrain.cli.priority_settings import given_settings
from freetrain.cli.request import ReplayRequest, is_drawn
from freetrain.cli.unused import refuse_unused
from freetrain.cli.world import World
from freetrain.errors import UsageError
from freetrain.losscurve.outlook import Better
from freetrain.planning.settings import RATED_POLICIES, Solver
from freetrain.replay.settings import DEFAULT_PRIORITY, Accounting, ReplaySettings

EXAMPLES = """
freetrain replay summit.csv.gz --trainers imagenet --parallel 20

freetrain replay --pool 20 --trainers quality:40 --priority slaq --against fair

freetrain replay --pool 9 --trainers quality:20 --priority slaq --set horizon_s=600

freetrain replay jobs.txt --policy freetrain --policy scavenger --out report

freetrain replay summit.csv.gz --policy lookahead --policy freetrain --out report

freetrain replay KTH-SP2.swf.gz --schedule easy --days 7 --requeue --json

freetrain replay KTH-SP2.swf.gz --schedule slurm --in-the-loop preempt --days 7
freetrain replay KTH-SP2.swf.gz --schedule slurm --in-the-loop yield --days 7
"""


PARALLEL = 10
"""Trainers at a time, as in the published evaluation."""


def replay(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    log: options.MaybeLogFile = None,
    *,
    pool: options.PoolNodes = None,
    trainers: options.Trainers = "hps",
    policy: options.Policies = None,
    priority: options.Priorities = None,
    settings: options.PrioritySettings = None,
    forecaster: ForecasterNames = None,
    against: options.Against = None,
    accounting: options.AccountingName = Accounting.REAL,
    schedule: options.ScheduleMethod = "recorded",
    nodes: options.Nodes = None,
    start: options.StartS = 0.0,
    days: options.Days = None,
    load: options.Load = 1.0,
    curves: options.Curves = None,
    better: options.BetterValues = Better.HIGHER,
    parallel: options.Parallel = None,
    every: options.EveryS = None,
    requeue: options.Requeue = False,
    learned: options.Learned = False,
    topology: TopologyFile = None,
    t_fwd: options.TFwdS = 120.0,
    cost_factor: options.CostFactor = 1.0,
    solver: options.SolverName = Solver.EXACT,
    seed: options.Seed = 0,
    skip_bad: options.SkipBad = 0,
    in_the_loop: loop_options.InTheLoop = None,
    tick: loop_options.TickS = None,
    lead: loop_options.LeadS = None,
    last: loop_options.LastS = None,
    notice: loop_options.NoticeS = None,
    commit: loop_options.CommitS = None,
    margin: loop_options.MarginS = None,
    careful: loop_options.Careful = None,
    blind: loop_options.Blind = False,
    as_json: options.AsJson = False,
    out: options.OutFolder = None,
    force: options.Force = False,
) -> None:
    """Replay a scheduler log and compare policies for training in its holes."""
    world: World = ctx.obj
    _refuse_name(log, world)
    given = {"tick": tick, "lead": lead, "last": last, "notice": notice}
    given |= {"commit": commit, "margin": margin}
    loop = loop_settings(in_the_loop, given, careful=careful, blind=blind)
    if (log is None) == (pool is None):
        raise UsageError(
            "expected either a log or --pool N, and not both; nothing was replayed. "
            "`freetrain demo` replays a log that ships."
        )
    request = ReplayRequest(
        log=None if log is None else world.cwd / log,
        named=f"{pool} nodes" if log is None else str(log),
        pool=pool,
        trainers=trainers,
        load=load,
        curves=None if curves is None else str(curves),
        topology=None if topology is None else str(topology),
        better=better,
        policies=_also(against, policy or []),
        priorities=_with(against, priority or [DEFAULT_PRIORITY]),
        priority_settings=given_settings(settings or ()),
        forecasters=tuple(forecaster or ()),
        against=against,
        schedule=schedule,
        nodes=nodes,
        start_s=start,
        days=days,
        skip_bad=skip_bad,
        seed=seed,
        settings=ReplaySettings(
            accounting=accounting,
            parallel=parallel or (None if is_drawn(trainers) else PARALLEL),
            t_fwd_s=t_fwd,
            look_every_s=every,
            learns_speeds=learned,
            cost_factor=cost_factor,
            requeue=requeue,
            solver=solver,
            record_steps=out is not None,
            record_forecasts=log is not None and (as_json or out is not None),
        ),
    )
    if loop is not None:
        check_loop(request)
    refuse_unused(request)
    if loop is None:
        run_and_show(request, world, as_json=as_json, out=out, force=force)
        return
    request = replace(request, policies=policies_in_the_loop(request.policies))
    from freetrain.cli.loop import run_loop_and_show  # noqa: PLC0415 - as below

    run_loop_and_show(request, loop, world, as_json=as_json, out=out, force=force)


def _refuse_name(log: Path | None, world: World) -> None:
    """Refuse the second word of ``--priority slaq fair``, which stands for a log.

    Raises:
        UsageError: It names a policy or a priority, and no file.
    """
    name = str(log)
    if log is None or (world.cwd / log).exists():
        return
    # Imported here: reading numpy for `freetrain -h` would make it wait.
    from freetrain.priority.registry import PRIORITIES  # noqa: PLC0415

    option = "--priority" if name in PRIORITIES else "--policy"
    if name in PRIORITIES or name in options.POLICY_NAMES:
        raise UsageError(
            f"{name!r} stands where the log does, and there is no such file; nothing "
            f"was replayed. To compare by it, write {option} {name}: the option takes "
            f"one name each time."
        )


def _with(against: str | None, priorities: list[str]) -> tuple[str, ...]:
    """Return *priorities*, each once, and the one that they are held against."""
    also = [] if against is None or against in options.POLICY_NAMES else [against]
    return tuple(dict.fromkeys([*priorities, *also]))


def _also(against: str | None, policies: list[str]) -> tuple[str, ...]:
    """Return *policies*, and the one that they are held against.

    Raises:
        UsageError: They are held against a priority that none of them goes by.
    """
    if against in options.POLICY_NAMES:
        return tuple(dict.fromkeys([*policies, against]))
    if against is not None and not set(RATED_POLICIES).intersection(policies):
        raise UsageError(
            f"--against {against} is no policy, and only the policies "
            f"{' and '.join(RATED_POLICIES)} go by priorities; nothing was replayed. "
            f"Add --policy {RATED_POLICIES[0]}."
        )
    return tuple(policies)


def run_and_show(
    request: ReplayRequest,
    world: World,
    *,
    as_json: bool,
    out: Path | None,
    force: bool,
) -> None:
    """Replay *request*, write its folder where asked, and show what came out."""
    # Imported here: reading numpy for `freetrain -h` would make it wait.
    from freetrain.cli.compare import compare  # noqa: PLC0415
    from freetrain.report.comparison import full_record  # noqa: PLC0415
    from freetrain.report.forecast import forecast_records  # noqa: PLC0415
    from freetrain.report.quality import quality_records  # noqa: PLC0415

    folder = None if out is None else world.cwd / out
    if folder is not None:
        check_folder(folder, force=force)
    compared = compare(request, world)
    comparison = compared.comparison
    if folder is not None:
        from freetrain.report.page import report_files  # noqa: PLC0415 - Plotly

        write_folder(folder, report_files(comparison))
    if as_json:
        records = [
            full_record(r, load_s=compared.load_s)
            | quality_records(comparison, r)
            | forecast_records(r)
            for r in comparison.results
        ]
        write_out(world, json.dumps(records, indent=2, allow_nan=False) + "\n")
        return
    from freetrain.cli.screen import comparison_text  # noqa: PLC0415 - Rich

    write_out(world, comparison_text(comparison, world))
    if out is not None:
        write_out(world, f"Report: {out / 'report.html'}\n")
