"""The demo's report: one HTML page that needs no network and no script."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from freetrain.demo.timeline import (
    COLOURS,
    LEASED,
    OTHERS,
    Bar,
    draw_losses,
    draw_nodes,
)
from freetrain.demo.wording import HEADINGS, cards, trainer_row
from freetrain.report.document import document, how_made, in_cards, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from freetrain.demo.figures import Figures
    from freetrain.demo.history import History
    from freetrain.standin.records import Cluster, Job

_WHAT = (
    "The same broker, agents and training as on a cluster, on this machine alone, "
    "against a small stand-in for Slurm."
)

_STYLE = """
figure { overflow-x: auto; }
svg { font: 13px system-ui, sans-serif; display: block; min-width: 42rem; }
svg text { fill: var(--soft); } svg .grid { stroke: var(--line); }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A demo that is over.

    Attributes:
        figures: What it showed, in numbers.
        histories: What happened to each trainer.
        cluster: The stand-in at the end.
        begin_s: When the trainers were submitted, Unix time.
        command: What was called.
        version: Of FreeTrain.
        mpirun: What started the worlds.
    """

    figures: Figures
    histories: tuple[History, ...]
    cluster: Cluster
    begin_s: float
    command: str
    version: str
    mpirun: str


def render_page(played: Played) -> str:
    """Return the report as one HTML document."""
    body = "\n".join(
        (
            "<h1>Three trainers in the holes of eight nodes</h1>",
            f'<p class="soft">{_WHAT}</p>',
            in_cards(cards(played.figures)),
            _nodes(played),
            _trainers(played.figures),
            _losses(played.histories),
            _rescales(played),
            _how(played),
        )
    )
    return document("FreeTrain, live", body, style=_STYLE)


def _nodes(played: Played) -> str:
    bars = (*_held(played), *_trained(played))
    drawing = draw_nodes(
        bars, nodes=played.cluster.nodes, seconds=played.figures.seconds
    )
    names = [(h.name, colour) for h, colour in _coloured(played.histories)]
    kinds = [*names, ("somebody else's job", OTHERS), ("lease, not training", LEASED)]
    dots = " ".join(
        f'<span class="dot" style="background:{colour}"></span>{escape(name)} &nbsp; '
        for name, colour in kinds
    )
    return (
        f"<h2>Who had which node when</h2>\n<figure>{drawing}"
        f"<figcaption>{dots}</figcaption></figure>"
    )


def _held(played: Played) -> Iterator[Bar]:
    end_s = played.begin_s + played.figures.seconds
    for job in played.cluster.jobs:
        if job.start_s is None or job.start_s > end_s:
            continue
        is_lease = job.run_s is None
        until_s = end_s if job.end_s is None else min(job.end_s, end_s)
        for node in job.nodes:
            yield Bar(
                node=node,
                start_s=max(0.0, job.start_s - played.begin_s),
                end_s=until_s - played.begin_s,
                colour=LEASED if is_lease else OTHERS,
                label=_job_words(job),
                is_thin=is_lease,
            )


def _job_words(job: Job) -> str:
    if job.run_s is None:
        return f"lease {job.display_id}: {job.state}"
    notice_s = (job.due_s or 0.0) - job.submit_s
    came = f"known {notice_s:.0f} s before" if notice_s > 0 else "without notice"
    return f"{job.name}, {came}"


def _trained(played: Played) -> Iterator[Bar]:
    for history, colour in _coloured(played.histories):
        for stretch in history.stretches:
            for node in stretch.nodes:
                yield Bar(
                    node=node,
                    start_s=stretch.start_s - played.begin_s,
                    end_s=stretch.last_s - played.begin_s,
                    colour=colour,
                    label=f"{history.name}, generation {stretch.generation}, "
                    f"{len(stretch.nodes)} nodes",
                )


def _trainers(figures: Figures) -> str:
    rows = (trainer_row(one) for one in figures.trainers)
    return f"<h2>Trainers</h2>\n{table(HEADINGS, rows)}"


def _losses(histories: Sequence[History]) -> str:
    colours = {history.name: colour for history, colour in _coloured(histories)}
    drawing = draw_losses({h.name: h.told.losses for h in histories}, colours)
    return (
        f"<h2>Loss by step</h2>\n<figure>{drawing}<figcaption>Undisturbed runs have "
        "the same loss in every step, or the figures above say by how much not."
        "</figcaption></figure>"
    )


def _rescales(played: Played) -> str:
    rows = []
    for history in played.histories:
        pairs = pairwise(history.stretches)
        for (old, new), pause_s in zip(pairs, history.pauses_s, strict=True):
            rows.append(
                (
                    f"{new.start_s - played.begin_s:.1f} s",
                    history.name,
                    f"{len(old.nodes)} → {len(new.nodes)}",
                    "broker" if new.is_brokers else "survivors",
                    f"{pause_s:.2f} s",
                    new.reason,
                )
            )
    rows.sort(key=lambda row: float(row[0].split()[0]))
    heads = ("when", "trainer", "nodes", "decided by", "pause", "why")
    return (
        f"<h2>Rescales</h2>\n{table(heads, rows)}"
        '<p class="soft">A pause lasts from the last step before to the end of the '
        "first step after; after a kill also what nobody was asked for.</p>"
    )


def _coloured(histories: Sequence[History]) -> Iterator[tuple[History, str]]:
    for k, history in enumerate(histories):
        yield history, COLOURS[k % len(COLOURS)]


def _how(played: Played) -> str:
    facts = (
        ("Worlds", f"started by <code>{escape(played.mpirun)}</code>"),
        ("Explained", "docs/live-demo.md says what is real here and what is not."),
    )
    return how_made(played.command, played.version, facts)
