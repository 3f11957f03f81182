"""The loss of learned scaling by each unknown: ``python -m tests.scaling.oracles``.

``imagenet``, 40 at a time, the six days of ``tests.scaling.summit``, in the set's own
order and in shuffled ones. Each row knows a part of the truth; none profiles.

``python -m tests.scaling.oracles SET DAYS FIRST COUNT [speedup]``: the gain of caution.
So many days, 40 trainers of SET at a time, in COUNT orders from the FIRST on, with
profiling: samples as a share of those with the true curves, with speeds of waiting
trainers lowered by no, half and a whole deviation, and the mean difference.
"""

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean, stdev

import numpy as np

from freetrain.replay.policies.base import TrainerView, View
from freetrain.replay.policies.ratings import (
    Course,
    GivenSpeeds,
    LearnedSpeeds,
    Speeds,
    is_same,
)
from freetrain.replay.trainers import Scaling, TrainerSpec, builtin_trainers
from freetrain.scaling import Profiling, SpeedPrior, estimate
from tests.scaling.summit import Case, play, summit, trainers_of, write

_SHUFFLES = 3
STRENGTHS = (0.0, 0.5, 1.0)


class OnceSeen(LearnedSpeeds):
    """Knows a trainer's true curve as soon as it was measured at all."""

    def _planned(self, course: Course, trainer: TrainerView, now_s: float) -> Scaling:
        if course.learned.seen:
            return trainer.spec.scaling
        return super()._planned(course, trainer, now_s)


class Plain(LearnedSpeeds):
    """Plans by the best estimate, without caution."""

    def _planned(self, course: Course, trainer: TrainerView, now_s: float) -> Scaling:
        sizes = trainer.spec.scaling.sizes
        prior = self._expected(trainer)
        known = estimate(course.learned, sizes[-1], now_s=now_s, prior=prior)
        last = course.scaling
        if last is not None and is_same(known.samples_per_s, last.samples_per_s):
            return last
        return Scaling(trainer.spec.name, known.samples_per_s, sizes)

    def _expected(self, trainer: TrainerView) -> SpeedPrior:
        del trainer
        return self._prior


class TrueLevel(Plain):
    """Knows from the beginning how quick a trainer is on one node."""

    def _expected(self, trainer: TrainerView) -> SpeedPrior:
        one_node_per_s = float(trainer.spec.scaling.samples_per_s[1])
        return replace(self._prior, one_node_per_s=one_node_per_s, one_node_log_sd=0.01)


class Erring:
    """Knows true curves up to one wrong factor a trainer, of 1 % or so, for good."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self._kept: dict[int, Scaling] = {}

    def scalings(self, view: View) -> Sequence[Scaling]:
        return [self._scaling(trainer) for trainer in view.trainers]

    def _scaling(self, trainer: TrainerView) -> Scaling:
        if trainer.serial not in self._kept:
            true = trainer.spec.scaling
            speeds = true.samples_per_s * np.exp(0.01 * self._random.normal())
            self._kept[trainer.serial] = Scaling(true.model, speeds, true.sizes)
        return self._kept[trainer.serial]


def ways() -> Iterator[tuple[str, Speeds]]:
    """Yield the name of the knowledge, and speeds that have it."""
    yield "all, but for 1 %", Erring()
    yield "speed on one node", TrueLevel()
    yield "all, once measured", OnceSeen()
    yield "nothing, not cautious", Plain()
    yield "nothing", LearnedSpeeds()
    yield "nothing, profiling", LearnedSpeeds(Profiling())


def in_order(trainers: Sequence[TrainerSpec], number: int) -> tuple[TrainerSpec, ...]:
    """Return *trainers* in their own order for 0, else shuffled by *number*."""
    shuffled = list(trainers)
    if number:
        random.Random(number).shuffle(shuffled)  # noqa: S311  # no secret
    return tuple(
        replace(own, arrival_s=place.arrival_s)
        for own, place in zip(shuffled, trainers, strict=True)
    )


def lines() -> Iterator[str]:
    pool = summit()
    for order in range(_SHUFFLES + 1):
        case = Case(in_order(builtin_trainers("imagenet"), order), 40)
        true = play(pool, case, GivenSpeeds())
        yield f"order {order} all: {true.finished} finished"
        for name, speeds in ways():
            tally = play(pool, case, speeds)
            share = 100 * tally.samples / true.samples
            yield f"order {order} {name:22} {share:6.2f} %, {tally.finished} finished"


def caution(arguments: Sequence[str]) -> Iterator[str]:
    """Yield a line an order as it comes, then a line a strength."""
    jobs, days, first, count, *objective = arguments
    pool, found = summit(float(days)), []
    for order in range(int(first), int(first) + int(count)):
        trainers = in_order(trainers_of(jobs), order)
        case = Case(trainers, 40, is_speed_up=objective == ["speedup"])
        true = play(pool, case, GivenSpeeds()).samples
        learned = (LearnedSpeeds(Profiling(), deviations=own) for own in STRENGTHS)
        shares = [100 * play(pool, case, own).samples / true for own in learned]
        found.append(shares)
        yield f"order {order}: " + ", ".join(f"{share:.2f} %" for share in shares)
    for place, strength in enumerate(STRENGTHS):
        gains = [shares[place] - shares[0] for shares in found]
        error = stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
        mean = fmean(shares[place] for shares in found)
        yield f"{strength:g}: {mean:.2f} %, {fmean(gains):+.2f} +- {error:.2f}"


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(write(caution(words) if words else lines()))
