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
from itertools import accumulate, chain, pairwise, starmap
from statistics import fmean, median
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np

from freetrain.errors import BadDataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

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

_UNLIKE = math.log(1.15)

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

    def with_siblings(
        self, siblings: LearnedScaling, *, now_s: float
    ) -> LearnedScaling:
        """Return this with the speeds of *siblings* at sizes that it did not run on.

        Siblings are trainers of the same program, itself included. Where this is 15 %
        quicker or slower than they on any size, they are left out.
        """
        for nodes in self.seen.keys() & siblings.seen.keys():
            ours = {speed.began_s: speed for speed in self.seen[nodes]}
            theirs = [own for own in siblings.seen[nodes] if own.began_s not in ours]
            levels = [
                pool(own, now_s=now_s) for own in (self.seen[nodes], theirs) if own
            ]
            if abs(levels[0].log_speed - levels[-1].log_speed) > _UNLIKE:
                return self
        return LearnedScaling(
            {**siblings.seen, **self.seen}, self.paid or siblings.paid
        )

    @property
    def trained_s(self) -> float:
        """Seconds of training behind all of its speeds."""
        return sum(speed.trained_s for seen in self.seen.values() for speed in seen)

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
        once: Those among them that were measured in a single fragment.
    """

    samples_per_s: NDArray[np.float64]
    log_sd: NDArray[np.float64]
    measured: frozenset[int]
    once: frozenset[int] = frozenset()


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
        # A prior of smooth curves would pull a measured speed to its neighbours'.
        sure = log_sd < _SHORT_SD
        mean[places[sure]], variance[places[sure]] = level[sure], log_sd[sure] ** 2
    once = frozenset(n for n in seen if len(learned.seen[n]) == 1)
    return replace(_bounded(mean, variance, frozenset(seen)), once=once)


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
    samples_per_s = _rounded(np.concatenate(([0.0], speeds)))
    log_sd = _rounded(np.concatenate(([0.0], np.sqrt(np.maximum(variance, 0.0)))))
    samples_per_s.flags.writeable = log_sd.flags.writeable = False
    return Estimate(samples_per_s, log_sd, measured)


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return *values* to seven digits, which no measurement reaches.

    The last digits of linear algebra and of exponentials differ from one processor to
    another, and among equal plans they would choose.
    """
    return values.astype(np.float32).astype(np.float64)


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
    lowered = known.samples_per_s * np.exp(-deviations * known.log_sd)
    samples_per_s = _rounded(lowered)
    samples_per_s.flags.writeable = False
    return replace(known, samples_per_s=samples_per_s)


# ----------------------------------------------------------------------
# Profiling: which size is worth trying, its ends first, then by bounds (ADR 11).

_BEYOND = 1.1
_MOST_FALL = 2.0
"""Speed is taken to grow at most 1.1 times as fast as nodes, and to fall at most 1.1
times as fast as the square of nodes grows."""

_MOST_HOPE = 1.0
_PAYS = 1.5
"""The gain that is hoped for must be so many times what trying may cost."""

_LEAST_GAIN = 0.02
"""Speeds that differ by less than 2 % count as equal."""

_LEAST_LEFT_S = 1_800.0
"""A trainer of unknown length goes on for as long as it ran, half an hour at least."""

_APART = math.log(1.9)
_APART_NEAR = math.log(1.15)
_NEAR = math.log(3.7)
"""Sizes are tried about a doubling apart, and 15 % apart in the gaps around the best
one, where these are narrower than two doublings."""

_CLIFF = 1.3
_APART_CLIFF = 1.03
"""Where speed drops at once, to less than 1 / 1.3, sizes are tried until they are 3 %
apart."""

_SETTLED_LOG_SD = 0.02
"""A size tried for two minutes is known to 2.4 %, after three to 2 %."""

_RAISED = 0.06
"""A little more than priorities ask of a change by default, ``DEFAULT_GAIN``."""

_TILT = 1e-3
"""Of sizes with as much hope, the one farthest from measured ones is tried first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiling:
    """How trainers try sizes.

    Attributes:
        trial_s: How long a trial takes, seconds; about the planner's look-ahead.
        scarce_s: Where trainers contend for nodes, seconds over which a measurement
            counts as useful: changes of the pool lead to others without trials.
    """

    trial_s: float = 120.0
    scarce_s: float = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stake:
    """What a trainer can gain and lose by trying a size.

    Attributes:
        sizes: Node counts that it can use, ascending.
        held: Nodes it holds now.
        remaining_samples: Work until it is finished; inf where unknown.
        trained_s: How long it has trained.
        rescale_s: Seconds without training at a change.
        is_scarce: Whether trainers contend for nodes.
    """

    sizes: Sequence[int]
    held: int = 0
    remaining_samples: float = math.inf
    trained_s: float = 0.0
    rescale_s: float = 0.0
    is_scarce: bool = False


def curve_values(
    known: Estimate, *, profiling: Profiling | None, stake: Stake
) -> NDArray[np.float64]:
    """Return samples/s at 0 .. most nodes for a planner, with bonuses for trials.

    A trainer that was never measured is worth the same on every size, so that it begins
    on its smallest; one that runs on more already stays. Then the hope of a size is the
    most that its speed may be (:func:`_bounds`) over the best measured speed, less 1,
    at most 1. Where

        hope x time left > 1.5 (trial_s + 2 rescale_s)

    the planner gets the best measured speed times 1 + hope. So the largest size that
    is free comes next, then sizes between. Only running trainers get bonuses: of
    waiting ones the least known would get the largest.

    A planner charges a rescale to its short look-ahead, as if each change of nodes
    were followed by another. Where there are nodes for all, values of sizes to be
    tried are raised by that; so is the best measured one, to which a trainer returns.

    Args:
        known: Speeds, and the sizes that were measured.
        profiling: How to try sizes; None for no bonuses.
        stake: Gain and cost of a trial.

    Returns:
        Shape (most + 1,), float64, read-only; entry 0 is 0.
    """
    if profiling is None or (known.measured and not stake.held):
        return known.samples_per_s
    values = known.samples_per_s.copy()
    if known.measured:
        for nodes, value in _raised(known, profiling, stake):
            values[nodes] = max(values[nodes], value)
    elif stake.held <= stake.sizes[0]:
        values[1:] = values[stake.sizes[0]]
    values = _rounded(values)
    values.flags.writeable = False
    return values


def _raised(
    known: Estimate, profiling: Profiling, stake: Stake
) -> Iterator[tuple[int, float]]:
    """Yield sizes to be tried, and the best one to return to, with their values."""
    speeds, held = known.samples_per_s, min(stake.held, len(known.samples_per_s) - 1)
    best = max(known.measured, key=speeds.__getitem__)
    left_s = float(stake.remaining_samples / speeds[best])
    if not math.isfinite(left_s):
        left_s = max(_LEAST_LEFT_S, stake.trained_s)
    if stake.is_scarce:
        left_s = min(left_s, profiling.scarce_s)
    change = 1.0 + _RAISED + stake.rescale_s / profiling.trial_s
    trial = speeds[best] * (1.0 if stake.is_scarce else change)
    cost_s = _PAYS * (profiling.trial_s + 2.0 * stake.rescale_s)
    least = cost_s / max(left_s, 1.0)
    enough = speeds[best] * (1.0 + least)
    bounds = _bounds(known, stake.sizes, best, enough) | _looks_again(known, held)
    for nodes, bound in bounds.items():
        hope = min(bound / speeds[best] - 1.0, _MOST_HOPE)
        if hope > least:
            apart = _TILT * _distance(nodes, known.measured)
            yield nodes, trial * (1.0 + hope) * (1.0 + apart)
    gain = speeds[best] / speeds[held] - 1.0
    unsure = math.hypot(known.log_sd[best], known.log_sd[held])
    is_free = best < held or not stake.is_scarce
    if is_free and gain > max(_LEAST_GAIN, unsure, stake.rescale_s / max(left_s, 1.0)):
        yield best, speeds[held] * change


def _bounds(
    known: Estimate, sizes: Sequence[int], best: int, enough: float
) -> dict[int, float]:
    """Return the most samples/s that unmeasured sizes may have; of some worth trying.

    From each smaller measured size speed grows at most linearly, to each larger one
    it falls at most with the square of nodes, both times 1.1. Nothing is known of the
    smallest size, which is tried before others.

    In the gaps between the best size and its measured neighbours it exceeds the best by
    half of the difference between the two at most, on a logarithmic scale. Only the
    size amid the widest gap is looked at.
    """
    speeds, measured = known.samples_per_s, known.measured
    if sizes[0] < min(measured):
        return {sizes[0]: math.inf}
    below = max((n for n in measured if n < best), default=best)
    above = min((n for n in measured if n > best), default=best)
    bounds: dict[int, float] = {}
    near: dict[int, float] = {}
    for n in sizes:
        apart = _distance(n, measured)
        if apart < _APART_NEAR:
            continue
        bound = _BEYOND * min(speeds[m] * n / m for m in measured if m < n)
        neighbour = above if n > best else below
        if below < n < above and abs(math.log(neighbour / best)) < _NEAR:
            more = abs(math.log(speeds[neighbour] / speeds[best])) / 2.0
            bound = min(bound, speeds[best] * math.exp(more + _LEAST_GAIN))
            if bound > enough:
                near[n] = bound
        elif apart >= _APART:
            larger = () if best < n <= 2 * best else [m for m in measured if m > n]
            falls = (_BEYOND * speeds[m] * (m / n) ** _MOST_FALL for m in larger)
            bounds[n] = min(bound, *falls) if larger else bound
    if near:
        amid = max(near, key=lambda n: _distance(n, measured))
        bounds[amid] = near[amid]
    for amid, bound in _before_cliffs(known, sizes, best):
        if bound > enough:
            bounds[amid] = max(bound, bounds.get(amid, 0.0))
    return bounds


def _before_cliffs(
    known: Estimate, sizes: Sequence[int], best: int
) -> Iterator[tuple[int, float]]:
    """Yield the size amid each gap in which speed drops at once, and its bound.

    Such a cliff is behind the best size, where speed falls faster than it is taken to
    fall, and before it, where speed is lower and then rises again. Up to the cliff,
    which may be anywhere in the gap, speed grows at most as fast as nodes.
    """
    speeds = known.samples_per_s
    for last, beyond in pairwise(sorted(known.measured)):
        smooth = (beyond / last) ** _MOST_FALL if last == best else 1.0
        is_cliff = speeds[last] > max(smooth, _CLIFF) * speeds[beyond]
        if not is_cliff or not (last == best or beyond < best):
            continue
        within = [n for n in sizes if last < n < beyond]
        amid = max(within, key=lambda n: min(n / last, beyond / n), default=last)
        if min(amid / last, beyond / amid) > _APART_CLIFF:
            yield amid, float(speeds[last] * amid / last)


def _looks_again(known: Estimate, held: int) -> dict[int, float]:
    """Return how quick sizes may be that were tried once, and may be the best.

    A second look follows once the held size is well known; and it is not broken off.
    """
    brief = {n for n in known.once if known.log_sd[n] > _SETTLED_LOG_SD}
    sizes = {held} if held in brief else brief
    more = np.exp(np.minimum(known.log_sd, _MOST_HOPE))
    return {n: float(known.samples_per_s[n] * more[n]) for n in sizes}


def _distance(nodes: int, measured: Iterable[int]) -> float:
    """Return the distance to the nearest measured size, on a logarithmic scale."""
    return min(abs(math.log(nodes / own)) for own in measured)


# ----------------------------------------------------------------------
# As JSON, from one tick to the next.

_VERSION = 1


_Above0 = Annotated[float, msgspec.Meta(gt=0.0)]


class _Saved(msgspec.Struct):
    """The JSON: rows of numbers, as ``MeasuredSpeed`` and ``RescaleCost`` have them."""

    version: Literal[1]  # _VERSION
    seen: dict[Annotated[int, msgspec.Meta(ge=1)], list[tuple[float, _Above0, _Above0]]]
    paid: dict[Rescale, list[tuple[float, Annotated[float, msgspec.Meta(ge=0.0)]]]]


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
    try:
        kept = msgspec.convert(state, _Saved, str_keys=True)
    except ValueError as error:
        raise _refusal(str(error)) from error
    numbers = chain.from_iterable(chain(*kept.seen.values(), *kept.paid.values()))
    if not all(map(math.isfinite, numbers)):
        raise _refusal("a number that is not finite")
    seen = {n: tuple(starmap(MeasuredSpeed, rows)) for n, rows in kept.seen.items()}
    paid = {kind: tuple(starmap(RescaleCost, rows)) for kind, rows in kept.paid.items()}
    return LearnedScaling(MappingProxyType(seen), MappingProxyType(paid))


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
