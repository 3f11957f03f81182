"""The Lublin-Feitelson workload model: seeded traces for machines of any size.

First the model and its published parameters, then how a trace is generated, then the
distributions of one job (submission, size, run time, limit, user), then the random
numbers under them, and last the sample weeks that ship with FreeTrain.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from numpy.random import PCG64, SeedSequence

from logs.schedule import node_names, schedule
from logs.simulation import Method
from logs.trace import Job, JobTrace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_HOUR_S = 3600
_MINUTE_S = 60

_MOST_LOG_S = 700
"""The exponential of anything larger is near what a float can hold."""


@dataclass(frozen=True, slots=True)
class JobClass:
    """The distributions of one class of jobs, as Lublin and Feitelson model it.

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

GPU_JOBS = replace(
    ALL_JOBS,
    name="gpu",
    serial_share=0.55,
    power_share=1.0,
    low_log2_nodes=1.0,
    high_below_machine_log2=3.0,
    middle_below_high_log2=2.0,
    low_stage_share=0.9,
    short_share_per_node=0.0,
    short_share_at_0=0.5,
)
"""Jobs of GPUs, in powers of two. Ours, fitted to no log: on 32 nodes of 8 GPUs, 55 %
have one, 10 % two, 20 % four, 11 % a node and 3 % two or four nodes; half are long."""

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
    """A machine, a span of time and the jobs that its users submit.

    Attributes:
        nodes: The machine's size in whole nodes, 1 or more.
        gpus_per_node: GPUs of each, where jobs are of GPUs and share nodes: then sizes
            of jobs, and of the machine in ``classes``, are GPUs; None for whole nodes.
        days: Length of the span in days, above 0. It begins on a Monday at 00:00.
        load: Offered load, above 0: node-seconds (GPU-seconds) submitted during the
            span over those of the machine in the span. More than 1 never catches up.
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
        Distributed Computing 63(11), 2003. docs/reference/generator.md says which
        values could be verified, and which are ours.
    """

    nodes: int
    gpus_per_node: int | None = None
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
        """Refuse values outside their ranges."""
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
            ("gpus_per_node", self.gpus_per_node != 0, "1 or more"),
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

    @property
    def units(self) -> int:
        """The machine's size, in nodes or GPUs as the jobs'."""
        return self.nodes * (self.gpus_per_node or 1)


def _within(bound: float, least: int, most: int) -> tuple[bool, str]:
    """Say whether *bound* lies in the range; below *least* nearly all is redrawn."""
    return least <= bound <= most, f"{least} to {most}"


MONDAY_UNIX_S = 1_704_067_200.0
"""Unix time of t = 0: Monday 2024-01-01 00:00 UTC, a fiction with a weekday."""

GENERATOR_VERSION = 1
"""Grows by one whenever a model and a seed no longer give the jobs they gave."""

_COMPLETED = "1"
"""The status of the Standard Workload Format for a job that ran to its end."""

# Keys of the random streams, after the number of the class. Never renumber them:
# every trace ever generated would change.
_GAPS, _SIZES, _RUNS, _LIMITS, _USERS = range(5)


def generate(model: WorkloadModel) -> JobTrace:
    """Return a trace of the jobs that *model* submits, without start times.

    Jobs are drawn until they hold ``load`` times the machine's node-seconds; all
    gaps are then stretched by one factor, so that the first job left out falls on
    the end of the span. So the offered load is met to within the last job, and
    the shapes of the jobs do not depend on it.

    Source:
        See ``WorkloadModel``; the calibration is ours.
    """
    drafts, first_left_out = _draft_enough(model)
    stretch = 1 / first_left_out
    cycles = [Cycle(jobs, model) for jobs in model.classes]
    submitted = []
    for i, (at, class_number, job) in enumerate(drafts):
        cycle = cycles[class_number]
        working_s = at * stretch * cycle.working_s(model.span_s)
        submit_s = int(min(cycle.clock_s(working_s), model.span_s - 1))
        submitted.append((submit_s, i, job))
    return JobTrace(
        source=f"lublin-{model.nodes}-nodes-seed-{model.seed}",
        log_format="generated",
        jobs=tuple(
            replace(job, job_id=str(number), submit_s=float(submit_s))
            for number, (submit_s, _, job) in enumerate(sorted(submitted), start=1)
        ),
        units=model.units,
        units_per_node=model.gpus_per_node or 1,
        counts_gpus=model.gpus_per_node is not None,
        unix_start_s=MONDAY_UNIX_S,
        comments=_comments(model),
    )


_Draft = tuple[float, int, Job]
"""A job without id and submission: when it is submitted, as a share of the span before
calibration, and the number of its class."""


def _draft_enough(model: WorkloadModel) -> tuple[list[_Draft], float]:
    """Return the drafts of the jobs, and when the first one left out is submitted."""
    wanted_node_s = model.load * model.units * model.span_s
    streams = [_drafts(model, number) for number in range(len(model.classes))]
    drafts: list[_Draft] = []
    endless = heapq.merge(*streams, key=itemgetter(0))
    while wanted_node_s > 0:
        draft = next(endless)
        _, _, job = draft
        wanted_node_s -= job.units * int(job.run_s)
        drafts.append(draft)
    return drafts, next(endless)[0]


def _drafts(model: WorkloadModel, class_number: int) -> Iterator[_Draft]:
    jobs = model.classes[class_number]
    gaps, sizes, runs, limits, users = (
        Draws(model.seed, class_number, aspect)
        for aspect in (_GAPS, _SIZES, _RUNS, _LIMITS, _USERS)
    )
    span_s = Cycle(jobs, model).working_s(model.span_s)
    by_user = user_weights(model.users)
    for working_s in working_times_s(gaps, jobs, model.longest_log_gap):
        nodes = draw_nodes(sizes, jobs, model.units)
        run_s = draw_run_s(runs, jobs, nodes, longest_log_run=model.longest_log_run)
        job = Job(
            job_id="",
            submit_s=0.0,
            start_s=None,
            run_s=float(run_s),
            units=nodes,
            requested_s=float(draw_limit_s(limits, model, run_s)),
            user=str(draw_index(users, by_user) + 1),
            state=_COMPLETED,
            node_count=-(-nodes // model.gpus_per_node) if model.gpus_per_node else 0,
            swf=(("queue", float(jobs.queue)),),
        )
        yield working_s / span_s, class_number, job


def _comments(model: WorkloadModel) -> tuple[str, ...]:
    return (
        "Synthetic: no machine and no person is in this log.",
        "Model: Lublin and Feitelson 2003; limits: docs/reference/generator.md",
        f"Generator: FreeTrain logs.generate, version {GENERATOR_VERSION}",
        f"Seed: {model.seed}",
        f"Offered load: {model.load:g} of {model.nodes} nodes, {model.days:g} days",
        f"Weekend weight: {model.weekend_weight:g}",
        *(f"Queue: {jobs.queue} {jobs.name}" for jobs in model.classes),
    )


HALF_HOUR_S = 1800
HALF_HOURS_A_DAY = 48
_WEEK_S = 7 * HALF_HOURS_A_DAY * HALF_HOUR_S

FIRST_HALF_HOUR = 11
"""The model's day begins with its 11th half hour, at 05:00, the quietest one.

The parameters say 11 without a unit. In half hours the shares of the day's first
and last half hour agree within 50 % for all three published classes, as a cycle
must; in hours they would differ by a factor of 40.
"""


def working_times_s(
    draws: Draws, jobs: JobClass, longest_log_gap: float
) -> Iterator[float]:
    """Yield the submissions of one class without end, in working seconds.

    Working seconds pass faster while many users work, see ``Cycle``. Gaps
    between submissions have a gamma-distributed natural logarithm.
    """
    now = 0.0
    while True:
        log_gap = draws.gamma(jobs.gap_shape, jobs.gap_scale)
        if log_gap <= longest_log_gap:
            now += math.exp(log_gap)
            yield now


class Cycle:
    """The week's rhythm of one class: how working time passes while the clock runs.

    A whole week holds as many working seconds as it has seconds.
    """

    def __init__(self, jobs: JobClass, model: WorkloadModel) -> None:
        day = day_shares(jobs)
        week = day * 5 + [share * model.weekend_weight for share in day] * 2
        scale = _WEEK_S / math.fsum(week)
        # Working seconds since Monday 00:00 at the end of each half hour, 0 first.
        self._passed_s = list(accumulate((w * scale for w in week), initial=0.0))

    def working_s(self, clock_s: float) -> float:
        """Return the working seconds passed at *clock_s* seconds since Monday."""
        weeks, rest_s = divmod(clock_s, _WEEK_S)
        i = min(int(rest_s // HALF_HOUR_S), len(self._passed_s) - 2)
        part = rest_s / HALF_HOUR_S - i
        low, high = self._passed_s[i], self._passed_s[i + 1]
        return weeks * self._passed_s[-1] + low + part * (high - low)

    def clock_s(self, working_s: float) -> float:
        """Return when *working_s* working seconds have passed: the inverse."""
        weeks, rest_s = divmod(working_s, self._passed_s[-1])
        i = min(bisect_right(self._passed_s, rest_s), len(self._passed_s) - 1) - 1
        low, high = self._passed_s[i], self._passed_s[i + 1]
        part = (rest_s - low) / (high - low)
        return weeks * _WEEK_S + (i + part) * HALF_HOUR_S


def day_shares(jobs: JobClass) -> list[float]:
    """Return each half hour's share of a day's submissions, midnight first."""
    shares = [0.0] * HALF_HOURS_A_DAY
    for i in range(FIRST_HALF_HOUR, FIRST_HALF_HOUR + HALF_HOURS_A_DAY):
        high = gamma_cdf(jobs.day_shape, (i + 0.5) / jobs.day_scale_half_hours)
        low = gamma_cdf(jobs.day_shape, (i - 0.5) / jobs.day_scale_half_hours)
        shares[(i - 1) % HALF_HOURS_A_DAY] = high - low
    total = math.fsum(shares)
    return [share / total for share in shares]


def gamma_cdf(shape: float, x: float) -> float:
    """Return the probability that a gamma number of scale 1 is below *x*.

    The power series of the incomplete gamma function; its terms are positive, so
    that nothing cancels.

    Source:
        NIST Digital Library of Mathematical Functions, 8.7.1.
    """
    term = math.exp(shape * math.log(x) - x - math.lgamma(shape + 1.0))
    total = 0.0
    n = 0
    while term > total * 1e-17:
        total += term
        n += 1
        term *= x / (shape + n)
    return total


def draw_nodes(draws: Draws, jobs: JobClass, machine_nodes: int) -> int:
    """Draw a job's size: 1 to *machine_nodes* whole nodes.

    A job is serial, or its log2 size comes from a two-stage uniform distribution;
    most sizes are then rounded to a power of two, the others to a whole node.
    """
    high = math.log2(machine_nodes) - jobs.high_below_machine_log2
    if draws.uniform() < jobs.serial_share or high < jobs.low_log2_nodes:
        return 1
    log2_nodes = draw_two_stage(draws, jobs, high)
    if draws.uniform() < jobs.power_share:
        largest_power = machine_nodes.bit_length() - 1
        return int(math.exp2(min(math.floor(log2_nodes + 0.5), largest_power)))
    return min(math.floor(math.exp2(log2_nodes) + 0.5), machine_nodes)


def draw_two_stage(draws: Draws, jobs: JobClass, high: float) -> float:
    """Draw from two uniform stages that meet at ``two_stage_middle``."""
    middle = two_stage_middle(jobs, high)
    if draws.uniform() < jobs.low_stage_share:
        return jobs.low_log2_nodes + draws.uniform() * (middle - jobs.low_log2_nodes)
    return middle + draws.uniform() * (high - middle)


def two_stage_middle(jobs: JobClass, high: float) -> float:
    """Return the log2 size where the stages meet.

    On a machine so small that it would lie below the smallest parallel job (under
    ten nodes), it is half-way between the smallest and the largest.
    """
    middle = high - jobs.middle_below_high_log2
    if middle >= jobs.low_log2_nodes:
        return middle
    return (jobs.low_log2_nodes + high) / 2


def draw_run_s(
    draws: Draws, jobs: JobClass, nodes: int, *, longest_log_run: float
) -> int:
    """Draw the run time of a job of *nodes* nodes, in whole seconds, 1 or more.

    The natural logarithm is hyper-gamma: short or long, and the larger the job,
    the more likely long. A time beyond the longest is drawn again, both choices.
    """
    share = short_share(jobs, nodes)
    short = jobs.short_shape, jobs.short_scale
    long = jobs.long_shape, jobs.long_scale
    while True:
        is_short = draws.uniform() < share
        log_s = draws.gamma(*(short if is_short else long))
        if log_s <= longest_log_run:
            return max(1, math.floor(math.exp(log_s) + 0.5))


def short_share(jobs: JobClass, nodes: int) -> float:
    """Return the share of short jobs among those of *nodes* nodes, 0 to 1."""
    share = jobs.short_share_per_node * nodes + jobs.short_share_at_0
    return min(1.0, max(0.0, share))


def draw_limit_s(draws: Draws, model: WorkloadModel, run_s: int) -> int:
    """Draw the time limit that a job of *run_s* seconds asks for.

    One of the popular limits that are long enough, by popularity and closeness.
    """
    enough = [(limit, weight) for limit, weight in model.limits if limit >= run_s]
    weights = [
        weight * (run_s / limit_s) ** model.closeness for limit_s, weight in enough
    ]
    return enough[draw_index(draws, list(accumulate(weights)))][0]


def user_weights(users: int) -> list[float]:
    """Return the cumulative weights of users, the busiest first."""
    return list(accumulate(1.0 / rank for rank in range(1, users + 1)))


def draw_index(draws: Draws, cumulative: Sequence[float]) -> int:
    """Draw an index with probability by *cumulative* weights."""
    i = bisect_right(cumulative, draws.uniform() * cumulative[-1])
    return min(i, len(cumulative) - 1)


BLOCK = 1024
"""Raw numbers fetched at once; it changes the speed, never the numbers."""


class Draws:
    """One stream of random numbers, named by a seed and a key.

    NumPy promises that the raw words of ``PCG64`` and the seeding by
    ``SeedSequence`` stay as they are, and does not promise it for the
    distributions of ``Generator`` (NEP 19). So everything here is made from raw
    words. What is left to the platform is the last bit of ``log`` and ``exp``.

    Streams with different keys are independent: a longer trace, or another
    parameter of one aspect, leaves the numbers of the other aspects alone.
    """

    __slots__ = ("_bits", "_block", "_next")

    def __init__(self, seed: int, *key: int) -> None:
        self._bits = PCG64(SeedSequence(seed, spawn_key=key))
        self._block: list[int] = []
        self._next = 0

    def uniform(self) -> float:
        """Return a number in [0, 1), a multiple of 2**-53."""
        if self._next == len(self._block):
            self._block = self._bits.random_raw(BLOCK).tolist()
            self._next = 0
        word = self._block[self._next]
        self._next += 1
        return (word >> 11) * 2.0**-53

    def normal(self) -> float:
        """Return a standard normal number (polar method, Marsaglia and Bray 1964)."""
        while True:
            x = 2.0 * self.uniform() - 1.0
            y = 2.0 * self.uniform() - 1.0
            square = x * x + y * y
            if 0.0 < square < 1.0:
                return x * math.sqrt(-2.0 * math.log(square) / square)

    def gamma(self, shape: float, scale: float) -> float:
        """Return a gamma number with mean ``shape * scale``.

        Args:
            shape: 1 or more; every shape of the workload model is.
            scale: Above 0, in the unit of the answer.

        Source:
            Marsaglia and Tsang, "A simple method for generating gamma
            variables", ACM TOMS 26(3), 2000.
        """
        d = shape - 1.0 / 3.0
        c = 1.0 / math.sqrt(9.0 * d)
        while True:
            x = self.normal()
            v = (1.0 + c * x) ** 3
            if v <= 0.0:
                continue
            u = 1.0 - self.uniform()  # (0, 1], so that its logarithm exists
            if math.log(u) < 0.5 * x * x + d * (1.0 - v + math.log(v)):
                return d * v * scale


SAMPLE_MODEL = WorkloadModel(
    nodes=512,
    days=7,
    load=0.95,
    seed=2,
    classes=(BATCH, INTERACTIVE),
    weekend_weight=0.6,
)
"""A week of a busy machine of 512 nodes.

Of the seeds 1 to 15 this one comes nearest to a machine that was busy before the
log begins: 89 % of the week's node-time is used, no day under 80 %.
"""

SAMPLE_NAME = "week-512.swf"
"""Plain text: it can be read and compared, and no compressor's version is in it."""


GPU_SAMPLE_MODEL = WorkloadModel(
    nodes=32,
    gpus_per_node=8,
    days=7,
    load=0.8,
    seed=1,
    classes=(GPU_JOBS,),
    weekend_weight=0.6,
)
"""A week of a busy machine of 32 nodes with 8 GPUs, which jobs share."""

GPU_SAMPLE_NAME = "gpu-week-32x8.csv"


def shipped_sample(name: str = SAMPLE_NAME) -> Path:
    """Return where the installed package keeps a sample week."""
    return Path(__file__).parent / "samples" / name


def sample_trace(model: WorkloadModel = SAMPLE_MODEL) -> JobTrace:
    """Return a sample week's jobs, started by EASY backfilling."""
    trace = start_by_easy(generate(model))
    gpus = f" --gpus-per-node {model.gpus_per_node}" if model.gpus_per_node else ""
    return replace(
        trace,
        comments=(
            *trace.comments,
            "Start times: EASY backfilling in order of submission, simulated",
            f"Made by: freetrain trace generate --sample{gpus} --out logs/samples",
        ),
    )


def start_by_easy(trace: JobTrace) -> JobTrace:
    """Return *trace* with the start times that EASY backfilling gives its jobs.

    Jobs of GPUs get the nodes too, as packing them by their starts would not always
    find the same.
    """
    made = schedule(trace, Method.EASY)
    jobs = list(trace.jobs)
    for placed in made.placed:
        nodes = node_names(made, placed) if trace.counts_gpus else ()
        job = replace(jobs[placed.job], start_s=placed.start_s, nodes=nodes)
        jobs[placed.job] = job
    return replace(trace, jobs=tuple(jobs))
