"""Putting a trainer's newest sound checkpoint where its user wants it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.elastic.checkpoint import copy_checked
from freetrain.elastic.errors import CheckpointError
from freetrain.elastic.files import RunDir, replaced
from freetrain.state.files import UnreadableFileError, read_environment
from freetrain.state.tables import (
    Delivery,
    Event,
    EventKind,
    Stage,
    add_events,
    deliveries,
    put_delivery,
)
from freetrain.tick.environment import HookCall

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.config.job import Target, TrainerJob
    from freetrain.tick.context import TickContext
    from freetrain.tick.observe import Observed
    from freetrain.tick.trainers import ObservedTrainer


# ----------------------------------------------------------------------
# Putting a trainer's newest sound checkpoint where its user wants it.


def publish(run_dir: RunDir, place: Path, *, since_step: int | None) -> str:
    """Copy the newest checkpoint that is whole to *place*, whole or not at all.

    A copy, no link: whoever uses it may change it, and training goes on from the
    original. What was there before is replaced.

    Args:
        run_dir: The trainer's.
        place: The file to make.
        since_step: Steps that the checkpoint must have; None for any.

    Returns:
        The checkpoint's name; empty where there is none yet that will do.

    Raises:
        OSError: It could not be read or written.
    """
    for one in reversed(run_dir.committed()):
        if one.step < (since_step or 0):
            continue
        with suppress(CheckpointError, FileNotFoundError):  # torn, or pruned just now
            _copy(one.path, place)
            return one.path.name
    return ""


def _copy(path: Path, place: Path) -> None:
    with path.open("rb") as source:
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = place.with_name(f".{place.name}.new")
        with replaced(place, temporary=temporary) as target:
            copy_checked(source, target)


# ----------------------------------------------------------------------
# Handing models over: the checkpoint is published, then the hook is called, once.

_COMMITS = 2.0
_PATIENCE_S = 120.0
"""Two commits and two minutes after its target was told, a trainer that stopped short
of a commit is delivered with what it has."""

NOBODY_KNOWS = (
    "a tick died while it called the hook: nobody knows how far that came, and it is "
    "not called again"
)


def deliver(context: TickContext, observed: Observed) -> None:
    """Bring all deliveries as far as they come, with one call of a hook at the most.

    Raises:
        StoreError: The state cannot be written; the next tick goes on.
    """
    known = {(one.row.name, one.row.submitted_s): one for one in observed.trainers}
    for key, delivery in deliveries(context.state).items():
        trainer = known.get(key)
        if trainer is None or trainer.job is None or trainer.job.target is None:
            continue
        step = _Delivering(context, observed, trainer, trainer.job, trainer.job.target)
        if step.advance(delivery):
            break


class _Delivering:
    """One trainer's delivery, in this tick."""

    def __init__(
        self,
        context: TickContext,
        observed: Observed,
        trainer: ObservedTrainer,
        job: TrainerJob,
        target: Target,
    ) -> None:
        self._run = context
        self._now_s = observed.now_s
        self._row = trainer.row
        self._job = job
        self._target = target

    def advance(self, delivery: Delivery) -> bool:
        """Go on with *delivery*; tell whether a hook was called."""
        if delivery.stage is Stage.CALLING:
            self._write(delivery, Stage.DELIVERED, problem=NOBODY_KNOWS)
            return False
        if delivery.stage is Stage.REACHED:
            delivery = self._published(delivery)
        if delivery.stage is not Stage.PUBLISHED:
            return False
        if not self._target.hook:
            self._write(delivery, Stage.DELIVERED)
            return False
        delivery = self._write(delivery, Stage.CALLING)
        with self._run.effect(f"calling the hook of {self._row.name}"):
            problem = self._call(delivery)
        self._write(delivery, Stage.DELIVERED, problem=problem)
        return True

    def _published(self, delivery: Delivery) -> Delivery:
        """Publish the checkpoint, if it is there already."""
        place = self._target.publish
        if place is None:
            return self._write(delivery, Stage.PUBLISHED)
        patience_s = _COMMITS * self._job.checkpoint.every_s + _PATIENCE_S
        is_overdue = self._now_s - delivery.changed_s > patience_s
        since = None if is_overdue else delivery.step
        run_dir = RunDir(Path(self._row.run_dir))
        try:
            with self._run.effect(f"publishing {self._row.name}"):
                name = publish(run_dir, place, since_step=since)
        except OSError as error:
            problem = f"cannot publish {place}: {error.strerror or error}"
            return self._tell(delivery, problem)
        if not name:
            problem = "no checkpoint has the step yet at which the target was reached"
            return self._tell(delivery, problem)
        return self._write(delivery, Stage.PUBLISHED, checkpoint=name)

    def _call(self, delivery: Delivery) -> str:
        try:
            kept = read_environment(self._run.folder.trainer(self._row.name))
        except (OSError, UnreadableFileError) as error:
            return f"the hook was not called, for want of its variables: {error}"
        told = {
            "FREETRAIN_TRAINER": self._row.name,
            "FREETRAIN_METRIC": self._job.measure.metric,
            "FREETRAIN_VALUE": repr(delivery.value),
            "FREETRAIN_PUBLISHED": str(self._target.publish or ""),
        }
        call = HookCall(
            argv=self._target.hook,
            folder=self._job.directory,
            variables=kept | told,
            limit_s=self._target.hook_limit_s,
        )
        return self._run.environment.call(call)

    def _tell(self, delivery: Delivery, problem: str) -> Delivery:
        """Write down why it does not go on, once for each reason."""
        if problem == delivery.problem:
            return delivery
        told = replace(delivery, problem=problem)
        with self._run.writing("a delivery") as state:
            put_delivery(state, told)
        return told

    def _write(
        self,
        delivery: Delivery,
        stage: Stage,
        *,
        checkpoint: str = "",
        problem: str = "",
    ) -> Delivery:
        """Write down that *stage* is reached."""
        new = replace(
            delivery,
            stage=stage,
            changed_s=self._now_s,
            checkpoint=checkpoint or delivery.checkpoint,
            problem=problem,
        )
        with self._run.writing("a delivery") as state:
            put_delivery(state, new)
            if stage is Stage.DELIVERED:
                name, said = self._row.name, problem or new.checkpoint
                kind = EventKind.DELIVERED
                add_events(state, [Event(self._now_s, kind, name, 0, said)])
        return new


# ----------------------------------------------------------------------
# Which trainers have just reached the value at which they are delivered; pure.


def reached(observed: Observed) -> Iterator[Delivery]:
    """Yield the deliveries that nobody has written down yet."""
    for trainer in observed.trainers:
        name, submitted_s = trainer.row.name, trainer.row.submitted_s
        progress = observed.progress.get(name)
        if progress is None or progress.history.deliver is None:
            continue
        if (name, submitted_s) in observed.deliveries:
            continue
        told = progress.history.deliver
        yield Delivery(
            trainer=name,
            submitted_s=submitted_s,
            stage=Stage.REACHED,
            reached_s=told.t_s or observed.now_s,
            step=told.step,
            value=told.value,
            changed_s=observed.now_s,
        )
