"""Small machines with a few jobs, and a broker that ticks among them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from freetrain.replay.loop import LoopResult, Stage, run_in_the_loop
from freetrain.replay.settings import LoopSettings, ReplaySettings
from freetrain.replay.trainers import TrainerSpec
from freetrain.text import DAY_S
from logs.simulation import Method
from logs.trace import Job, JobTrace
from tests.replay.worlds import no_clock

UNBOUND: dict[str, Any] = {"margin_s": None, "shortest_s": 0.0}


@dataclass(frozen=True)
class J:
    """A job: when it comes, how long it runs, its nodes, what it asks for.

    Of GPUs *nodes* is how many, and *on* how many nodes they are on, 0 for the fewest.
    """

    submit_s: float
    run_s: float
    nodes: int
    asks_s: float | None = None
    on: int = 0


PAIR = [J(0.0, 100.0, 2), J(160.0, 50.0, 2)]
"""Both on two nodes: idle from 100 to 160, and from 210 on if no lease is in it."""

PLANNED = [J(0.0, 200.0, 1, 200.0), J(10.0, 50.0, 2, 50.0)]
"""The second waits from 10 s for the first, and is planned for 200 s, as it comes."""


def trace_of(
    jobs: Sequence[J],
    units: int,
    units_per_node: int = 1,
    *,
    counts_gpus: bool = False,
) -> JobTrace:
    made = tuple(
        Job(
            str(k),
            job.submit_s,
            None,
            job.run_s,
            job.nodes,
            job.asks_s,
            node_count=job.on,
        )
        for k, job in enumerate(jobs)
    )
    return JobTrace(
        source="by hand",
        log_format="swf",
        jobs=made,
        units=units,
        units_per_node=units_per_node,
        counts_gpus=counts_gpus,
    )


def stage_of(
    jobs: Sequence[J],
    nodes: int,
    *,
    until_s: float,
    method: Method = Method.EASY,
    start_s: float = 0.0,
) -> Stage:
    trace = trace_of(jobs, nodes)
    return Stage(trace, method, start_s=start_s, days=until_s / DAY_S)


GPUS = 4
"""Of each node."""


def gpu_stage_of(
    jobs: Sequence[J],
    nodes: int,
    lease_gpus: int | None,
    *,
    until_s: float,
    method: Method = Method.EASY,
) -> Stage:
    """Return a stage of nodes with four GPUs, and leases of some of them."""
    trace = trace_of(jobs, nodes * GPUS, GPUS, counts_gpus=True)
    return Stage(trace, method, days=until_s / DAY_S, lease_gpus=lease_gpus)


def play(
    stage: Stage,
    trainers: Sequence[TrainerSpec],
    loop: LoopSettings,
    **choices: Any,  # noqa: ANN401  any setting
) -> LoopResult:
    settings = ReplaySettings(**choices)
    return run_in_the_loop(stage, trainers, settings, loop, clock=no_clock)


@st.composite
def crowds(draw: DrawFn, most_nodes: int = 6) -> tuple[list[J], int]:
    """Up to twelve jobs on a few nodes, in whole seconds, with requests broken."""
    nodes = draw(st.integers(1, most_nodes))
    count = draw(st.integers(1, 12))
    seconds = st.integers(0, 400)
    jobs = [
        J(
            float(draw(seconds)),
            float(draw(st.integers(1, 200))),
            draw(st.integers(1, nodes)),
            float(draw(st.integers(1, 300))),
        )
        for _ in range(count)
    ]
    return sorted(jobs, key=lambda job: job.submit_s), nodes


@st.composite
def gpu_crowds(draw: DrawFn) -> tuple[list[J], int]:
    """Up to twelve jobs of some GPUs of a few nodes."""
    nodes = draw(st.integers(1, 3))
    seconds = st.integers(0, 400)
    jobs = []
    for _ in range(draw(st.integers(1, 12))):
        on = draw(st.integers(1, nodes))
        submit_s, run_s = float(draw(seconds)), float(draw(st.integers(1, 200)))
        gpus, asks_s = (
            draw(st.integers(on, on * GPUS)),
            float(draw(st.integers(1, 300))),
        )
        jobs.append(J(submit_s, run_s, gpus, asks_s, on))
    return sorted(jobs, key=lambda job: job.submit_s), nodes
