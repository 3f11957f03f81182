"""What trainers told since the last tick, read on within bounds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from freetrain.launch.places import logs_of
from freetrain.progress.bookmark import BEGINNING, Bookmark, bookmark_from
from freetrain.progress.reader import Reader
from freetrain.store.pasts import PastRow, past_of
from freetrain.store.trainers import TrainerState
from freetrain.tick.past import Past, past_from

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from freetrain.exchange.layout import TrainerDir
    from freetrain.jobfile.job import TrainerJob
    from freetrain.progress.record import Record
    from freetrain.tick.past import Grown
    from freetrain.tick.run import Run
    from freetrain.tick.standing import Standing

MOST_BYTES = 1 << 22
"""Read in one tick: half a second of work; the rest comes with the next ticks."""

MOST_BYTES_EACH = 1 << 20
"""Of one trainer; above the longest line, or reading would stand still."""

_FOLLOWED = {TrainerState.WANTED, TrainerState.PAUSED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What is known of one trainer from its own words.

    Attributes:
        past: What it told.
        scaling: What it showed of its speed, as JSON has it (``scaling.state``).
        bookmark: How far was read.
        submitted_s: Which of its submissions it is about.
        is_read: Whether anything was read since the last tick.
    """

    past: Past
    scaling: Mapping[str, Any]
    bookmark: Bookmark
    submitted_s: float
    is_read: bool = False

    def row(self, name: str) -> PastRow:
        """Return what is to be kept."""
        return PastRow(
            trainer=name,
            submitted_s=self.submitted_s,
            bookmark=asdict(self.bookmark),
            past=self.past.to_state(),
            scaling=self.scaling,
        )


def learn(
    run: Run, standings: Sequence[Standing], *, now_s: float
) -> dict[str, Learned]:
    """Return what is known of the trainers that train, or may train again.

    Raises:
        StoreError: What was known before cannot be read.
        OSError: A file cannot be read.
    """
    followed = [
        (one, one.job)
        for one in standings
        if one.job is not None and not one.problem and one.row.state in _FOLLOWED
    ]
    learned, left = {}, MOST_BYTES
    # Whoever came too late for the bound this time comes earlier the next.
    start = int(now_s) % max(1, len(followed))
    for standing, job in followed[start:] + followed[:start]:
        before = _before(run, standing)
        name = standing.row.name
        if left < MOST_BYTES_EACH:
            learned[name] = before
            continue
        learned[name], read_bytes = _read_on(run, standing, job, before, now_s)
        left -= read_bytes
    return learned


def _before(run: Run, standing: Standing) -> Learned:
    """Return what was known at the last tick; nothing where it cannot be read."""
    row, at_s = standing.row, standing.row.submitted_s
    kept = past_of(run.state, row.name, submitted_s=at_s)
    try:
        if kept is not None:
            return Learned(
                past=past_from(kept.past),
                scaling=kept.scaling,
                bookmark=bookmark_from(kept.bookmark),
                submitted_s=at_s,
            )
    except (KeyError, TypeError):  # another release's: it is all still in the files
        pass
    return Learned(past=Past(), scaling={}, bookmark=BEGINNING, submitted_s=at_s)


def _read_on(
    run: Run, standing: Standing, job: TrainerJob, before: Learned, now_s: float
) -> tuple[Learned, int]:
    folder = run.folder.trainer(standing.row.name)
    reader = Reader(
        job,
        Path(standing.row.run_dir),
        logs_of(job, folder),
        unix_s=lambda: now_s,
        since=before.bookmark,
    )
    records = reader.read(most_bytes=MOST_BYTES_EACH)
    if reader.bookmark == before.bookmark:
        return before, 0
    grown = before.past.take(_numbered(records, standing), job)
    scaling = _with(grown, before.scaling, folder) if run.site.planner.learn else {}
    learned = replace(before, scaling=scaling, bookmark=reader.bookmark, is_read=True)
    return learned, reader.read_bytes


def _with(
    grown: Iterable[Grown], scaling: Mapping[str, Any], folder: TrainerDir
) -> Mapping[str, Any]:
    """Return *scaling* with what the stretches that have *grown* show."""
    # Imported here: a site may want to know nothing of it.
    from freetrain.tick.fragments import fragment_of  # noqa: PLC0415
    from freetrain.tick.measured import with_fragments  # noqa: PLC0415

    fragments = (fragment_of(folder, *one) for one in grown)
    return with_fragments(scaling, filter(None, fragments))


def _numbered(records: Iterable[Record], standing: Standing) -> Iterator[Record]:
    """Yield *records*; those in a file of all generations are of the newest."""
    newest = standing.newest
    for record in records:
        if record.generation is not None or newest is None or not newest.members:
            yield record
        elif record.t is None or record.t >= newest.created_s:
            yield replace(record, generation=newest.generation)
