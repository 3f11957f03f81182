"""From results to a table: ratios within one seed, and always the losers."""

from __future__ import annotations

from statistics import fmean, geometric_mean
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PAPER = 0.4206
"""Part by which the paper shortened the completion of one trainer at the best."""

NO_WORSE = 1.02
"""A makespan this much longer is within what a machine repeats."""

Pair = tuple[dict[str, Any], dict[str, Any]]


def report(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a page in Markdown."""
    for schedule in dict.fromkeys(result["schedule"] for result in results):
        pairs = _pairs([r for r in results if r["schedule"] == schedule])
        if pairs:
            yield f"### {schedule}, {len(pairs)} seeds, {pairs[0][1]['means']}"
            yield ""
            yield from _rows(pairs)
            yield ""
            yield from _summary(pairs)
            yield ""


def _pairs(results: Sequence[dict[str, Any]]) -> list[Pair]:
    """Pair fair and flowcon runs of a seed; one without the other is left out."""
    by = {(r["seed"], r["sharing"]): r for r in results}
    seeds = sorted({seed for seed, _ in by})
    return [
        (by[seed, "fair"], by[seed, "flowcon"])
        for seed in seeds
        if (seed, "fair") in by and (seed, "flowcon") in by
    ]


def _rows(pairs: Sequence[Pair]) -> Iterator[str]:
    yield "| trainer | fair, s | flowcon, s | flowcon / fair | best | worst |"
    yield "|---|---|---|---|---|---|"
    for name in sorted(pairs[0][0]["completion_s"]):
        yield _row(name, [[run["completion_s"][name] for run in p] for p in pairs])
    yield _row("*makespan*", [[run["makespan_s"] for run in pair] for pair in pairs])


def _row(name: str, seconds: Sequence[Sequence[float]]) -> str:
    ratios = [flowcon / fair for fair, flowcon in seconds]
    return (
        f"| {name} | {fmean(s[0] for s in seconds):.1f} "
        f"| {fmean(s[1] for s in seconds):.1f} | {geometric_mean(ratios):.3f} "
        f"| {min(ratios):.3f} | {max(ratios):.3f} |"
    )


def _summary(pairs: Sequence[Pair]) -> Iterator[str]:
    ratios = {
        (flowcon["seed"], name): seconds / fair["completion_s"][name]
        for fair, flowcon in pairs
        for name, seconds in flowcon["completion_s"].items()
    }
    best, worst = (
        min(ratios, key=ratios.__getitem__),
        max(ratios, key=ratios.__getitem__),
    )
    slower = [ratio for ratio in ratios.values() if ratio > 1]
    makespan = geometric_mean([b["makespan_s"] / a["makespan_s"] for a, b in pairs])
    mean = geometric_mean(list(ratios.values()))
    reached = ratios[best] <= 1 - PAPER and makespan <= NO_WORSE
    yield (
        f"Best: {best[1]} of seed {best[0]}, {1 - ratios[best]:.1%} shorter "
        f"(the paper: {PAPER:.2%}). All trainers: {mean - 1:+.1%}. "
        f"Makespan: {makespan - 1:+.1%}."
    )
    got = [fmean([pair[k]["cpus_got"] for pair in pairs]) for k in (0, 1)]
    yield (
        f"CPUs got, on average: {got[0]:.2f} under fair, {got[1]:.2f} under flowcon; "
        f"where they differ by much the machine was not quiet."
    )
    yield (
        f"Losers: {len(slower)} of {len(ratios)} were slower, the worst {worst[1]} of "
        f"seed {worst[0]} by {ratios[worst] - 1:+.1%}. "
        f"Published figure {'reached' if reached else 'not reached'}."
    )
