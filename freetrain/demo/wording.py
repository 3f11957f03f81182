"""A demo's figures in words, for screen and page alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.demo.figures import is_same
from freetrain.toml.wording import per_cent

if TYPE_CHECKING:
    from freetrain.demo.figures import Figures, TrainerFigures

HEADINGS = (
    "trainer",
    "done",
    "steps",
    "samples",
    "nodes",
    "rescales",
    "pause",
    "right",
    "loss",
    "alone",
)
"""``right``: images recognised; ``alone``: an undisturbed run's loss."""

NARROW = tuple(heading for heading in HEADINGS if heading != "nodes")
"""Those for which 80 columns are enough."""


def trainer_row(one: TrainerFigures) -> tuple[str, ...]:
    """Return one trainer's cells, under ``HEADINGS``."""
    again = f"+{one.repeated_steps}" if one.repeated_steps else ""
    return (
        one.name,
        "yes" if one.is_finished else "no",
        f"{one.steps}{again}",
        f"{one.samples:,}",
        " ".join(map(str, one.sizes)),
        f"{one.by_broker}+{one.by_survivors}",
        _seconds(_middle(one.pauses_s)),
        "" if one.accuracy is None else per_cent(one.accuracy),
        _loss(one.loss),
        _loss(one.loss_alone),
    )


def cards(figures: Figures) -> tuple[tuple[str, str], ...]:
    """Return the headline figures, each with its meaning."""
    done = sum(one.is_finished for one in figures.trainers)
    broker = sum(one.by_broker for one in figures.trainers)
    survivors = sum(one.by_survivors for one in figures.trainers)
    by = f"{broker} by the broker, {survivors} by survivors"
    others = figures.others
    delay = f"the longest that any of {others.jobs} jobs of others waited"
    return (
        (f"{done} of {len(figures.trainers)}", "trainers finished"),
        (str(broker + survivors), f"rescales: {by}"),
        (per_cent(figures.coverage), "coverage: idle node-time that trained"),
        (_seconds(figures.median_pause_s), "median pause of a rescale"),
        (f"{others.most_delay_s:.2f} s", f"{delay}; {others.met_leases} met a lease"),
        (_most_difference(figures), "difference of any loss from an undisturbed run's"),
    )


def _most_difference(figures: Figures) -> str:
    differences = [one.loss_difference for one in figures.trainers]
    known = [value for value in differences if value is not None]
    return difference_words(max(known) if len(known) == len(differences) else None)


def shortfalls(figures: Figures) -> tuple[str, ...]:
    """Say what keeps a demo from being good; nothing where it is."""
    told = []
    for one in figures.trainers:
        if not one.is_finished:
            told.append(f"{one.name} was not done after {figures.seconds:.0f} s")
        elif not is_same(one.loss_difference):
            words = difference_words(one.loss_difference)
            told.append(f"{one.name} differs from an undisturbed run: {words}")
        elif not one.rescales:
            told.append(f"{one.name} was never rescaled")
    return tuple(told)


def difference_words(difference: float | None) -> str:
    """Say how much losses differ."""
    if difference is None:
        return "not known"
    return "none" if difference == 0 else f"{difference:.0e}"


def _middle(values: tuple[float, ...]) -> float | None:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else None


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} s"


def _loss(value: float | None) -> str:
    return "" if value is None else f"{value:.5f}"
