"""Learned scaling: a trainer's speed by node count, measured on its own fragments.

A *fragment* is a stretch of work on a fixed set of nodes. Each shows a speed, and the
cost of the rescale before it; :class:`LearnedScaling` keeps the newest of them.
:func:`estimate` makes speeds at every node count from these and from the other trainers
of the site. :func:`cautious` and :func:`curve_values` turn the estimate into the curve
that a planner gets.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import accumulate, pairwise
from statistics import fmean, median
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from freetrain.errors import BadDataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray


# ----------------------------------------------------------------------
# Assumptions about every trainer until it is measured.

ASSUMED_EXPONENT = 0.9
"""Speed on n nodes is assumed to be n ** 0.9 times that on one node."""

ASSUMED_RESCALE_S = 3.0
ASSUMED_START_S = 5.0
"""A clean rescale without a checkpoint took 0.75 s on the test cluster."""

ASSUMED_STAY_S = 1_000.0
"""How long a trainer is assumed to keep the nodes that it starts on."""


# ----------------------------------------------------------------------
# One fragment: the speed and the rescale cost that it shows.

_FEW_STEPS = 2
"""A single step is no measurement: it may have loaded data or compiled the model."""

_DEVIATIONS = 3.0
_LEAST_SPREAD = 0.02
"""Intervals within three deviations of the steady speed, and within 6 % in any case,
belong to it."""

_MOST_WEIGHT = 2.0
"""No interval counts for more than this many ordinary ones, so that a long stall does
not outweigh the steps before and after it."""


class Rescale(StrEnum):
    """The kind of change that brought a trainer to its node count."""

    GROW = "grow"
    SHRINK = "shrink"
    START = "start"


@dataclass(frozen=True, slots=True)
class ProgressMark:
    """A moment within a fragment, and the work done by then.

    Attributes:
        t_s: When, on the fragment's clock.
        samples: Training samples since the fragment's first step.
    """

    t_s: float
    samples: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedFragment:
    """One stretch of work on a fixed set of nodes, as far as it has got.

    Attributes:
        nodes: How many, above 0.
        began_s: When the nodes were assigned; no two fragments of a trainer share it.
        first_step_s: When its first step was done; None before.
        last_step_s: When its last step so far was done.
        samples: Training samples after the first step, up to the last.
        steps: Steps after the first, up to the last.
        marks: Moments between the two steps, ascending; may be none.
        nodes_before: Nodes of the fragment before; 0 where it starts from none.
        step_before_s: When the fragment before did its last step; None for unknown.
        follows_failure: Whether the fragment before ended by a failure.
    """

    nodes: int
    began_s: float
    first_step_s: float | None
    last_step_s: float
    samples: float
    steps: int
    marks: tuple[ProgressMark, ...] = ()
    nodes_before: int = 0
    step_before_s: float | None = None
    follows_failure: bool = False


@dataclass(frozen=True, slots=True)
class MeasuredSpeed:
    """A speed that was measured.

    Attributes:
        began_s: When its fragment began; it also identifies the fragment.
        samples_per_s: Steady speed, above 0.
        trained_s: Seconds of steady training behind it, above 0.
    """

    began_s: float
    samples_per_s: float
    trained_s: float


@dataclass(frozen=True, slots=True)
class RescaleCost:
    """The cost of a rescale.

    Attributes:
        began_s: When its fragment began.
        seconds: Time without training.
    """

    began_s: float
    seconds: float


def measured_speed(fragment: TrainedFragment) -> MeasuredSpeed | None:
    """Return the steady speed of *fragment*; None where it shows none.

    The first intervals count as warm-up for as long as they are slower than the
    second half of the fragment by more than its spread. The others are averaged
    after each is brought within that spread. Without marks there is one interval.
    """
    if fragment.first_step_s is None or fragment.steps < _FEW_STEPS:
        return None
    lengths_s, speeds = _intervals(fragment, fragment.first_step_s)
    if not speeds:
        return None
    most_s = _MOST_WEIGHT * median(lengths_s)
    weights_s = [min(length_s, most_s) for length_s in lengths_s]
    steady, spread_per_s = _steady(speeds, weights_s)
    within = _DEVIATIONS * max(spread_per_s, _LEAST_SPREAD * steady)
    first = next(k for k, speed in enumerate(speeds) if speed >= steady - within)
    trained_s = sum(weights_s[first:])
    samples_per_s = (
        sum(
            min(max(speed, steady - within), steady + within) * weight_s
            for speed, weight_s in zip(speeds[first:], weights_s[first:], strict=True)
        )
        / trained_s
    )
    if not (0 < samples_per_s < math.inf and 0 < trained_s < math.inf):
        return None
    return MeasuredSpeed(fragment.began_s, samples_per_s, trained_s)


def rescale_cost(fragment: TrainedFragment) -> tuple[Rescale, RescaleCost] | None:
    """Return the cost of the rescale to *fragment*; None where it is unknown.

    Restarts after a failure, and on as many nodes as before, are no rescales. The
    first step itself counts as cost.
    """
    if fragment.first_step_s is None or fragment.follows_failure:
        return None
    if fragment.nodes_before == 0:
        kind, from_s = Rescale.START, fragment.began_s
    elif fragment.nodes != fragment.nodes_before and fragment.step_before_s is not None:
        grows = fragment.nodes > fragment.nodes_before
        kind = Rescale.GROW if grows else Rescale.SHRINK
        from_s = fragment.step_before_s
    else:
        return None
    seconds = fragment.first_step_s - from_s
    if not 0 <= seconds < math.inf:
        return None
    return kind, RescaleCost(fragment.began_s, seconds)


def _intervals(
    fragment: TrainedFragment, first_step_s: float
) -> tuple[list[float], list[float]]:
    """Return lengths in seconds and speeds in samples/s of the sound intervals.

    Time that stands still or goes back, and work that is undone, is left out.
    """
    points = [
        (first_step_s, 0.0),
        *((mark.t_s, mark.samples) for mark in fragment.marks),
        (fragment.last_step_s, fragment.samples),
    ]
    sound = [
        (later_s - t_s, (more - samples) / (later_s - t_s))
        for (t_s, samples), (later_s, more) in pairwise(points)
        if 0 < later_s - t_s < math.inf and 0 <= more - samples < math.inf
    ]
    finite = [(length_s, speed) for length_s, speed in sound if speed < math.inf]
    return [length_s for length_s, _ in finite], [speed for _, speed in finite]


def _steady(speeds: list[float], weights_s: list[float]) -> tuple[float, float]:
    """Return median and spread of the second half, which warm-up rarely reaches."""
    half_s = sum(weights_s) / 2
    late = bisect_right(list(accumulate(weights_s)), half_s)
    steady = weighted_median(speeds[late:], weights_s[late:])
    return steady, spread(speeds[late:], weights_s[late:], steady)


# ----------------------------------------------------------------------
# All fragments of a trainer: the newest speeds and costs.

_MOST_SEEN = 7
"""Speeds kept of one size: three absurd ones do not move the median."""

_MOST_PAID = 9

_Kept = TypeVar("_Kept", bound=MeasuredSpeed | RescaleCost)


@dataclass(frozen=True, slots=True)
class LearnedScaling:
    """The newest speeds and rescale costs of a trainer; a value.

    Attributes:
        seen: By node count, the newest speeds, ascending in time.
        paid: By kind, the costs of the newest rescales, ascending in time.
    """

    seen: Mapping[int, tuple[MeasuredSpeed, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    paid: Mapping[Rescale, tuple[RescaleCost, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )

    def with_fragment(self, fragment: TrainedFragment) -> LearnedScaling:
        """Return this with *fragment* added.

        A fragment that was added before is replaced: add one under way again as it
        goes on.
        """
        return self.merged(_from_one(fragment))

    def merged(self, newer: LearnedScaling) -> LearnedScaling:
        """Return both together; where both have a fragment, that of *newer*."""
        seen, paid = dict(self.seen), dict(self.paid)
        for nodes, speeds in newer.seen.items():
            seen[nodes] = _newest(seen.get(nodes, ()), speeds, _MOST_SEEN)
        for kind, costs in newer.paid.items():
            paid[kind] = _newest(paid.get(kind, ()), costs, _MOST_PAID)
        return LearnedScaling(MappingProxyType(seen), MappingProxyType(paid))

    def cost_s(self, kind: Rescale, *, assumed_s: float) -> float:
        """Return seconds without training: the median of *assumed_s* and the costs.

        So the first rescale meets the assumption halfway, and a single absurdly long
        one does not decide.
        """
        seconds = [assumed_s, *(cost.seconds for cost in self.paid.get(kind, ()))]
        return weighted_median(seconds, [1.0] * len(seconds))


def _from_one(fragment: TrainedFragment) -> LearnedScaling:
    seen, paid = measured_speed(fragment), rescale_cost(fragment)
    return LearnedScaling(
        {} if seen is None else {fragment.nodes: (seen,)},
        {} if paid is None else {paid[0]: (paid[1],)},
    )


def _newest(
    known: Iterable[_Kept], newer: Iterable[_Kept], most: int
) -> tuple[_Kept, ...]:
    """Return both by the time their fragments began, the last *most* of them."""
    by_start = {entry.began_s: entry for entry in (*known, *newer)}
    return tuple(by_start[began_s] for began_s in sorted(by_start)[-most:])


# ----------------------------------------------------------------------
# One size: the speeds that were measured there, weighted by time and age.

HALF_LIFE_S = 3 * 86_400.0
"""After three days a speed counts half."""

_LEAST_SPEED_SD = 0.005
_SHORT_SD = 0.1
_SHORT_S = 5.0
"""Five seconds of training measure a speed to 10 %, four times as long to 5 %."""

_LEAST_KEPT = 1e-9
"""Very old speeds are still better than none."""


class Pooled(NamedTuple):
    """The speed measured at one size.

    Attributes:
        log_speed: Natural logarithm of samples/s.
        log_sd: Its standard deviation.
    """

    log_speed: float
    log_sd: float


def pool(seen: Sequence[MeasuredSpeed], *, now_s: float) -> Pooled:
    """Return the median of *seen*, at least one speed, weighted by time and age.

    An outlier makes the answer less certain, and moves it little.
    """
    logs = [math.log(speed.samples_per_s) for speed in seen]
    weights_s = [speed.trained_s * _kept(now_s - speed.began_s) for speed in seen]
    whole_s = sum(weights_s)
    centre = weighted_median(logs, weights_s)
    fuzz = spread(logs, weights_s, centre) / math.sqrt(len(logs))
    short = _SHORT_SD * math.sqrt(_SHORT_S / whole_s)
    return Pooled(centre, math.hypot(_LEAST_SPEED_SD, short, fuzz))


def _kept(age_s: float) -> float:
    return max(_LEAST_KEPT, math.exp2(-max(0.0, age_s) / HALF_LIFE_S))


# ----------------------------------------------------------------------
# The prior: the speeds expected of a trainer, from the other trainers of the site.

ASSUMED_EXPONENT_SD = 0.1
ASSUMED_LOG_SD = 0.1
"""Twice the values measured on Summit: exponents of seven networks lie between 0.82
and 0.98, and each doubling strays from the power law by 0.04, in AlexNet 0.09."""

_ASSUMED_WEIGHT = 3.0
"""The assumptions count as much as three measured trainers."""

_VARIANCE = ASSUMED_LOG_SD**2
_MOST_VARIANCE = 0.25
_DOUBLING = math.log(2.0)

_LEAST_SCALE_SD = 0.3
_WIDE_SD = 3.0
_FEW_TRAINERS = 3
_LEAST_SPAN = _DOUBLING * 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedPrior:
    """Speeds that are expected of a trainer: one node's, times nodes ** exponent.

    Attributes:
        one_node_per_s: Samples a second on one node.
        one_node_log_sd: Standard deviation of its logarithm.
        exponent: Of the power law.
        exponent_sd: Its standard deviation.
        log_sd_per_doubling: By how much the logarithm of speed strays from the power
            law at each doubling of nodes.
    """

    one_node_per_s: float = 1.0
    one_node_log_sd: float = _WIDE_SD
    exponent: float = ASSUMED_EXPONENT
    exponent_sd: float = ASSUMED_EXPONENT_SD
    log_sd_per_doubling: float = ASSUMED_LOG_SD


@dataclass(frozen=True, slots=True)
class Shown:
    """Scale and slope of one trainer's speeds, from which a prior is made.

    Attributes:
        one_node_per_s: Samples a second on one node, measured or extrapolated.
        exponent: Of a power law through its speeds; None where it ran on sizes that
            are less than a doubling apart.
        log_variance: By which the logarithm of speed strays from that law, each
            doubling of nodes; None likewise.
    """

    one_node_per_s: float
    exponent: float | None = None
    log_variance: float | None = None


def shown_by(learned: LearnedScaling, *, now_s: float) -> Shown | None:
    """Return scale and slope of *learned*; None before any speed was measured."""
    if not learned.seen:
        return None
    points = [
        (math.log(nodes), pool(seen, now_s=now_s).log_speed)
        for nodes, seen in sorted(learned.seen.items())
    ]
    at, level = points[0]
    if points[-1][0] - at < _LEAST_SPAN:
        return Shown(math.exp(level - ASSUMED_EXPONENT * at))
    slope = _slope(points)
    return Shown(math.exp(level - slope * at), slope, _strays(points, slope))


def _slope(points: list[tuple[float, float]]) -> float:
    """Return the slope of the straight line through *points*."""
    x, y = fmean(at for at, _ in points), fmean(level for _, level in points)
    over = sum((at - x) * (level - y) for at, level in points)
    return over / sum((at - x) ** 2 for at, _ in points)


def _strays(points: list[tuple[float, float]], slope: float) -> float:
    """Return the variance about the line through *points*, each doubling."""
    strayed = sum(
        (later_level - level - slope * (later - at)) ** 2 / (later - at)
        for (at, level), (later, later_level) in pairwise(points)
    )
    # The line is made of the points: two of them stray from it by nothing.
    free = len(points) - 2
    return min(_MOST_VARIANCE, strayed * _DOUBLING / free) if free else _VARIANCE


def site_prior(trainers: Iterable[Shown]) -> SpeedPrior:
    """Return the prior for a trainer at a site where *trainers* were measured.

    Medians, so that no single trainer decides; scales are assumed to differ by at
    least a third between trainers, however alike those measured were.
    """
    shown = list(trainers)
    if not shown:
        return SpeedPrior()
    logs = [math.log(trainer.one_node_per_s) for trainer in shown]
    even = [1.0] * len(logs)
    scale = weighted_median(logs, even)
    scale_sd = max(_LEAST_SCALE_SD, spread(logs, even, scale))
    exponent, exponent_sd = _exponents([trainer.exponent for trainer in shown])
    return SpeedPrior(
        one_node_per_s=math.exp(scale),
        one_node_log_sd=_WIDE_SD if len(logs) < _FEW_TRAINERS else scale_sd,
        exponent=exponent,
        exponent_sd=exponent_sd,
        log_sd_per_doubling=math.sqrt(
            _variance([trainer.log_variance for trainer in shown])
        ),
    )


def _exponents(shown: list[float | None]) -> tuple[float, float]:
    """Return the median exponent and the standard deviation about it."""
    known = [exponent for exponent in shown if exponent is not None]
    weights = [_ASSUMED_WEIGHT, *([1.0] * len(known))]
    centre = weighted_median([ASSUMED_EXPONENT, *known], weights)
    squares = _ASSUMED_WEIGHT * ASSUMED_EXPONENT_SD**2
    squares += sum(min((exponent - centre) ** 2, _MOST_VARIANCE) for exponent in known)
    return centre, math.sqrt(squares / sum(weights))


def _variance(shown: list[float | None]) -> float:
    known = [variance for variance in shown if variance is not None]
    return (_ASSUMED_WEIGHT * _VARIANCE + sum(known)) / (_ASSUMED_WEIGHT + len(known))


# ----------------------------------------------------------------------
# The estimate: speed at every node count (reasons: ADR 11).

_MOST_LOG = 60.0
"""No speed exceeds 1e26 samples a second, so that no estimate overflows."""

_USER_LOG_SD = 0.2
_USER_EXPONENT_SD = 0.05
"""Users measure on similar machines, seldom on this one."""


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """Speeds by node count, and their uncertainty.

    Attributes:
        samples_per_s: At 0 .. most nodes, float64, read-only; entry 0 is 0, all
            others are finite and above 0. May fall with more nodes.
        log_sd: Standard deviation of their natural logarithms, read-only; entry 0
            is 0.
        measured: Sizes that were measured.
    """

    samples_per_s: NDArray[np.float64]
    log_sd: NDArray[np.float64]
    measured: frozenset[int]


def estimate(
    learned: LearnedScaling,
    most: int,
    *,
    now_s: float,
    prior: SpeedPrior | None = None,
    user: Mapping[int, float] | None = None,
) -> Estimate:
    """Return speeds at 0 .. *most* nodes.

    The logarithm of speed is a straight line over that of nodes, as *prior* expects
    it, plus a random walk along it: a Gaussian process. So a size that was measured
    for long has the measured speed, also where speed falls with nodes; sizes between
    two measured ones follow the line between them; sizes beyond follow the measured
    slope, shrunk to the prior's; and all sizes take the scale of the measured ones.

    Args:
        learned: The trainer's measurements.
        most: Its largest size, above 0.
        now_s: On the clock of its fragments; the older they are, the less they count.
        prior: Of trainers at this site; None for the common assumption.
        user: The user's own samples a second by node count, above 0; it replaces the
            prior's line, and measurements overrule it.
    """
    expected = _of_user(prior or SpeedPrior()) if user else (prior or SpeedPrior())
    logs = np.log(np.arange(1, most + 1, dtype=np.float64))
    line = _line(expected, logs, user)
    seen = {n: pool(s, now_s=now_s) for n, s in learned.seen.items() if n <= most}
    walk = expected.log_sd_per_doubling**2 / math.log(2.0)
    covariance = (
        expected.one_node_log_sd**2
        + expected.exponent_sd**2 * np.outer(logs, logs)
        + walk * np.minimum.outer(logs, logs)
    )
    mean, variance = line, covariance.diagonal()
    if seen:
        places = np.array(list(seen)) - 1
        level, log_sd = np.array(list(seen.values())).T
        noisy = covariance[np.ix_(places, places)] + np.diag(log_sd**2)
        gain = np.linalg.solve(noisy, covariance[places]).T
        mean = line + gain @ (level - line[places])
        variance = variance - np.einsum("ij,ij->i", gain, covariance[:, places])
    return _bounded(mean, variance, frozenset(seen))


def _of_user(prior: SpeedPrior) -> SpeedPrior:
    """Return *prior* with the uncertainty of a user's figures."""
    return SpeedPrior(
        one_node_per_s=prior.one_node_per_s,
        one_node_log_sd=_USER_LOG_SD,
        exponent=prior.exponent,
        exponent_sd=_USER_EXPONENT_SD,
        log_sd_per_doubling=prior.log_sd_per_doubling,
    )


def _line(
    prior: SpeedPrior, logs: NDArray[np.float64], user: Mapping[int, float] | None
) -> NDArray[np.float64]:
    """Return expected logarithms of speed; beyond a user's points the prior's slope."""
    if not user:
        return math.log(prior.one_node_per_s) + prior.exponent * logs
    at = np.log(np.array(sorted(user), dtype=np.float64))
    levels = np.log([user[n] for n in sorted(user)])
    beyond = np.minimum(logs - at[0], 0.0) + np.maximum(logs - at[-1], 0.0)
    inside: NDArray[np.float64] = np.interp(logs, at, levels)
    line: NDArray[np.float64] = inside + prior.exponent * beyond
    return line


def _bounded(
    mean: NDArray[np.float64], variance: NDArray[np.float64], measured: frozenset[int]
) -> Estimate:
    speeds = np.exp(np.clip(mean, -_MOST_LOG, _MOST_LOG))
    samples_per_s = np.concatenate(([0.0], speeds))
    log_sd = np.concatenate(([0.0], np.sqrt(np.maximum(variance, 0.0))))
    samples_per_s.flags.writeable = log_sd.flags.writeable = False
    return Estimate(samples_per_s, log_sd, measured)


# ----------------------------------------------------------------------
# Caution: lower speeds for trainers that wait.

DEVIATIONS = 1.0
"""With half a deviation two of seven orders of ``imagenet``, 40 at a time, stayed under
97 % of the result with true curves; with one, none did. ``hps``, 40 at a time, loses
0.8 % by it: nodes go to running rather than to waiting trainers."""

BY_SAMPLES = frozenset({"throughput"})
"""Priorities that compare samples a second of one trainer with those of another.

A speed-up is divided by the speed on the smallest size. A trainer measured on many
nodes only is least certain there, so that lowered speeds would raise its speed-up."""


def deviations_for(priority: str) -> float:
    """Return by how many deviations *priority* lowers waiting trainers' speeds."""
    return DEVIATIONS if priority in BY_SAMPLES else 0.0


def cautious(known: Estimate, *, held: int, deviations: float = DEVIATIONS) -> Estimate:
    """Return the speeds that a planner uses for a trainer that holds *held* nodes.

    A waiting trainer that was measured has every speed lowered by so many deviations.
    One that was never measured keeps its prior: if lowered, no new trainer would be
    tried while others wait. A running trainer keeps its speeds: if lowered at other
    sizes, it would never leave the measured ones.
    """
    if held or not known.measured:
        return known
    samples_per_s = known.samples_per_s * np.exp(-deviations * known.log_sd)
    samples_per_s.flags.writeable = False
    return replace(known, samples_per_s=samples_per_s)


# ----------------------------------------------------------------------
# Profiling: when a size of unknown speed is worth trying.

_FAR = 8.0
"""Beyond eight standard deviations nothing is gained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiling:
    """How eager trainers are to try sizes.

    Attributes:
        most: Bonus of a size at most, as a share of its estimated speed.
        known_log_sd: Sizes known this well are not tried.
        unknown_log_sd: A waiting trainer whose speed on its smallest size is less
            certain than this is to be tried there.
        trial_s: How long a trial takes, seconds; about the planner's look-ahead.
        horizon_s: Seconds over which a measurement counts as useful, where the
            trainer does not finish sooner. Much less than trainers live: changes of
            the pool lead to most measurements without trials.
    """

    most: float = 0.15
    known_log_sd: float = 0.03
    unknown_log_sd: float = 0.3
    trial_s: float = 120.0
    horizon_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stake:
    """What a trainer can gain and lose by trying a size.

    Attributes:
        remaining_samples: Work until it is finished; inf where unknown.
        rescale_s: Seconds without training to get there and back, its own and those
            of trainers that make room.
        held: Nodes it holds now.
        smallest: The fewest nodes it can run on.
        node_per_s: Samples a second that a node brings to other trainers.
    """

    remaining_samples: float = math.inf
    rescale_s: float = 0.0
    held: int = 0
    smallest: int = 1
    node_per_s: float = 0.0


def curve_values(
    known: Estimate, *, profiling: Profiling | None, stake: Stake
) -> NDArray[np.float64]:
    """Return samples/s at 0 .. most nodes for a planner, with bonuses for trials.

    Let p be the trainer's samples/s a node now: what a node is worth. Knowing the
    speed f of n nodes, estimated as e with standard deviation s, is worth ::

        I(n) = E[max(0, f - n p)] - max(0, e - n p)

    samples a second for as long as it is of use. A trial costs the rescales, and
    max(0, n p - e) while it lasts. Where it is worth more than it costs, the planner
    gets e plus the bonus ``I(n) use / trial``, up to the cap. As a size gets known,
    that becomes e.

    Only running trainers get bonuses: of waiting ones the least known would get the
    largest, and each would have its turn. But a trainer that waits because it seemed
    slow on one bad size would never be measured again. So where its smallest size is
    as good as unknown, it gets the same bonus at all sizes: what that many nodes bring
    to other trainers.

    Args:
        known: Speeds and their uncertainty.
        profiling: How eager to be; None for no bonuses.
        stake: Gain and cost of a trial.

    Returns:
        Shape (most + 1,), float64, read-only, at least the estimate; entry 0 is 0.
    """
    if profiling is None:
        return known.samples_per_s
    speeds = known.samples_per_s
    is_unsure = known.log_sd[stake.smallest] > profiling.unknown_log_sd
    if not known.measured or (is_unsure and not stake.held):
        elsewhere = stake.smallest * stake.node_per_s
        bonus = np.full(len(speeds), max(elsewhere, speeds[stake.smallest]))
    elif not stake.held:
        return speeds
    else:
        bonus = _trial_bonus(known, profiling, stake)
    values: NDArray[np.float64] = speeds + bonus
    values[0] = 0.0
    values.flags.writeable = False
    return values


def _trial_bonus(
    known: Estimate, profiling: Profiling, stake: Stake
) -> NDArray[np.float64]:
    speeds = known.samples_per_s
    held = min(stake.held or stake.smallest, len(speeds) - 1)
    now_per_s = float(speeds[held])
    short = np.arange(len(speeds)) * (now_per_s / held) - speeds
    use_s = min(profiling.horizon_s, stake.remaining_samples / now_per_s)
    gain = _information(short, speeds * known.log_sd) * use_s
    cost = np.maximum(short, 0.0) * profiling.trial_s + stake.rescale_s * now_per_s
    bonus: NDArray[np.float64] = np.minimum(
        gain / profiling.trial_s, profiling.most * speeds
    )
    bonus[(gain <= cost) | (known.log_sd <= profiling.known_log_sd)] = 0.0
    return bonus


def _information(
    short: NDArray[np.float64], sd: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return sd (phi(z) - z Phi(-z)) with z = |short| / sd: normal, both ways alike."""
    z = np.minimum(np.abs(short) / np.maximum(sd, np.finfo(np.float64).tiny), _FAR)
    below = np.array([math.erfc(value / math.sqrt(2.0)) / 2 for value in z])
    density = np.exp(-(z**2) / 2) / math.sqrt(2.0 * math.pi)
    information: NDArray[np.float64] = sd * np.maximum(density - z * below, 0.0)
    return information


# ----------------------------------------------------------------------
# As JSON, from one tick to the next.

_VERSION = 1


def to_state(learned: LearnedScaling) -> dict[str, object]:
    """Return *learned* as JSON has it; a few kB at the most."""
    return {
        "version": _VERSION,
        "seen": {
            str(nodes): [[s.began_s, s.samples_per_s, s.trained_s] for s in speeds]
            for nodes, speeds in sorted(learned.seen.items())
        },
        "paid": {
            kind.value: [[cost.began_s, cost.seconds] for cost in costs]
            for kind, costs in sorted(learned.paid.items())
        },
    }


def from_state(state: Mapping[str, object]) -> LearnedScaling:
    """Return the scaling of which :func:`to_state` made *state*.

    Raises:
        BadDataError: It is no such state; nothing of it is used.
    """
    if state.get("version") != _VERSION:
        raise _refusal(f"version {state.get('version')!r} instead of {_VERSION}")
    seen = {
        _nodes(key): tuple(MeasuredSpeed(*_numbers(row, 3)) for row in rows)
        for key, rows in _table(state, "seen").items()
    }
    paid = {
        _kind(key): tuple(RescaleCost(*_numbers(row, 2)) for row in rows)
        for key, rows in _table(state, "paid").items()
    }
    if any(
        s.samples_per_s <= 0 or s.trained_s <= 0 for row in seen.values() for s in row
    ):
        raise _refusal("a speed that is not above 0")
    if any(cost.seconds < 0 for row in paid.values() for cost in row):
        raise _refusal("a cost below 0")
    return LearnedScaling(MappingProxyType(seen), MappingProxyType(paid))


def _table(state: Mapping[str, object], name: str) -> dict[str, list[object]]:
    table = state.get(name)
    if not isinstance(table, dict):
        raise _refusal(f"no table {name!r}")
    if not all(isinstance(rows, list) for rows in table.values()):
        raise _refusal(f"something else than lists in {name!r}")
    return table


def _nodes(key: str) -> int:
    if not key.isdecimal() or int(key) < 1:
        raise _refusal(f"the node count {key!r}")
    return int(key)


def _kind(key: str) -> Rescale:
    if key not in set(Rescale):
        raise _refusal(f"the rescale {key!r}")
    return Rescale(key)


def _numbers(row: object, count: int) -> list[float]:
    if not isinstance(row, list) or len(row) != count:
        raise _refusal(f"{row!r} instead of {count} numbers")
    for number in row:
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if not is_number or not math.isfinite(number):
            raise _refusal(f"{number!r} instead of a finite number")
    return [float(number) for number in row]


def _refusal(found: str) -> BadDataError:
    return BadDataError(
        f"the saved scaling of a trainer has {found}. It was not used; its speeds are "
        f"learned again."
    )


# ----------------------------------------------------------------------
# Weighted medians: a single absurd value never moves them far.

NORMAL_MAD = 1.4826
"""Standard deviations of a normal distribution in its median absolute deviation."""


def weighted_median(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the value with half of the weight on either side.

    Between two values it is interpolated, so that two of equal weight meet halfway.

    Args:
        values: At least one, finite.
        weights: One for each value, 0 or more, not all of them 0.
    """
    half = sum(weights) / 2
    below, at_below, passed = min(values), 0.0, 0.0
    for value, weight in sorted(zip(values, weights, strict=True)):
        middle = passed + weight / 2
        if middle >= half:
            if passed <= 0 or middle <= at_below:
                return value
            return below + (value - below) * (half - at_below) / (middle - at_below)
        below, at_below, passed = value, middle, passed + weight
    return below


def spread(values: Sequence[float], weights: Sequence[float], centre: float) -> float:
    """Return a robust standard deviation of *values* about *centre*."""
    return NORMAL_MAD * weighted_median([abs(v - centre) for v in values], weights)
