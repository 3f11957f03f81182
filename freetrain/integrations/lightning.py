"""Elastic training with Lightning's ``Trainer``.

For example::

    with ElasticCallback(samples=len(data), global_batch=64, epochs=3) as training:
        loader = DataLoader(data, batch_sampler=training.sampler())
        trainer = Trainer(**training.options)
        training.fit(trainer, model, loader)
        if training.finished:
            trainer.save_checkpoint("model.ckpt")
"""

from __future__ import annotations

import copy
import os
import signal
import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from lightning.pytorch.callbacks import Callback

from freetrain import elastic
from freetrain.elastic.fragment import RESERVED
from freetrain.integrations.torch import AskedToLeaveError, RunBlock, join

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from lightning.pytorch import LightningModule, Trainer

    from freetrain.integrations.torch import ElasticSampler

_FILE = "lightning.ckpt"
_PIECES = "pieces"


class ElasticCallback(RunBlock, Callback):
    """Joins the run, and has a ``Trainer`` commit, report and leave when asked to."""

    def __init__(
        self,
        *,
        samples: int,
        global_batch: int,
        epochs: int,
        seed: int = 0,
        pieces: int = 1,
    ) -> None:
        """Take what is trained.

        Args:
            samples: Samples in the data set; see ``ElasticSampler``.
            global_batch: Samples in a step, over all ranks, whatever their number.
            epochs: Times that the samples are used.
            seed: Of their order.
            pieces: Batches that a rank's share of a step comes in, to accumulate
                gradients; the same in every world, as Lightning counts batches.
        """
        self._trained = {
            "samples": samples,
            "global_batch": global_batch,
            "epochs": epochs,
            "seed": seed,
        }
        self._pieces = pieces
        self._loops: dict[str, Any] = {}

    def __enter__(self) -> Self:
        """Join the run; collective.

        Raises:
            ChangedTrainingError: The checkpoint was made with other numbers.
        """
        with ExitStack() as joining:
            self.run = joining.enter_context(join(**self._trained))
            before = self.run.notes.setdefault(_PIECES, self._pieces)
            if before != self._pieces:
                raise elastic.ChangedTrainingError(
                    f"the checkpoint was made with pieces={before}, and not with "
                    f"{self._pieces}. Nothing was trained, as Lightning counts the "
                    f"batches of an epoch. Put it back, or begin in another folder."
                )
            self._joined = joining.pop_all()
        return self

    @property
    def options(self) -> dict[str, Any]:
        """What ``Trainer`` must be given, beside the program's own options."""
        here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        return {
            "devices": here,
            "num_nodes": self.run.fragment.size // here,
            "max_epochs": self._trained["epochs"],
            "accumulate_grad_batches": self._pieces,
            "use_distributed_sampler": False,
            "enable_checkpointing": False,
        }

    def sampler(self) -> ElasticSampler:
        """Return the batch sampler for the training data's loader."""
        return self.run.sampler(pieces=self._pieces)

    def fit(self, trainer: Trainer, model: LightningModule, *loaders: Any) -> None:
        """Train from the last commit on, until the end or asked to leave; collective.

        Raises:
            AskedToLeaveError: All is committed; the block ends cleanly by it.
        """
        if self.run.leaving:
            return
        trainer.callbacks.append(self)
        self._on_sigterm = signal.getsignal(signal.SIGTERM)
        folder = self.run.checkpoint
        path = str(folder / _FILE) if folder else None
        with warnings.catch_warnings():
            # The loader goes on by its sampler, which Lightning cannot know.
            warnings.filterwarnings(
                "ignore", message="You're resuming from a checkpoint"
            )
            trainer.fit(model, *loaders, ckpt_path=path)
        self.run.end()

    # What Trainer calls.

    def on_sanity_check_start(self, *_: Any) -> None:
        """Take SIGTERM back: Lightning would end the training as if it were over."""
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def on_train_start(self, *_: Any) -> None:
        """Likewise, where there is no check before the training."""
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """End the step with the last of its pieces; leave if that was agreed."""
        del pl_module, outputs, batch
        if (batch_idx + 1) % self._pieces:
            self.run.poll()
            return
        self._loops = copy.deepcopy(trainer.fit_loop.state_dict())

        def save(folder: Path) -> None:
            trainer.save_checkpoint(folder / _FILE)

        self.run.end_step(save, **_numbers(trainer))
        if self.run.leaving:
            # Lightning's own stop would validate first.
            raise AskedToLeaveError

    def on_validation_batch_end(self, *_: Any, **__: Any) -> None:
        """Commit or leave in a validation, and in the check before the training."""
        self.run.poll()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report, and let the training go on as if there had been no validation."""
        del pl_module
        if not trainer.sanity_checking:
            self.run.fragment.report(**_numbers(trainer))
        self.run.rewind_random()

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Have a checkpoint made in a validation begin again at the last step."""
        del trainer, pl_module
        if self._loops:
            checkpoint["loops"]["fit_loop"] = copy.deepcopy(self._loops)


def _numbers(trainer: Trainer) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in trainer.callback_metrics.items()
        if name not in RESERVED
    }
