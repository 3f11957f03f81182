"""What came of a broker in the loop, as people read it on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.cli.screen import figures, print_gaps
from freetrain.replay.loop_settings import Mode
from freetrain.report.comparison import name_among, percent, scaled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.cli.world import World
    from freetrain.replay.loop import LoopResult
    from freetrain.replay.loop_settings import LoopSettings

TRAINED = ("policy", "samples", "preempt", "lost to it", "coverage", "10 min")
HARMED = (
    "policy",
    "met",
    "waited",
    "at most",
    "later",
    "sooner",
    "median",
    "mean",
    "worst",
)

LEGEND = """\
preempt:    preemptions; lost to it: samples not trained because of them
coverage:   idle node-time spent on training that lasted, of all idle node-time
10 min:     node-time of holes of ten minutes and more that trainers held
met:        jobs that had to wait for us to go; waited: how long, in seconds
later:      jobs that started later than without us, however little, and sooner;
            median, mean, worst: by how many seconds, over all jobs"""
"""What the columns mean; docs/replay.md has the formulas."""


def loop_text(
    read_as: str, results: Sequence[LoopResult], loop: LoopSettings, world: World
) -> str:
    """Return what was played and two tables, for *world*'s terminal."""
    console = world.out()
    replays = [one.replay for one in results]
    named = [(name_among(one.replay, replays), one) for one in results]
    ticks = f"every {loop.tick_s:g} s"
    if loop.lead_s is not None:
        early = f"{loop.lead_s:g}"
        if loop.last_lead_s is not None:
            early += f" and {loop.last_lead_s:g}"
        ticks += f", {early} s early,"
    seen = "sees plans" if loop.knows_plans else "is blind to plans"
    care = ""
    if loop.mode is Mode.YIELD:
        care = ", careful" if loop.is_careful else ", careless"
    with console.capture() as captured:
        console.print(read_as, soft_wrap=True)
        console.print(
            f"The broker ticks {ticks} and {seen}; mode {loop.mode}{care}.",
            soft_wrap=True,
        )
        console.print(figures(TRAINED, [_trained(*one) for one in named]))
        console.print()
        console.print(figures(HARMED, [_harmed(*one) for one in named]))
        print_gaps(console, [(name, one.replay) for name, one in named])
        console.print(f"\n{LEGEND}", soft_wrap=True)
    return captured.get()


def _trained(name: str, result: LoopResult) -> tuple[str, ...]:
    replay = result.replay
    return (
        name,
        scaled(replay.samples),
        f"{replay.preemptions:,}",
        scaled(replay.preempt_samples),
        percent(replay.coverage),
        percent(result.holes.long_use),
    )


def _harmed(name: str, result: LoopResult) -> tuple[str, ...]:
    harm = result.harm
    return (
        name,
        f"{harm.met:,}",
        f"{harm.waited_mean_s:.1f}",
        f"{harm.waited_most_s:.1f}",
        f"{harm.later:,}",
        f"{harm.sooner:,}",
        f"{harm.median_s:.0f}",
        f"{harm.mean_s:.0f}",
        f"{harm.most_s:.0f}",
    )
