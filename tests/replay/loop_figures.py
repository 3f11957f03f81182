"""What a broker in the loop trains, and what it does to others, on two real logs.

``python -m tests.replay.loop_figures theta kth [--mode preempt yield] [--notice 30 0]
[--look 30:5+3 30:5 60] [--careless] [--week 245] [--days 7] [--case plans]``.
``--look`` is for yield: every so many seconds, so long before backfill's cycles, once
more so long before them, or else from the start on; and so is ``--careless``.
Weeks begin at multiples of seven days; those of Theta are the ones without any time at
half use or less and the fewest idle nodes, those of KTH-SP2 the ones with the least
such time; the settings were chosen on days 100 to 102 of Theta.
hps trainers that start over, accounting real, under ``slurm``. Nothing is asserted.
"""

import argparse
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

from freetrain.broker.limits import Mode
from freetrain.replay.loop import LoopResult, Stage, run_in_the_loop
from freetrain.replay.settings import LoopSettings, ReplaySettings, usual_settings
from freetrain.replay.trainers import builtin_trainers
from logs.read import read_trace
from logs.simulation import Method
from logs.trace import JobTrace
from tests.lookahead.reliability_table import shared_folder

LOGS = {"theta": "theta_2022.csv.gz", "kth": "KTH-SP2-1996.swf.gz"}
WEEKS = {"theta": (245, 112), "kth": (133, 245)}
PARALLEL = {"theta": 20, "kth": 10}
DAY_S = 86_400.0

HEADING = (
    "                        samples  won back  lost  rescales  10 min"
    "    met  waited mean/median/most/all, longer   later sooner  median   mean   most"
)


def stage_of(name: str, week: int, days: float = 7.0) -> Stage:
    """Return days of a log under ``slurm``."""
    trace = read_trace(shared_folder() / "logs" / LOGS[name])
    if not isinstance(trace, JobTrace):
        raise TypeError(f"{trace.source} holds no jobs")
    return Stage(trace, Method.SLURM, start_s=week * DAY_S, days=days)


def rows(
    stage: Stage, loop: LoopSettings, parallel: int, *, case: str = ""
) -> Iterator[str]:
    """Yield a row for each policy: blind, learning, and knowing plans."""
    blind = replace(loop, knows_plans=False)
    cases = [
        ("freetrain, blind", "freetrain", blind),
        ("lookahead, blind", "lookahead", blind),
        ("lookahead, plans", "lookahead", loop),
    ]
    first: LoopResult | None = None
    for name, policy, settings in cases:
        if case not in name:
            continue
        began_s = time.perf_counter()
        made = _play(stage, policy, settings, parallel)
        first = first or made
        took_s = time.perf_counter() - began_s
        yield f"  {name:20} {_row(made, first)}  [{took_s:.0f} s]"


def _play(stage: Stage, policy: str, loop: LoopSettings, parallel: int) -> LoopResult:
    settings = ReplaySettings(
        policy=policy, parallel=parallel, requeue=True, record_steps=False
    )
    trainers = builtin_trainers("hps")
    return run_in_the_loop(stage, trainers, settings, loop, clock=time.perf_counter)


def _row(made: LoopResult, first: LoopResult) -> str:
    """Return figures in thousand millions of samples, per cent, jobs and seconds."""
    replay, harm = made.replay, made.harm
    won = (replay.samples - first.replay.samples) / first.replay.preempt_samples
    return (
        f"{replay.samples / 1e9:9.2f}  {100 * won:+6.0f} %"
        f" {replay.preempt_samples / 1e9:6.2f} {replay.rescale_samples / 1e9:8.2f}"
        f"  {100 * (made.holes.long_use or 0.0):5.1f} % {harm.met:6}"
        f"  {harm.waited_mean_s:6.1f} {harm.waited_median_s:5.0f}"
        f" {harm.waited_most_s:6.0f} {harm.met * harm.waited_mean_s:7.0f}"
        f" {harm.waited_longer:4}"
        f"  {harm.later:6} {harm.sooner:6}  {harm.median_s:6.0f}"
        f" {harm.mean_s:6.0f} {harm.most_s:6.0f}"
    )


def main(arguments: list[str]) -> int:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="+", choices=list(LOGS))
    parser.add_argument("--mode", nargs="+", default=["preempt", "yield"])
    parser.add_argument("--notice", nargs="+", type=float, default=[30.0, 0.0])
    parser.add_argument("--look", nargs="+", default=["30:5+3"])
    parser.add_argument("--careless", action="store_true")
    parser.add_argument("--week", nargs="+", type=int)
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--case", default="", help="only rows of which this is a part")
    chosen = parser.parse_args(arguments)
    for name in chosen.logs:
        for week in chosen.week or WEEKS[name]:
            for line in _week(name, week, chosen):
                sys.stdout.write(f"{line}\n")
                sys.stdout.flush()
    return 0


def _week(name: str, week: int, chosen: argparse.Namespace) -> Iterator[str]:
    stage = stage_of(name, week, chosen.days)
    yield f"{name}, days {week} to {week + chosen.days:g}: {len(stage.alone_s)} jobs"
    yield HEADING
    loops = {}
    if "preempt" in chosen.mode:
        for notice_s in chosen.notice:
            loops[f"preempt, {notice_s:g} s"] = LoopSettings(notice_s=notice_s)
    if "yield" in chosen.mode:
        for look in chosen.look:
            loop = replace(_yielding(look), is_careful=not chosen.careless)
            loops[f"yield, {look}{', careless' * chosen.careless}"] = loop
    for what, loop in loops.items():
        yield what
        yield from rows(stage, loop, PARALLEL[name], case=chosen.case)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield f"peak {peak:.0f} MiB"


def _yielding(look: str) -> LoopSettings:
    tick_s, _, leads_s = look.partition(":")
    lead_s, _, last_s = leads_s.partition("+")
    return replace(
        usual_settings(Mode.YIELD),
        tick_s=float(tick_s),
        lead_s=float(lead_s) if lead_s else None,
        last_s=float(last_s) if last_s else None,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
