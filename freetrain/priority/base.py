"""What a priority sees, and what it answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from freetrain.errors import UsageError
from milp.problem import custom, speed_up, throughput, weighted

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    from freetrain.losscurve.forecast import LossForecast
    from milp.problem import Curve


# ----------------------------------------------------------------------
# What a priority sees, and what it answers.

Memory: TypeAlias = "Mapping[str, object]"
"""What a priority remembers, as JSON has it."""


class Basis(StrEnum):
    """What a rating is made from, which says when it must be made anew.

    ``TRAINER``: the trainer's sizes, speeds and weight, and nothing else; another
    trainer, time and nodes do not change it, and no memory is kept.
    ``MOMENT``: anything in a look but losses; it is given no forecasts.
    ``LOSSES``: anything in the inputs.
    """

    TRAINER = "trainer"
    MOMENT = "moment"
    LOSSES = "losses"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Two values of the metric that a user wants.

    Attributes:
        deliver: Reaching it, the trainer's checkpoint is handed over.
        final: Reaching it, the training is over; None to train as long as it likes.
        is_delivered: Whether the first has been reached.
    """

    deliver: float
    final: float | None = None
    is_delivered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contender:
    """A trainer as a priority sees it: what it is, and its past.

    Attributes:
        name: Unique in the inputs.
        sizes: Node counts above 0 that it can use, ascending.
        samples_per_s: Its speed at 0 .. the largest size as far as is known:
            measured, given by its user, or assumed; float64, entry 0 is 0.
        held: Nodes it holds now.
        done_samples: Training samples done.
        total_samples: Samples after which it is finished; None where nobody knows.
        weight: Its user's, above 0.
        deadline_s: When it should be finished, on the look's clock; None for no time.
        target: The values that its user wants; None for none.
        forecast: What its losses say; None where there is no usable loss.
        grow_s: Seconds without training when nodes are added.
        shrink_s: Seconds without training when nodes are given up.
        start_s: Seconds without training when it starts from no nodes.
        lost_s: Seconds of its work that are lost with nodes, the shrink apart.
    """

    name: str
    sizes: tuple[int, ...]
    samples_per_s: NDArray[np.float64]
    held: int
    done_samples: float
    total_samples: float | None = None
    weight: float = 1.0
    deadline_s: float | None = None
    target: Target | None = None
    forecast: LossForecast | None = None
    grow_s: float = 0.0
    shrink_s: float = 0.0
    start_s: float = 0.0
    lost_s: float = 0.0

    @property
    def loss_s(self) -> float:
        """Seconds of its work that losing nodes costs."""
        return self.shrink_s + self.lost_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingInputs:
    """All trainers at one moment.

    Attributes:
        now_s: The moment, seconds on any clock that goes on.
        contenders: The trainers that want nodes; their order means nothing.
        nodes: Idle nodes in all, held ones included.
        t_fwd_s: [T_fwd] The planner's look-ahead, seconds.
    """

    now_s: float
    contenders: tuple[Contender, ...]
    nodes: int
    t_fwd_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating:
    """What a priority says of one trainer.

    Attributes:
        curve: [O_j] What its work is worth to the planner, by node count.
        floor: Nodes that it should get before anybody gets more than theirs.
        is_background: Whether it gets only what the others leave.
        reason: Why, for people; one line without a full stop.
    """

    curve: Curve
    floor: int = 0
    is_background: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RatingResult:
    """The ratings of all contenders.

    Attributes:
        ratings: One for each contender, in their order.
        memory: What the priority is to be given next time. JSON, so that it
            outlives a tick; nothing of trainers that are gone.
    """

    ratings: tuple[Rating, ...]
    memory: Memory


class Priority(Protocol):
    """Says what trainers deserve. Pure: the same look and memory, the same answer.

    A trainer without a usable loss is rated, too, and the reason says by what.

    Attributes:
        name: What configuration and results call it.
        basis: What its ratings are made from. Whoever asks need not ask again, nor
            fit what will not be looked at.
    """

    name: str
    basis: Basis

    def rate(self, inputs: RatingInputs, memory: Memory, /) -> RatingResult:
        """Return a rating for each contender.

        Args:
            inputs: The trainers now.
            memory: What the last look returned; empty at the first, or after a
                change of priority.
        """
        ...


# ----------------------------------------------------------------------
# How far a trainer's losses can be reckoned with.

FEWEST_POINTS = 4
"""Values told before a forecast is believed: as many as SLAQ's curves have unknowns."""

PLATEAU = 0.01
"""Quality that twice the work done must be expected to bring, to be learning."""

FEWEST_FOR_PLATEAU = 10
LEAST_FOR_PLATEAU = 0.5
"""Values told, and share of the whole training done, before a plateau is believed.

Who is put in the background may tell nothing more for long, so that a mistake there is
not found out. With few values, back-testing has nothing to hold against "no further
gain"; and early on many a curve pauses."""


class LossStatus(StrEnum):
    """What a trainer's losses say of it; words for people."""

    LEARNING = "learning"
    NO_LOSS = "no usable loss, so it has its smallest size, and counts by its speed-up"
    NO_AIM = (
        "no target given, and no end known, so it has its smallest size, and counts "
        "by its speed-up"
    )
    DIVERGING = "diverging, so it gets what others leave"
    DOUBTFUL = "seems on a plateau, so it has its smallest size to show otherwise"
    PLATEAUED = "on a plateau, so it gets what others leave"


def loss_status(contender: Contender) -> LossStatus:
    """Return how *contender* stands.

    Who has told too little has no usable loss yet. On a plateau is who is not
    expected to gain :data:`PLATEAU` by doing once more the work that it has done: a
    question without seconds or samples, as it has to suit trainings of minutes and
    of weeks.
    """
    forecast = contender.forecast
    if forecast is None:
        return LossStatus.NO_LOSS
    if forecast.is_diverging:
        return LossStatus.DIVERGING
    if len(forecast.points) < FEWEST_POINTS:
        return LossStatus.NO_LOSS
    done = done_samples(contender, forecast)
    if quality_after(forecast, 2 * done) - quality_after(forecast, done) < PLATEAU:
        is_sure = len(forecast.points) >= FEWEST_FOR_PLATEAU
        is_late = done >= LEAST_FOR_PLATEAU * (contender.total_samples or 0.0)
        return LossStatus.PLATEAUED if is_sure and is_late else LossStatus.DOUBTFUL
    return LossStatus.LEARNING


def quality_after(forecast: LossForecast, samples: float) -> float:
    """Return the quality expected after *samples* in all."""
    return forecast.quality(forecast.expected(samples).value)


def done_samples(contender: Contender, forecast: LossForecast) -> float:
    """Return the work done as far as anybody told; predictions begin there."""
    return max(contender.done_samples, forecast.points[-1].samples)


# ----------------------------------------------------------------------
# Ratings from claims: what losses say, made comparable with those who tell none.

DIVERGING_WORTH = 0.01
"""Of a diverging trainer, over another one in the background: it comes last."""

_UNTOLD = {LossStatus.NO_LOSS, LossStatus.NO_AIM}

DOUBTFUL_BEYOND = 0.01
"""Worth of a node above the smallest size to who seems on a plateau."""


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """What a trainer is worth by its losses.

    Attributes:
        worth: By node count, in a unit that all claims of a look have in common;
            shape (largest size + 1,), 0 or more, entry 0 is 0.
        reason: Why, for people.
    """

    worth: NDArray[np.float64]
    reason: str


Answer: TypeAlias = "Claim | Rating | LossStatus"
"""A claim, a rating that needs no comparing, or why there is no claim."""


def ratings(
    contenders: Sequence[Contender], answers: Sequence[Answer], curves: CurveCache
) -> tuple[Rating, ...]:
    """Return a rating for each contender.

    Claims are divided by the *typical worth*: the median, over the trainers that
    claim, of what a node is worth on their smallest size. So a node is worth about
    1, as it is in speed-up, and a trainer without a claim counts by its speed-up: it
    gets what a middling one of the others gets. Its smallest size is a floor: without
    training nobody comes to tell a loss, and who never tells one is not starved.

    Args:
        contenders: The trainers.
        answers: What a priority says of each, in their order.
        curves: Makes the curves.

    Raises:
        MalformedProblemError: A contender does no work on its smallest size.
    """
    pairs = list(zip(contenders, answers, strict=True))
    unit = typical_worth(pairs)
    return tuple([_rating(one, answer, unit, curves) for one, answer in pairs])


def typical_worth(pairs: Sequence[tuple[Contender, Answer]]) -> float:
    """Return the median worth of a node; 1 where no claim is above 0."""
    found = [
        answer.worth.item(one.sizes[0]) / one.sizes[0]
        for one, answer in pairs
        if isinstance(answer, Claim)
    ]
    above_0 = [worth for worth in found if worth > 0]
    return median(above_0) if above_0 else 1.0


def _rating(one: Contender, answer: Answer, unit: float, curves: CurveCache) -> Rating:
    if isinstance(answer, Rating):
        return answer
    if isinstance(answer, Claim):
        curve = curves.custom(answer.worth / unit, one.sizes)
        return Rating(curve=curve, reason=answer.reason)
    return plain(one, answer, curves)


def plain(contender: Contender, standing: LossStatus, curves: CurveCache) -> Rating:
    """Return the rating by speed-up of a trainer that stands so."""
    curve = curves.speed_up(contender)
    if standing is LossStatus.DOUBTFUL:
        curve = up_to_smallest(contender, DOUBTFUL_BEYOND, curves)
    if standing is LossStatus.DIVERGING:
        curve = curves.weighted(curve, DIVERGING_WORTH)
    return Rating(
        curve=curve,
        floor=contender.sizes[0] if standing in _UNTOLD else 0,
        is_background=standing in {LossStatus.DIVERGING, LossStatus.PLATEAUED},
        reason=standing.value,
    )


def up_to_smallest(contender: Contender, beyond: float, curves: CurveCache) -> Curve:
    """Return the speed-up, of which only *beyond* counts above the smallest size."""
    worth = curves.speed_up(contender).value_per_s
    least = contender.sizes[0]
    less = worth.copy()
    less[least:] = worth[least] + beyond * (worth[least:] - worth[least])
    return curves.custom(less, contender.sizes)


# ----------------------------------------------------------------------
# CurveCache that stay the same object while nothing changed.

MOST_KEPT = 4096
"""More than the trainers of any pool; a curve of 100 nodes takes 1 KB."""


class CurveCache:
    """Makes curves, and hands out the same object for the same numbers.

    Solvers keep what they derive from a curve by its identity. The curve that has
    not been asked for longest is forgotten first.

    Not for use from several threads at once.
    """

    def __init__(self, most_kept: int = MOST_KEPT) -> None:
        self._kept: dict[Hashable, Curve] = {}
        self._most_kept = most_kept

    def throughput(self, contender: Contender) -> Curve:
        """Return the samples a second of *contender*."""
        return self._of(
            ("throughput", contender.samples_per_s.tobytes(), contender.sizes),
            lambda: throughput(contender.samples_per_s, contender.sizes),
        )

    def speed_up(self, contender: Contender) -> Curve:
        """Return the speed of *contender* over that of one node.

        Raises:
            MalformedProblemError: It does no work on its smallest size.
        """
        return self._of(
            ("speedup", contender.samples_per_s.tobytes(), contender.sizes),
            lambda: speed_up(contender.samples_per_s, contender.sizes),
        )

    def weighted(self, curve: Curve, weight: float) -> Curve:
        """Return *curve* times *weight*, which is above 0."""
        values = curve.value_per_s.tobytes()
        return self._of(
            ("weighted", values, curve.sizes, weight), lambda: weighted(curve, weight)
        )

    def custom(self, value_per_s: NDArray[np.float64], sizes: Sequence[int]) -> Curve:
        """Return the curve of these values, as ``milp.curve.custom`` makes it."""
        return self._of(
            ("custom", value_per_s.tobytes(), tuple(sizes)),
            lambda: custom(value_per_s, sizes),
        )

    def _of(self, key: Hashable, make: Callable[[], Curve]) -> Curve:
        curve = self._kept.pop(key, None) or make()
        self._kept[key] = curve
        if len(self._kept) > self._most_kept:
            del self._kept[next(iter(self._kept))]
        return curve


# ----------------------------------------------------------------------
# No change for less than a set gain, whatever the priority.

DEFAULT_GAIN = 0.05
"""AdaptDL's: jobs that change for less spend more on changing than they gain."""


class WithHysteresis:
    """Another priority, whose ratings favour the nodes that a trainer holds.

    The worth of the held count h is raised: O'(h) = (1 + gain) O(h). A plan that
    changes some trainers must then gain *gain* times what those are worth now. What
    a rescale costs in the present worth is raised by as much.

    Args:
        priority: Whose ratings.
        gain: The least gain of a change, as a share of the present worth.

    Raises:
        UsageError: *gain* is not above 0, or not finite.
    """

    def __init__(self, priority: Priority, gain: float = DEFAULT_GAIN) -> None:
        if not 0 < gain < math.inf:
            raise UsageError(
                f"hysteresis {gain:g} is not above 0. Give the least gain of a change, "
                f"such as 0.05 for 5 %."
            )
        self.name = priority.name
        depends = priority.basis
        self.basis: Basis = Basis.MOMENT if depends is Basis.TRAINER else depends
        self._priority = priority
        self._gain = gain
        self._curves = CurveCache()

    def rate(self, inputs: RatingInputs, memory: Memory, /) -> RatingResult:
        """Return the other's ratings, with a bonus on what is held."""
        rated = self._priority.rate(inputs, memory)
        pairs = zip(rated.ratings, inputs.contenders, strict=True)
        return RatingResult(
            tuple([self._steady(*pair) for pair in pairs]), rated.memory
        )

    def _steady(self, rating: Rating, contender: Contender) -> Rating:
        held = contender.held
        worth = rating.curve.value_per_s
        if held not in rating.curve.sizes or worth[held] <= 0:
            return rating
        raised = worth.copy()
        raised[held] *= 1 + self._gain
        return replace(rating, curve=self._curves.custom(raised, rating.curve.sizes))


# ----------------------------------------------------------------------
# Ratings as the planner takes them: it knows curves, and neither floors nor ranks.

BACKGROUND = 1e-4
"""What a node is worth at most to a trainer in the background, over what it is worth
at most to one that is not: so it gets what others have next to no use for."""

FLOOR = 4.0
"""What a node below a floor is worth, over what one is worth at most above. Above 1 it
comes first; much above it, a trainer that holds its floor would never be changed again,
because the planner counts a change in seconds of the present worth."""


LEFTOVER = 1e-6
"""What a node is worth at least to who wants any, over what one is worth at most:
idle nodes go also to a trainer that gains nothing on so few. One that never runs never
shows that the expectation was wrong. A curve of zeros wants none."""


def planned_curves(ratings: Sequence[Rating]) -> tuple[Curve, ...]:
    """Return the curve of each of *ratings*, floors and background worked in.

    A rating that has neither, and some worth at every size, keeps its very curve.
    """
    dearest = _dearest(ratings, is_background=False)
    behind = _dearest(ratings, is_background=True)
    share = BACKGROUND * dearest / behind if dearest * behind else 1.0
    planned = [_planned(rating, dearest, share) for rating in ratings]
    return tuple(_never_for_nothing(curve, dearest or 1.0) for curve in planned)


def _dearest(ratings: Sequence[Rating], *, is_background: bool) -> float:
    """Return the most that a node is worth to one of those in one of the ranks."""
    own = [_steepest(r.curve) for r in ratings if r.is_background is is_background]
    return max(own, default=0.0)


def _planned(rating: Rating, dearest: float, share: float) -> Curve:
    curve = rating.curve
    if rating.is_background:
        return weighted(curve, share) if share != 1.0 else curve
    if not rating.floor or not dearest:
        return curve
    below = np.minimum(np.arange(len(curve.value_per_s)), rating.floor)
    return custom(curve.value_per_s + FLOOR * dearest * below, curve.sizes)


def _never_for_nothing(curve: Curve, dearest: float) -> Curve:
    """Return *curve*, raised to the least that nodes are worth to anybody."""
    least = LEFTOVER * dearest * np.arange(len(curve.value_per_s))
    sizes = list(curve.sizes)
    values = curve.value_per_s[sizes]
    if (values >= least[sizes]).all() or not values.any():
        return curve
    return custom(np.maximum(curve.value_per_s, least), curve.sizes)


def _steepest(curve: Curve) -> float:
    """Return the most that a node adds between neighbouring sizes, at least 0."""
    sizes = np.array([0, *curve.sizes])
    slopes = np.diff(curve.value_per_s[sizes]) / np.diff(sizes)
    return max(0.0, float(slopes.max()))
