"""What changes while a replay goes on: trainers under way, and sums."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freetrain.quality.outlook import Point
    from freetrain.trainers.spec import Scaling, TrainerSpec


class Cause(StrEnum):
    """Why a trainer is paused."""

    START = "start"
    RESCALE = "rescale"
    PREEMPTION = "preemption"


@dataclass(slots=True, eq=False)
class Run:
    """One way of a trainer through the queue, from its arrival to its finish.

    Attributes:
        serial: Unique in the replay; a trainer that starts over gets a new one.
        spec: The trainer.
        rates: Samples/s at 0 .. max nodes; 0 at sizes it cannot run on.
        arrival_s: When it was submitted, or started over.
        admitted_s: When it was admitted, or None.
        finished_s: When it finished, or None.
        held: Nodes that it holds, by index.
        nodes: How many it held when ``rate`` was set: what it ran on since.
        rate: Samples/s on ``nodes``.
        done: Samples trained, net of losses.
        finish_s: When it will finish if nothing changes, ``inf`` where it will
            not, or where finishing is only noticed at pool events.
        lump: Published accountings: samples to take off the next progress.
        resumes_s: Real accounting: until when it is paused.
        paused_by: Real accounting: why it is, or was last, paused.
        committed: Real accounting: samples trained at the last commit.
        uncommitted_s: Real accounting: training time since the last commit.
        work: Samples after which it is finished.
        points: The evaluations that it has passed and not lost.
    """

    serial: int
    spec: TrainerSpec
    rates: list[float]
    arrival_s: float
    admitted_s: float | None = None
    finished_s: float | None = None
    held: set[int] = field(default_factory=set)
    nodes: int = 0
    rate: float = 0.0
    done: float = 0.0
    finish_s: float = math.inf
    lump: float = 0.0
    resumes_s: float = 0.0
    paused_by: Cause = Cause.START
    committed: float = 0.0
    uncommitted_s: float = 0.0
    work: float = field(init=False)
    points: list[Point] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Look up once what is asked for at every event."""
        self.work = self.spec.work


@dataclass(slots=True)
class Tally:
    """Sums over a replay; docs/replay.md defines each.

    Attributes:
        wasted_node_s: Node-seconds held by trainers that were paused, or whose
            work was lost.
    """

    samples: float = 0.0
    finished: int = 0
    end_s: float = 0.0
    pool_node_s: float = 0.0
    used_node_s: float = 0.0
    wasted_node_s: float = 0.0
    rescale_samples: float = 0.0
    preempt_samples: float = 0.0
    start_samples: float = 0.0
    preemptions: int = 0
    rescales: int = 0
    events: int = 0


def usable_rates(scaling: Scaling) -> list[float]:
    """Return samples/s by node count, 0 where the trainer cannot run."""
    sizes = frozenset(scaling.sizes)
    speeds = scaling.samples_per_s.tolist()
    return [speed if n in sizes else 0.0 for n, speed in enumerate(speeds)]
