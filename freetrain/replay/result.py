"""What a replay found out; every figure is defined in docs/replay.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freetrain.forecast.reliability import ForecastRecord
    from freetrain.replay.gaps import Gap


@dataclass(frozen=True, slots=True)
class Step:
    """The pool and its use from one event on.

    Attributes:
        time_s: Seconds from the start of the replay.
        idle_nodes: Nodes in the pool.
        used_nodes: Those of them that a trainer holds.
        resized: Trainers whose node count changed at this event, with their new
            count: (trainer name, nodes).
        finished: Trainers that finished at this event, by name.
    """

    time_s: float
    idle_nodes: int
    used_nodes: int
    resized: tuple[tuple[str, int], ...]
    finished: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Completion:
    """One trainer's way through the replay.

    Attributes:
        trainer: Its name.
        arrival_s: When it was submitted.
        admitted_s: When it was first taken up, or None.
        finished_s: When it finished, or None.
        samples: Samples it trained, net of losses.
        slowdown: Time from arrival to finish over the time it would need alone
            on its best size; None where it did not finish.
    """

    trainer: str
    arrival_s: float
    admitted_s: float | None
    finished_s: float | None
    samples: float
    slowdown: float | None


@dataclass(frozen=True, slots=True)
class Learning:
    """How good the model of one trainer with a quality curve became, and when.

    Attributes:
        trainer: Its name.
        arrival_s: When it was submitted.
        finished_s: When it finished, or None.
        times_s: When it passed each evaluation for good, ascending.
        quality: The best by then, as a share of the best it has by the end of its
            work, by evaluation: 0 where it began, never falling.
        deliver_s: When it reached the first tier of its target, or None.
        final_s: When it reached the second, or None.
    """

    trainer: str
    arrival_s: float
    finished_s: float | None
    times_s: tuple[float, ...]
    quality: tuple[float, ...]
    deliver_s: float | None
    final_s: float | None


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """One policy's replay of one log.

    Node-seconds and samples are sums over the replay; ``*_samples`` losses are
    samples that were not trained because of the cause named. ``gap`` is None where
    nothing was planned by an objective. ``forecaster`` is None
    where the policy has none; so is ``forecasts``, also where they were not to be
    recorded.
    """

    policy: str
    priority: str
    accounting: str
    samples: float
    finished: int
    end_s: float
    images_per_s: float
    eq_nodes: float
    pool_node_s: float
    used_node_s: float
    rescale_samples: float
    preempt_samples: float
    start_samples: float
    preemptions: int
    rescales: int
    events: int
    efficiency: float | None
    coverage: float
    solver_calls: int
    solver_s: float
    solver_fallbacks: int
    wall_s: float
    peak_rss_bytes: int
    steps: tuple[Step, ...]
    completions: tuple[Completion, ...]
    learning: tuple[Learning, ...] = ()
    priority_settings: tuple[tuple[str, float], ...] = ()
    gap: Gap | None = None
    forecaster: str | None = None
    forecasts: ForecastRecord | None = None
