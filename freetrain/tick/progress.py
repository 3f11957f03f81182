"""What trainers reported since the last tick: read on within bounds, measured, fitted.

``read_progress`` adds new reports to each trainer's history and measures its speed by
them. ``KeptLossForecasts`` fits losses anew only where something new was reported. Both
load much; a tick without trainers does without this module.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from freetrain.errors import BadDataError
from freetrain.launch.request import logs_of
from freetrain.losscurve.curve import LossHistory
from freetrain.losscurve.fit import (
    broken_forecast,
    fingerprint,
    fit_history,
    from_state,
)
from freetrain.losscurve.fit import to_state as loss_forecast_to_state
from freetrain.progress import BEGINNING, Bookmark, Reader, bookmark_from
from freetrain.scaling import ProgressMark, TrainedFragment, to_state
from freetrain.state.files import (
    Ended,
    UnreadableFileError,
    generations,
    read_assigned,
    read_ending,
)
from freetrain.state.tables import HistoryRow, LossForecastRow, TrainerState, history_of
from freetrain.tick.history import TrainerHistory, history_from, known_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from freetrain.config.job import TrainerJob
    from freetrain.losscurve.forecast import Better, LossForecast, Point
    from freetrain.progress import ProgressRecord
    from freetrain.state.files import TrainerDir
    from freetrain.tick.context import TickContext
    from freetrain.tick.history import TrainingSegment
    from freetrain.tick.trainers import TickTrainer


MOST_BYTES = 1 << 22
"""Read in one tick: half a second of work; the rest comes with the next ticks."""

MOST_BYTES_EACH = 1 << 20
"""Of one trainer; above the longest line, or reading would stand still."""

_FOLLOWED = {TrainerState.WANTED, TrainerState.PAUSED}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerProgress:
    """What is known of one trainer by its own reports.

    Attributes:
        history: What it reported.
        scaling: Its measured speeds and costs, as JSON has them (``scaling.to_state``).
        bookmark: How far its reports were read.
        submitted_s: Which of its submissions this is about.
        is_read: Whether anything was read in this tick.
    """

    history: TrainerHistory
    scaling: Mapping[str, Any]
    bookmark: Bookmark
    submitted_s: float
    is_read: bool = False

    def row(self, name: str) -> HistoryRow:
        """Return the row that the store keeps until the next tick."""
        return HistoryRow(
            trainer=name,
            submitted_s=self.submitted_s,
            bookmark=asdict(self.bookmark),
            history=self.history.to_state(),
            scaling=self.scaling,
        )


def read_progress(
    context: TickContext, trainers: Sequence[TickTrainer], *, now_s: float
) -> dict[str, TrainerProgress]:
    """Return the progress of the trainers that train, or may train again, by name.

    Raises:
        StoreError: What was known before cannot be read.
        OSError: A file cannot be read.
    """
    followed = [
        (trainer, trainer.job)
        for trainer in trainers
        if trainer.job is not None
        and not trainer.problem
        and trainer.row.state in _FOLLOWED
    ]
    progress: dict[str, TrainerProgress] = {}
    left_bytes = MOST_BYTES
    # Trainers for whom the bound left nothing this time come earlier the next.
    start = int(now_s) % max(1, len(followed))
    for trainer, job in followed[start:] + followed[:start]:
        name, known = trainer.row.name, _known_before(context, trainer)
        if left_bytes < MOST_BYTES_EACH:
            progress[name] = known
            continue
        progress[name], read_bytes = _read_on(context, trainer, job, known, now_s)
        left_bytes -= read_bytes
    return progress


def _known_before(context: TickContext, trainer: TickTrainer) -> TrainerProgress:
    """Return what was known at the last tick; nothing where it cannot be read."""
    name, submitted_s = trainer.row.name, trainer.row.submitted_s
    kept = history_of(context.state, name, submitted_s=submitted_s)
    if kept is not None:
        # Another release's row is skipped: the files still have everything.
        with suppress(KeyError, TypeError):
            return TrainerProgress(
                history=history_from(kept.history),
                scaling=kept.scaling,
                bookmark=bookmark_from(kept.bookmark),
                submitted_s=submitted_s,
            )
    return TrainerProgress(
        history=TrainerHistory(),
        scaling={},
        bookmark=BEGINNING,
        submitted_s=submitted_s,
    )


def _read_on(
    context: TickContext,
    trainer: TickTrainer,
    job: TrainerJob,
    known: TrainerProgress,
    now_s: float,
) -> tuple[TrainerProgress, int]:
    """Return the progress with what came since, and how many bytes were read."""
    folder = context.folder.trainer(trainer.row.name)
    reader = Reader(
        job,
        Path(trainer.row.run_dir),
        logs_of(job, folder),
        unix_s=lambda: now_s,
        since=known.bookmark,
    )
    records = reader.read(most_bytes=MOST_BYTES_EACH)
    if reader.bookmark == known.bookmark:
        return known, 0
    grown = known.history.add(_numbered(records, trainer), job)
    scaling: Mapping[str, Any] = {}
    if context.site.planner.learn:
        learned = known_from(known.scaling)
        for segment, previous in grown:
            fragment = _fragment(folder, segment, previous)
            if fragment is not None:
                learned = learned.with_fragment(fragment)
        scaling = to_state(learned)
    progress = replace(known, scaling=scaling, bookmark=reader.bookmark, is_read=True)
    return progress, reader.read_bytes


def _numbered(
    records: Iterable[ProgressRecord], trainer: TickTrainer
) -> Iterator[ProgressRecord]:
    """Yield *records*; those in a file of all generations are of the newest."""
    newest = trainer.newest
    for record in records:
        if record.generation is not None or newest is None or not newest.members:
            yield record
        elif record.t is None or record.t >= newest.created_s:
            yield replace(record, generation=newest.generation)


# From a segment of progress, and the files of its generation, to a measured fragment.

_FAILURES = {Ended.FAILED, Ended.KILLED}


def _fragment(
    folder: TrainerDir, segment: TrainingSegment, previous: TrainingSegment | None
) -> TrainedFragment | None:
    """Return the fragment of *segment*; None where its files are gone.

    Raises:
        OSError: A file cannot be read.
    """
    rows = segment.marks.rows
    try:
        assigned = read_assigned(folder, segment.generation)
        nodes_before = _nodes_before(folder, segment, previous)
        has_failed = previous is not None and _has_failed(folder, previous)
    except (FileNotFoundError, UnreadableFileError):
        return None
    if not rows or not assigned.members:
        return None
    (first_s, first_work, first_step), *between = rows
    last_s, last_work, last_step = rows[-1]
    return TrainedFragment(
        nodes=len(assigned.members),
        began_s=assigned.created_s,
        first_step_s=first_s,
        last_step_s=last_s,
        samples=last_work - first_work,
        steps=int(last_step - first_step),
        marks=tuple(
            ProgressMark(t_s, work - first_work) for t_s, work, _ in between[:-1]
        ),
        nodes_before=nodes_before,
        step_before_s=None if previous is None else previous.last_s,
        follows_failure=has_failed,
    )


def _nodes_before(
    folder: TrainerDir, segment: TrainingSegment, previous: TrainingSegment | None
) -> int:
    """Return the nodes it had just before; 0 where it ran nowhere in between."""
    if previous is None:
        return 0
    since = range(previous.generation, segment.generation)
    known = [g for g in generations(folder.assignments) if g in since]
    members = [read_assigned(folder, g).members for g in known]
    if not known or known[0] != previous.generation or not all(members):
        return 0
    return len(members[0])


def _has_failed(folder: TrainerDir, segment: TrainingSegment) -> bool:
    ending = read_ending(folder, segment.generation)
    return ending is not None and ending.ended in _FAILURES and not ending.lost_lease


# Loss forecasts, fitted anew only where a trainer reported something new.


class KeptLossForecasts:
    """Forecasts losses of trainers, by a kept fit where nothing new was reported.

    Attributes:
        fresh: What was fitted here, to be kept for later ticks.
    """

    def __init__(self, kept: Callable[[str, str], Mapping[str, Any] | None]) -> None:
        """Take *kept*: it returns the kept fit of a trainer and a fingerprint."""
        self.fresh: list[LossForecastRow] = []
        self._kept = kept

    def look(
        self, name: str, points: Sequence[Point], better: Better
    ) -> LossForecast | None:
        """Return the forecast of the trainer *name*; None where there is none.

        Args:
            name: Unique among trainers.
            points: All points of its metric, in order.
            better: Which values are good.
        """
        history, points_id = LossHistory(points), fingerprint(points, better)
        kept = self._kept(name, points_id)
        if kept is not None:
            with suppress(BadDataError):
                return from_state(kept, history, better)
        fitted = fit_history(history, better)
        if fitted is None:
            return broken_forecast(history, better)
        self.fresh.append(
            LossForecastRow(name, points_id, loss_forecast_to_state(fitted))
        )
        return fitted
