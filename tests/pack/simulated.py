"""FlowCon against equal shares on a simulated node: ``python -m tests.pack.simulated``.

Random sets of recorded trainings come at random times to a node, and share its CPUs by
the algorithm that packs use. Shares are kernel weights: a member that cannot use all of
its share, having one thread, leaves the rest to the others. There is no other cost, so
that all that is lost or gained is the algorithm's.
"""

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean, geometric_mean

import numpy as np

from freetrain.losscurve.forecast import MetricDirection
from freetrain.losscurve.recorded import Series, load
from freetrain.priority.flowcon import (
    FlowConSettings,
    FlowConState,
    GrowthSample,
    is_due,
    update,
)

STEP_S = 1.0
LEAST_S, MOST_S = 60.0, 1_200.0
"""CPU-seconds of a training; drawn so that every doubling is as likely."""

MOST_LATER = 1.05
"""A trainer is slower if it takes over 5 % longer than under equal shares."""


@dataclass(slots=True)
class Member:
    """A training on the node.

    Attributes:
        values: Its training loss, turned so that lower is better.
        at_s: The CPU-seconds after which it reports each of them.
        arrival_s: When it comes.
        used_s: CPU-seconds that it has had.
        reported: Time and value of each report.
    """

    name: str
    values: list[float]
    at_s: list[float]
    arrival_s: float
    used_s: float = 0.0
    finished_s: float | None = None
    reported: list[tuple[float, float]] = field(default_factory=list)


def members_of(count: int, cpus: int, seed: int) -> list[Member]:
    """Draw a set; all come within half of the time that their work takes."""
    draws = random.Random(seed)  # noqa: S311 - no secret
    curves = [curve.loss for curve in load().values()]
    sizes_s = [LEAST_S * (MOST_S / LEAST_S) ** draws.random() for _ in range(count)]
    last_s = sum(sizes_s) / cpus
    return [
        _member(f"m{k}", draws.choice(curves), size_s, draws.uniform(0.0, last_s / 2))
        for k, size_s in enumerate(sizes_s)
    ]


def _member(name: str, loss: Series, size_s: float, arrival_s: float) -> Member:
    sign = 1.0 if loss.better is MetricDirection.LOWER else -1.0
    at_s = loss.samples / loss.samples[-1] * size_s
    return Member(name, (sign * loss.values).tolist(), at_s.tolist(), arrival_s)


def run(members: Sequence[Member], cpus: int, *, by_growth: bool) -> None:
    """Train *members* to their ends."""
    settings, state, now_s = FlowConSettings(interval_s=30.0), FlowConState(), 0.0
    while any(member.finished_s is None for member in members):
        here = [m for m in members if m.finished_s is None and m.arrival_s <= now_s]
        names = [member.name for member in here]
        if by_growth and here and is_due(state, names, now_s):
            samples = [
                GrowthSample(
                    name=m.name, values=tuple(m.reported), used_s=m.used_s / cpus
                )
                for m in here
            ]
            state = update(state, samples, now_s, settings)
        shares = state.shares if by_growth else dict.fromkeys(names, 1.0)
        now_s += STEP_S
        got = cpus_of([shares[name] for name in names], cpus)
        for member, part in zip(here, got, strict=True):
            _train(member, part * STEP_S, now_s)


def cpus_of(weights: Sequence[float], cpus: int) -> list[float]:
    """Return the CPUs that each gets by its weight, 1 at the most."""
    got, left = [0.0] * len(weights), float(cpus)
    waiting = set(range(len(weights)))
    while waiting and left > 0:
        whole = sum(weights[k] for k in waiting)
        full = {k for k in waiting if left * weights[k] >= whole}
        for k in full or waiting:
            got[k] = 1.0 if full else left * weights[k] / whole
        left -= len(full) if full else left
        waiting -= full or waiting
    return got


def _train(member: Member, used_s: float, now_s: float) -> None:
    member.used_s += used_s
    while len(member.reported) < len(member.at_s):
        passed = len(member.reported)
        if member.at_s[passed] > member.used_s:
            return
        member.reported.append((now_s, member.values[passed]))
    member.finished_s = now_s


def took_s(members: Sequence[Member]) -> list[float]:
    """Return the time of each from its arrival to its end."""
    return [(m.finished_s or np.inf) - m.arrival_s for m in members]


def lines(counts: Sequence[int], cpus: int, seeds: Sequence[int]) -> Iterator[str]:
    """Yield a row for each number of trainers."""
    yield (
        "| trainers, CPUs | time to finish | best | worst "
        "| slower by over 5 % | all in |"
    )
    yield "|---|---|---|---|---|---|"
    for count in counts:
        ratios, spans = [], []
        for seed in seeds:
            pair = [members_of(count, cpus, seed) for _ in range(2)]
            for members, by_growth in zip(pair, (False, True), strict=True):
                run(members, cpus, by_growth=by_growth)
            fair, ours = (np.array(took_s(members)) for members in pair)
            ratios += (ours / fair).tolist()
            ends = [max(m.finished_s or np.inf for m in members) for members in pair]
            spans.append(ends[1] / ends[0])
        later = fmean(ratio > MOST_LATER for ratio in ratios)
        yield (
            f"| {count}, {cpus} | {100 * geometric_mean(ratios) - 100:+.1f} % "
            f"| {100 * min(ratios) - 100:+.0f} % | {100 * max(ratios) - 100:+.0f} % "
            f"| {100 * later:.0f} % | {100 * fmean(spans) - 100:+.1f} % |"
        )


def main(arguments: Sequence[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.pack.simulated")
    parser.add_argument("--trainers", type=int, nargs="+", default=[3, 5, 8])
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--seeds", type=int, nargs="+", default=[*range(1, 21)])
    asked = parser.parse_args(arguments)
    for line in lines(asked.trainers, asked.cpus, asked.seeds):
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
