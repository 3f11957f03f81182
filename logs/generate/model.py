"""The parameters of the workload model, with their published values."""

from __future__ import annotations

import math
from dataclasses import dataclass

_HOUR_S = 3600
_MINUTE_S = 60
_MOST_LOG_S = 700
"""The exponential of anything larger is near what a float can hold."""


@dataclass(frozen=True, slots=True)
class JobClass:
    """What one class of jobs looks like, as Lublin and Feitelson model it.

    Attributes:
        name: ``all``, ``batch`` or ``interactive``.
        queue: SWF queue number: 0 for interactive jobs, 1 for the others.
        serial_share: Share of jobs on one node.
        power_share: Share of the parallel jobs whose log2 size is rounded to a
            whole number.
        low_log2_nodes: Log2 of the smallest parallel job, before rounding.
        high_below_machine_log2: How far the log2 of the largest job lies below
            the log2 of the machine's size.
        middle_below_high_log2: How far the log2 size where the two stages meet
            lies below that of the largest job.
        low_stage_share: Share of the parallel jobs in the stage of small sizes.
        short_shape, short_scale: Gamma distribution of the natural logarithm of
            the run time, in seconds, of the short jobs.
        long_shape, long_scale: The same of the long jobs.
        short_share_per_node, short_share_at_0: Share of short jobs among jobs of
            n nodes, ``short_share_per_node * n + short_share_at_0``, kept within
            0 to 1.
        gap_shape, gap_scale: Gamma distribution of the natural logarithm of the
            gap between two submissions, before calibration, at all hours.
        day_shape, day_scale_half_hours: Gamma distribution over the day that
            gives each half hour its share of the submissions.
    """

    name: str
    queue: int
    serial_share: float
    power_share: float
    low_log2_nodes: float
    high_below_machine_log2: float
    middle_below_high_log2: float
    low_stage_share: float
    short_shape: float
    short_scale: float
    long_shape: float
    long_scale: float
    short_share_per_node: float
    short_share_at_0: float
    gap_shape: float
    gap_scale: float
    day_shape: float
    day_scale_half_hours: float


ALL_JOBS = JobClass(
    name="all",
    queue=1,
    serial_share=0.244,
    power_share=0.576,
    low_log2_nodes=0.8,
    high_below_machine_log2=0.0,
    middle_below_high_log2=2.5,
    low_stage_share=0.86,
    short_shape=4.2,
    short_scale=0.94,
    long_shape=312.0,
    long_scale=0.03,
    short_share_per_node=-0.0054,
    short_share_at_0=0.78,
    gap_shape=10.2303 * 1.0225,
    gap_scale=0.4871,
    day_shape=8.1737,
    day_scale_half_hours=3.9631,
)
"""The published parameters for a workload that knows no job types."""

BATCH = JobClass(
    name="batch",
    queue=1,
    serial_share=0.2927,
    power_share=0.6686,
    low_log2_nodes=1.2,
    high_below_machine_log2=0.0,
    middle_below_high_log2=2.0,
    low_stage_share=0.875,
    short_shape=6.57,
    short_scale=0.823,
    long_shape=639.1,
    long_scale=0.0156,
    short_share_per_node=-0.003,
    short_share_at_0=0.6986,
    gap_shape=6.0415 * 1.0519,
    gap_scale=0.8531,
    day_shape=6.1271,
    day_scale_half_hours=5.2740,
)
"""The published parameters of batch jobs."""

INTERACTIVE = JobClass(
    name="interactive",
    queue=0,
    serial_share=0.1541,
    power_share=0.625,
    low_log2_nodes=1.0,
    high_below_machine_log2=1.5,
    middle_below_high_log2=2.5,
    low_stage_share=0.705,
    short_shape=3.8351,
    short_scale=0.6605,
    long_shape=7.073,
    long_scale=0.6856,
    short_share_per_node=-0.0118,
    short_share_at_0=0.9156,
    gap_shape=6.5510 * 0.9797,
    gap_scale=0.6621,
    day_shape=8.9186,
    day_scale_half_hours=3.6680,
)
"""The published parameters of interactive jobs."""

POPULAR_LIMITS: tuple[tuple[int, float], ...] = (
    (5 * _MINUTE_S, 8.0),
    (10 * _MINUTE_S, 8.0),
    (15 * _MINUTE_S, 5.0),
    (20 * _MINUTE_S, 3.0),
    (30 * _MINUTE_S, 7.0),
    (45 * _MINUTE_S, 1.0),
    (1 * _HOUR_S, 12.0),
    (2 * _HOUR_S, 8.0),
    (3 * _HOUR_S, 4.0),
    (4 * _HOUR_S, 8.0),
    (5 * _HOUR_S, 2.0),
    (6 * _HOUR_S, 5.0),
    (8 * _HOUR_S, 5.0),
    (10 * _HOUR_S, 2.0),
    (12 * _HOUR_S, 7.0),
    (16 * _HOUR_S, 1.0),
    (18 * _HOUR_S, 1.0),
    (24 * _HOUR_S, 8.0),
    (36 * _HOUR_S, 1.0),
    (48 * _HOUR_S, 4.0),
)
"""Twenty time limits in seconds, ascending, each with its popularity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadModel:
    """A machine, a span of time and what its users submit.

    Attributes:
        nodes: The machine's size in whole nodes, 1 or more.
        days: Length of the span in days, above 0. It begins on a Monday at 00:00.
        load: Offered load, above 0: node-seconds submitted during the span over
            node-seconds of the machine in the span. More than 1 never catches up.
        seed: 0 or more; the same model with the same seed gives the same trace.
        classes: The classes of jobs, one or more, drawn independently and merged.
            ``(ALL_JOBS,)`` or ``(BATCH, INTERACTIVE)``.
        longest_log_run: Natural logarithm of the longest run time in seconds; a
            longer one is drawn again. 10 to 700. Published: 12, which is 45 h.
        longest_log_gap: The same for gaps, 8 to 700. Published: 13, which is 5 days.
        weekend_weight: Submissions per hour on Saturday and Sunday over those on
            a weekday, above 0. Ours; the published model has no week: 1.
        limits: Time limits that users ask for, in seconds, ascending, each with
            its popularity. Ours. The last is at least the longest run time.
        closeness: How much users prefer limits near their job's run time: the
            popularity of a limit is multiplied by ``(run / limit) ** closeness``.
            Ours. 0 makes the choice among the limits that are long enough
            independent of the run time.
        users: How many users there are, 1 or more. Ours: user k submits a share
            of the jobs proportional to 1 / k.

    Raises:
        ValueError: A value lies outside the range given above.

    Source:
        U. Lublin and D. G. Feitelson, "The workload on parallel supercomputers:
        modeling the characteristics of rigid jobs", Journal of Parallel and
        Distributed Computing 63(11), 2003. docs/generator.md says which values
        could be verified, and what is ours.
    """

    nodes: int
    days: float = 7.0
    load: float = 0.9
    seed: int = 1
    classes: tuple[JobClass, ...] = (ALL_JOBS,)
    longest_log_run: float = 12.0
    longest_log_gap: float = 13.0
    weekend_weight: float = 1.0
    limits: tuple[tuple[int, float], ...] = POPULAR_LIMITS
    closeness: float = 1.0
    users: int = 64

    def __post_init__(self) -> None:
        """Refuse what no machine and no user can be."""
        for name, good, expected in self._requirements():
            if not good:
                raise ValueError(
                    f"{name} must be {expected}, not {getattr(self, name)!r}. "
                    f"No job was generated."
                )

    def _requirements(self) -> tuple[tuple[str, bool, str], ...]:
        limits_s = [limit_s for limit_s, _ in self.limits]
        longest_s = math.exp(min(self.longest_log_run, _MOST_LOG_S))
        return (
            ("nodes", self.nodes >= 1, "1 or more"),
            ("days", 0 < self.days < math.inf, "above 0"),
            ("load", 0 < self.load < math.inf, "above 0"),
            ("seed", self.seed >= 0, "0 or more"),
            ("users", self.users >= 1, "1 or more"),
            ("classes", bool(self.classes), "one or more"),
            ("weekend_weight", 0 < self.weekend_weight < math.inf, "above 0"),
            ("longest_log_run", *_within(self.longest_log_run, 10, _MOST_LOG_S)),
            ("longest_log_gap", *_within(self.longest_log_gap, 8, _MOST_LOG_S)),
            ("closeness", 0 <= self.closeness < math.inf, "0 or more"),
            (
                "limits",
                limits_s == sorted(set(limits_s))
                and max(limits_s, default=0) >= longest_s,
                f"ascending, and end at {longest_s:.0f} s or later",
            ),
        )

    @property
    def span_s(self) -> float:
        """Length of the span, in seconds."""
        return self.days * 86_400


def _within(bound: float, least: int, most: int) -> tuple[bool, str]:
    """Say whether *bound* leaves enough to draw: below *least*, next to nothing."""
    return least <= bound <= most, f"{least} to {most}"
