"""Elastic training with the ``Trainer`` of Hugging Face Transformers.

The arguments come first, as they set up PyTorch's process group::

    arguments = TrainingArguments("out", per_device_train_batch_size=8)
    with ElasticTrainerCallback(arguments, global_batch=64) as training:
        trainer = Trainer(model, arguments, train_dataset=data)
        training.train(trainer)
        if training.finished:
            trainer.save_model("model")
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback
from transformers.trainer_utils import SaveStrategy

from freetrain import elastic
from freetrain.elastic.fragment import RESERVED
from freetrain.integrations.torch import RunBlock, check_shares, join

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Self

    from transformers import (
        Trainer,
        TrainerControl,
        TrainerState,
        TrainingArguments,
    )


_EVALUATING = "evaluating"
# Orders of samples that depend on seed and epoch alone; others on batches, too.
_ORDERS = ("random", "sequential")


class ElasticTrainerCallback(RunBlock, TrainerCallback):
    """Joins the run, and has a ``Trainer`` commit, report and leave when asked to."""

    def __init__(self, arguments: TrainingArguments, *, global_batch: int) -> None:
        """Set the arguments so that *global_batch* samples make a step in every world.

        ``gradient_accumulation_steps`` follows from the number of ranks and
        ``per_device_train_batch_size``, which becomes less where a rank's share is.
        Checkpoints are FreeTrain's matter: the arguments about saving are set, too.

        Raises:
            LaunchError: The ranks have no equal shares of *global_batch*.
            ProgramError: The arguments ask for what cannot be resumed exactly.
        """
        if arguments.load_best_model_at_end:
            raise _refused("load_best_model_at_end needs checkpoints of its own")
        if str(arguments.train_sampling_strategy) not in _ORDERS:
            raise _refused(
                "train_sampling_strategy makes the order of samples depend "
                "on the number of ranks"
            )
        size = arguments.world_size
        check_shares(global_batch, size=size, pieces=1)
        at_once = min(arguments.train_batch_size, global_batch // size)
        check_shares(global_batch, size=size * at_once, pieces=1)
        arguments.per_device_train_batch_size = at_once
        arguments.gradient_accumulation_steps = global_batch // (size * at_once)
        arguments.save_strategy = SaveStrategy.NO
        arguments.save_only_model = False
        arguments.save_total_limit = None
        if arguments.data_seed is None:
            arguments.data_seed = arguments.seed
        self._arguments = arguments
        self._global_batch = global_batch
        self._samples = 0
        self._save_all: Callable[[], None] = lambda: None
        self._joined = ExitStack()

    def __enter__(self) -> Self:
        """Join the run; collective."""
        self.run = self._joined.enter_context(join())
        return self

    def train(self, trainer: Trainer) -> None:
        """Train from the last commit on, until the end or asked to leave; collective.

        Where an evaluation is cut short, the next generation begins with it.
        """
        if self.run.leaving:
            return
        # Trainer has no public way to save in the middle of an evaluation.
        self._save_all = lambda: trainer._save_checkpoint(  # noqa: SLF001 -- see above
            trainer.model, trial=None
        )
        self._samples = _count(trainer, self._global_batch)
        trainer.add_callback(self)
        if self.run.notes.get(_EVALUATING):
            self._arguments.eval_on_start = True
        folder = self.run.checkpoint
        trainer.train(resume_from_checkpoint=str(folder) if folder else None)
        self.run.end()

    # What Trainer calls.

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, *_: Any, **__: Any
    ) -> None:
        """Begin at the step that was restored."""
        steps = self._samples // self._global_batch
        self.run.begin(
            samples=self._samples,
            global_batch=self._global_batch,
            epochs=math.ceil(state.max_steps / steps),
            seed=args.data_seed or 0,
        )
        self.run.rewind_random()

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **_: Any,
    ) -> None:
        """End the step; stop if that was agreed."""
        del args, state
        self.run.end_step(self._save)
        self._leave(control)

    def on_epoch_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **_: Any,
    ) -> None:
        """Do not evaluate on the way out."""
        del args, state
        self._leave(control)

    def on_substep_end(self, *_: Any, **__: Any) -> None:
        """Commit or leave between the batches of a step."""
        self.run.poll()

    def on_prediction_step(self, *_: Any, **__: Any) -> None:
        """Commit or leave in an evaluation."""
        self.run.notes[_EVALUATING] = True
        self.run.poll()

    def on_evaluate(self, *_: Any, **__: Any) -> None:
        """Let the training go on as if there had been no evaluation."""
        self.run.notes[_EVALUATING] = False
        self.run.rewind_random()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Tell FreeTrain the metrics that Trainer logs."""
        del args, state, control
        known = (logs or {}).items()
        numbers = {k: v for k, v in known if isinstance(v, int | float)}
        self.run.fragment.report(
            **{name: v for name, v in numbers.items() if name not in RESERVED}
        )

    def _leave(self, control: TrainerControl) -> None:
        if self.run.leaving:
            control.should_training_stop = True
            control.should_evaluate = False

    def _save(self, folder: Path) -> None:
        """Save all that ``resume_from_checkpoint`` needs into *folder*.

        Trainer names the folder as we do, within ``output_dir``.
        """
        before, self._arguments.output_dir = (
            self._arguments.output_dir,
            str(folder.parent),
        )
        try:
            self._save_all()
        finally:
            self._arguments.output_dir = before


def _count(trainer: Trainer, global_batch: int) -> int:
    try:
        samples = len(trainer.train_dataset)
    except TypeError:
        raise _refused(
            "the training data has no length; elastic training needs samples by number"
        ) from None
    if samples % global_batch:
        whole = samples // global_batch * global_batch
        raise _refused(
            f"{samples} samples are no multiple of the global batch {global_batch}: "
            f"Trainer would repeat some, others in each world; take {whole}, as "
            f"by data.select(range({whole}))"
        )
    return samples


def _refused(why: str) -> elastic.ProgramError:
    return elastic.ProgramError(f"{why}. Nothing was trained.")
