"""The live demo's figures and its HTML page with two drawings."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from freetrain.page.drawing import (
    COLOURS,
    OTHERS,
    Axis,
    Bar,
    Line,
    draw_lines,
    draw_rows,
)
from freetrain.report.drawings import render
from freetrain.text import per_cent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from markupsafe import Markup

    from freetrain.demo.fake_slurm.cluster import FakeJob
    from freetrain.demo.live import DemoMoment, History


# ----------------------------------------------------------------------
# What a demo showed, in numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerFigures:
    """The figures of one trainer.

    Attributes:
        is_finished: Whether it came to its end.
        repeated_steps: Steps done again, because a kill undid them.
        by_broker: Rescales that the broker decided.
        by_survivors: Rescales that the remaining leases' agents decided.
        sizes: Node counts, generation by generation.
        pauses_s: Last step before to first step after, of each rescale.
        loss: Of the last step.
        loss_alone: The same of an undisturbed run.
        loss_difference: The largest relative difference between the two runs in
            any step; None where one lacks a step.
        accuracy: On images that it did not train on.
    """

    name: str
    is_finished: bool
    steps: int
    samples: int
    repeated_steps: int
    by_broker: int
    by_survivors: int
    sizes: tuple[int, ...]
    pauses_s: tuple[float, ...]
    loss: float | None
    loss_alone: float | None
    loss_difference: float | None
    accuracy: float | None

    @property
    def rescales(self) -> int:
        """All rescales."""
        return self.by_broker + self.by_survivors


@dataclass(frozen=True, slots=True, kw_only=True)
class OthersFigures:
    """How other users' jobs fared.

    Attributes:
        jobs: Those that started.
        met_leases: Those that found a lease on one of their nodes.
        mean_delay_s: Start after it was due, mean over all.
        most_delay_s: The same, the worst.
    """

    jobs: int
    met_leases: int
    mean_delay_s: float
    most_delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All figures of a demo.

    Attributes:
        seconds: From the first submission to the last trainer's end.
        idle_node_s: Node-time that others left idle.
        trained_node_s: Node-time between first and last step of all generations.
        median_pause_s: Over all rescales; None where there were none.
    """

    seconds: float
    nodes: int
    idle_node_s: float
    trained_node_s: float
    median_pause_s: float | None
    trainers: tuple[TrainerFigures, ...]
    others: OthersFigures

    @property
    def coverage(self) -> float:
        """The share of the idle node-time that trained."""
        return self.trained_node_s / self.idle_node_s if self.idle_node_s else 0.0

    @property
    def is_good(self) -> bool:
        """Whether all finished and were rescaled, with an undisturbed run's losses."""
        return all(
            t.is_finished and t.rescales > 0 and is_same(t.loss_difference)
            for t in self.trainers
        )


SAME = 1e-9
"""Relative difference of losses that still counts as none."""


def is_same(difference: float | None) -> bool:
    """Tell whether two runs' losses are the same."""
    return difference is not None and difference <= SAME


def figures_of(
    histories: Sequence[History],
    alone: Mapping[str, Mapping[int, float]],
    jobs: Iterable[FakeJob],
    *,
    nodes: int,
    begin_s: float,
) -> Figures:
    """Return the figures of a demo.

    Args:
        histories: Of each trainer.
        alone: Losses by step of undisturbed runs, by trainer.
        jobs: All jobs of the cluster.
        nodes: Nodes of the cluster.
        begin_s: When the trainers were submitted, Unix time.
    """
    segments = [segment for history in histories for segment in history.segments]
    end_s = max((segment.last_s for segment in segments), default=begin_s)
    theirs = [job for job in jobs if job.run_s is not None]
    busy_s = sum(_busy_s(job, begin_s, end_s) for job in theirs)
    pauses_s = [pause_s for history in histories for pause_s in history.pauses_s]
    return Figures(
        seconds=end_s - begin_s,
        nodes=nodes,
        idle_node_s=nodes * (end_s - begin_s) - busy_s,
        trained_node_s=sum(
            len(segment.nodes) * (segment.last_s - segment.start_s)
            for segment in segments
        ),
        median_pause_s=median(pauses_s) if pauses_s else None,
        trainers=tuple(_trainer(h, alone.get(h.name, {})) for h in histories),
        others=_others(theirs),
    )


def most_difference(
    losses: Mapping[int, float], other: Mapping[int, float]
) -> float | None:
    """Return the largest relative difference; None where a step is missing."""
    if not losses or losses.keys() != other.keys():
        return None
    return max(
        abs(loss - other[step]) / max(abs(other[step]), 1e-300)
        for step, loss in losses.items()
    )


def _trainer(history: History, alone: Mapping[int, float]) -> TrainerFigures:
    by_broker = sum(segment.is_brokers for segment in history.rescales)
    return TrainerFigures(
        name=history.name,
        is_finished=history.is_finished,
        steps=history.steps,
        samples=history.samples,
        repeated_steps=history.repeated_steps,
        by_broker=by_broker,
        by_survivors=len(history.rescales) - by_broker,
        sizes=tuple(len(segment.nodes) for segment in history.segments),
        pauses_s=history.pauses_s,
        loss=history.losses.get(history.steps),
        loss_alone=alone.get(max(alone, default=0)),
        loss_difference=most_difference(history.losses, alone),
        accuracy=history.accuracy,
    )


def _busy_s(job: FakeJob, begin_s: float, end_s: float) -> float:
    if job.start_s is None:
        return 0.0
    until_s = end_s if job.end_s is None else min(job.end_s, end_s)
    return len(job.nodes) * max(0.0, until_s - max(job.start_s, begin_s))


def _others(theirs: Sequence[FakeJob]) -> OthersFigures:
    delays_s = [
        job.start_s - job.due_s
        for job in theirs
        if job.start_s is not None and job.due_s is not None
    ]
    return OthersFigures(
        jobs=len(delays_s),
        met_leases=sum(job.has_preempted for job in theirs),
        mean_delay_s=sum(delays_s) / max(1, len(delays_s)),
        most_delay_s=max(delays_s, default=0.0),
    )


# ----------------------------------------------------------------------
# A demo's figures in words, for screen and page alike

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


def trainer_row(trainer: TrainerFigures) -> tuple[str, ...]:
    """Return one trainer's cells, under ``HEADINGS``."""
    again = f"+{trainer.repeated_steps}" if trainer.repeated_steps else ""
    return (
        trainer.name,
        "yes" if trainer.is_finished else "no",
        f"{trainer.steps}{again}",
        f"{trainer.samples:,}",
        " ".join(map(str, trainer.sizes)),
        f"{trainer.by_broker}+{trainer.by_survivors}",
        _seconds(_middle(trainer.pauses_s)),
        "" if trainer.accuracy is None else per_cent(trainer.accuracy),
        _loss(trainer.loss),
        _loss(trainer.loss_alone),
    )


def cards(figures: Figures) -> tuple[tuple[str, str], ...]:
    """Return the headline figures, each with its meaning."""
    done = sum(trainer.is_finished for trainer in figures.trainers)
    broker = sum(trainer.by_broker for trainer in figures.trainers)
    survivors = sum(trainer.by_survivors for trainer in figures.trainers)
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
    differences = [trainer.loss_difference for trainer in figures.trainers]
    known = [value for value in differences if value is not None]
    return difference_words(max(known) if len(known) == len(differences) else None)


def shortfalls(figures: Figures) -> tuple[str, ...]:
    """Return why a demo is not good, one sentence a trainer; nothing where it is."""
    sentences = []
    for trainer in figures.trainers:
        if not trainer.is_finished:
            sentences.append(
                f"{trainer.name} was not done after {figures.seconds:.0f} s"
            )
        elif not is_same(trainer.loss_difference):
            words = difference_words(trainer.loss_difference)
            sentences.append(f"{trainer.name} differs from an undisturbed run: {words}")
        elif not trainer.rescales:
            sentences.append(f"{trainer.name} was never rescaled")
    return tuple(sentences)


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


# ----------------------------------------------------------------------
# The demo's report: one HTML page that needs no network and no script


def render_page(
    figures: Figures, last: DemoMoment, *, command: str, version: str, mpirun: str
) -> str:
    """Return the report as one HTML document.

    Args:
        figures: The figures of the demo.
        last: The moment at which it was over.
        command: The command that played it.
        version: Of FreeTrain.
        mpirun: Its path.
    """
    histories = last.histories
    bars = (*_held(last, last.begin_s + figures.seconds), *_trained(last))
    colours = [(history.name, colour) for history, colour in _coloured(histories)]
    kinds = (("another user's job", OTHERS), ("lease, not training", LEASED))
    return render(
        "live.html",
        headline=cards(figures),
        nodes_drawing=draw_rows(
            bars,
            rows=last.cluster.nodes,
            axis=Axis(
                first=0.0, last=figures.seconds, marks=[*_marks(figures.seconds)]
            ),
            title="Who had which node when",
        ),
        colours=(*colours, *kinds),
        trainer_headings=HEADINGS,
        trainers=[trainer_row(trainer) for trainer in figures.trainers],
        losses_drawing=_losses_drawing(histories),
        rescales=_rescales(last),
        command=command,
        version=version,
        mpirun=mpirun,
    )


_MARK_S = 20


def _marks(seconds: float) -> Iterator[tuple[float, str]]:
    for at_s in range(0, int(seconds) + 1, _MARK_S):
        yield at_s, f"{at_s} s"


def _losses_drawing(histories: Sequence[History]) -> Markup:
    last = max((max(h.losses, default=1) for h in histories), default=1)
    lines = [
        Line(points=sorted(history.losses.items()), colour=colour, label=history.name)
        for history, colour in _coloured(histories)
    ]
    axis = Axis(first=0, last=last, marks=[(0, "step 0"), (last, f"{last:,}")])
    return draw_lines(lines, axis=axis, title="Loss by step")


LEASED = "#8a8f9840"


def _held(last: DemoMoment, end_s: float) -> Iterator[Bar]:
    for job in last.cluster.jobs:
        if job.start_s is None or job.start_s > end_s:
            continue
        is_lease = job.run_s is None
        until_s = end_s if job.end_s is None else min(job.end_s, end_s)
        for node in job.nodes:
            yield Bar(
                row=node,
                start=max(0.0, job.start_s - last.begin_s),
                end=until_s - last.begin_s,
                colour=LEASED if is_lease else OTHERS,
                label=_job_words(job),
                is_thin=is_lease,
            )


def _job_words(job: FakeJob) -> str:
    if job.run_s is None:
        return f"lease {job.display_id}: {job.state}"
    notice_s = (job.due_s or 0.0) - job.submit_s
    came = f"known {notice_s:.0f} s before" if notice_s > 0 else "without notice"
    return f"{job.name}, {came}"


def _trained(last: DemoMoment) -> Iterator[Bar]:
    for history, colour in _coloured(last.histories):
        for segment in history.segments:
            for node in segment.nodes:
                yield Bar(
                    row=node,
                    start=segment.start_s - last.begin_s,
                    end=segment.last_s - last.begin_s,
                    colour=colour,
                    label=f"{history.name}, generation {segment.generation}, "
                    f"{len(segment.nodes)} nodes",
                )


def _rescales(last: DemoMoment) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for history in last.histories:
        pairs = pairwise(history.segments)
        for (old, new), pause_s in zip(pairs, history.pauses_s, strict=True):
            rows.append(
                (
                    f"{new.start_s - last.begin_s:.1f} s",
                    history.name,
                    f"{len(old.nodes)} → {len(new.nodes)}",
                    "broker" if new.is_brokers else "survivors",
                    f"{pause_s:.2f} s",
                    new.reason,
                )
            )
    rows.sort(key=lambda row: float(row[0].split()[0]))
    return rows


def _coloured(histories: Sequence[History]) -> Iterator[tuple[History, str]]:
    for k, history in enumerate(histories):
        yield history, COLOURS[k % len(COLOURS)]
