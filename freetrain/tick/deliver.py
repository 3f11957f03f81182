"""Delivering models: publish the checkpoint of a reached target, then call its hook.

A delivery goes through the stages of ``state.tables.Stage``, each recorded before the
next begins: reached, published, calling, delivered. A hook is called at most once.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.elastic.checkpoint import copy_checked
from freetrain.elastic.contract import CheckpointError
from freetrain.elastic.files import RunDir, replaced
from freetrain.state.files import UnreadableFileError, read_environment
from freetrain.state.tables import (
    Delivery,
    DeliveryStage,
    Event,
    EventKind,
    add_events,
    deliveries,
    put_delivery,
)
from freetrain.tick.environment import HookCall

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.config.job import TargetSettings, TrainerJob
    from freetrain.state.tables import TrainerRow
    from freetrain.tick.context import TickContext
    from freetrain.tick.observe import Observed

_COMMITS = 2.0
_MORE_S = 120.0
"""Two commits and two minutes after its target was reached, a trainer that stopped
short of a commit is delivered with what it has."""

NOBODY_KNOWS = (
    "a tick died while it called the hook: nobody knows how far that came, and it is "
    "not called again"
)


def newly_reached(observed: Observed) -> Iterator[Delivery]:
    """Yield a delivery for each trainer that has just reached its first target."""
    for trainer in observed.trainers:
        name, submitted_s = trainer.row.name, trainer.row.submitted_s
        progress = observed.progress.get(name)
        if progress is None or progress.history.deliver is None:
            continue
        if (name, submitted_s) in observed.deliveries:
            continue
        target = progress.history.deliver
        yield Delivery(
            trainer=name,
            submitted_s=submitted_s,
            stage=DeliveryStage.REACHED,
            reached_s=target.t_s or observed.now_s,
            step=target.step,
            value=target.value,
            changed_s=observed.now_s,
        )


def deliver(context: TickContext, observed: Observed) -> None:
    """Advance all deliveries as far as possible, with one call of a hook at most.

    Raises:
        StoreError: The state cannot be written; the next tick goes on.
    """
    trainers = {(t.row.name, t.row.submitted_s): t for t in observed.trainers}
    for key, delivery in deliveries(context.state).items():
        trainer = trainers.get(key)
        if trainer is None or trainer.job is None or trainer.job.target is None:
            continue
        run = _Delivery(
            context, trainer.row, trainer.job, trainer.job.target, observed.now_s
        )
        if run.advance(delivery):
            break


@dataclass(frozen=True, slots=True)
class _Delivery:
    """One trainer's delivery, in this tick."""

    context: TickContext
    row: TrainerRow
    job: TrainerJob
    target: TargetSettings
    now_s: float

    def advance(self, delivery: Delivery) -> bool:
        """Take *delivery* through its next stages; tell whether a hook was called."""
        if delivery.stage is DeliveryStage.CALLING:
            self._record(delivery, DeliveryStage.DELIVERED, problem=NOBODY_KNOWS)
            return False
        if delivery.stage is DeliveryStage.REACHED:
            delivery = self._publish(delivery)
        if delivery.stage is not DeliveryStage.PUBLISHED:
            return False
        if not self.target.hook:
            self._record(delivery, DeliveryStage.DELIVERED)
            return False
        delivery = self._record(delivery, DeliveryStage.CALLING)
        with self.context.effect(f"calling the hook of {self.row.name}"):
            problem = self._call_hook(delivery)
        self._record(delivery, DeliveryStage.DELIVERED, problem=problem)
        return True

    def _publish(self, delivery: Delivery) -> Delivery:
        """Publish the checkpoint, if there is one already that has the step."""
        place = self.target.publish
        if place is None:
            return self._record(delivery, DeliveryStage.PUBLISHED)
        patience_s = _COMMITS * self.job.checkpoint.every_s + _MORE_S
        is_overdue = self.now_s - delivery.changed_s > patience_s
        since_step = None if is_overdue else delivery.step
        run_dir = RunDir(Path(self.row.run_dir))
        try:
            with self.context.effect(f"publishing {self.row.name}"):
                name = publish(run_dir, place, since_step=since_step)
        except OSError as error:
            problem = f"cannot publish {place}: {error.strerror or error}"
            return self._record_problem(delivery, problem)
        if not name:
            problem = "no checkpoint has the step yet at which the target was reached"
            return self._record_problem(delivery, problem)
        return self._record(delivery, DeliveryStage.PUBLISHED, checkpoint=name)

    def _call_hook(self, delivery: Delivery) -> str:
        folder = self.context.folder.trainer(self.row.name)
        try:
            variables = read_environment(folder)
        except (OSError, UnreadableFileError) as error:
            return f"the hook was not called, for want of its variables: {error}"
        about_delivery = {
            "FREETRAIN_TRAINER": self.row.name,
            "FREETRAIN_METRIC": self.job.measure.metric,
            "FREETRAIN_VALUE": repr(delivery.value),
            "FREETRAIN_PUBLISHED": str(self.target.publish or ""),
        }
        call = HookCall(
            argv=self.target.hook,
            folder=self.job.directory,
            variables=variables | about_delivery,
            limit_s=self.target.hook_limit_s,
        )
        return self.context.environment.call(call)

    def _record_problem(self, delivery: Delivery, problem: str) -> Delivery:
        """Record why it does not go on, once for each reason."""
        if problem == delivery.problem:
            return delivery
        delivery = replace(delivery, problem=problem)
        with self.context.writing("a delivery") as state:
            put_delivery(state, delivery)
        return delivery

    def _record(
        self,
        delivery: Delivery,
        stage: DeliveryStage,
        *,
        checkpoint: str = "",
        problem: str = "",
    ) -> Delivery:
        """Record that *stage* is reached."""
        new = replace(
            delivery,
            stage=stage,
            changed_s=self.now_s,
            checkpoint=checkpoint or delivery.checkpoint,
            problem=problem,
        )
        with self.context.writing("a delivery") as state:
            put_delivery(state, new)
            if stage is DeliveryStage.DELIVERED:
                name, detail = self.row.name, problem or new.checkpoint
                event = Event(self.now_s, EventKind.DELIVERED, name, 0, detail)
                add_events(state, [event])
        return new


def publish(run_dir: RunDir, place: Path, *, since_step: int | None) -> str:
    """Copy the newest checkpoint that is whole to *place*, whole or not at all.

    It is a copy and no link: its users may change it, and training goes on from the
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
    for checkpoint in reversed(run_dir.committed()):
        if checkpoint.step < (since_step or 0):
            continue
        with suppress(CheckpointError, FileNotFoundError):  # torn, or pruned just now
            _copy(checkpoint.path, place)
            return checkpoint.path.name
    return ""


def _copy(path: Path, place: Path) -> None:
    with path.open("rb") as source:
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = place.with_name(f".{place.name}.new")
        with replaced(place, temporary=temporary) as target:
            copy_checked(source, target)
