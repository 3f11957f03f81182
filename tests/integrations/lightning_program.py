"""Train a tiny model by Lightning's Trainer."""

import os
from typing import Any

import lightning.pytorch as library
import torch

from freetrain.integrations.lightning import ElasticCallback
from tests.integrations.tiny import (
    EPOCHS,
    EVALUATE_EVERY,
    EVALUATION_BATCHES,
    GLOBAL_BATCH,
    Record,
    TinyData,
    TinyModel,
)

PIECES = int(os.environ.get("TEST_PIECES", "1"))


class PlainModule(library.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = TinyModel()

    def training_step(self, words: Any) -> Any:
        return self.model(words)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class Module(PlainModule):
    """Notes what each step uses, and validates."""

    def __init__(self) -> None:
        super().__init__()
        self.record: Any = None
        self.total = 0.0

    def training_step(self, words: Any) -> Any:
        self.record.use(words)
        loss = self.model(words)
        self.total += loss.item() / PIECES
        self.log("loss", self.total, sync_dist=True)
        return loss

    def on_train_batch_start(self, _: Any, number: int) -> None:
        if (number + 1) % PIECES:
            self.record.at("piece", self.global_step + 1)

    def optimizer_step(self, *given: Any, **more: Any) -> None:
        super().optimizer_step(*given, **more)
        self.record.step(self.global_step)

    def on_train_batch_end(self, *_: Any) -> None:
        if self.record.is_between_steps:
            self.total = 0.0

    def validation_step(self, words: Any, number: int) -> None:
        self.log("validation_loss", self.model(words))
        place = "check" if self.trainer.sanity_checking else "evaluation"
        self.record.evaluate(place, self.global_step, number)


def main() -> None:
    library.seed_everything(1)
    data = TinyData()
    with ElasticCallback(
        samples=len(data), global_batch=GLOBAL_BATCH, epochs=EPOCHS, pieces=PIECES
    ) as training:
        module = Module()
        module.record = Record(training.run.fragment)
        loader = torch.utils.data.DataLoader(data, batch_sampler=training.sampler())
        evaluated = torch.utils.data.Subset(data, range(EVALUATION_BATCHES))
        trainer = library.Trainer(
            **training.options,
            accelerator="cpu",
            val_check_interval=EVALUATE_EVERY * PIECES,
            check_val_every_n_epoch=None,
            num_sanity_val_steps=10,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        training.fit(trainer, module, loader, torch.utils.data.DataLoader(evaluated))
        if training.finished:
            module.record.write(finished=trainer.global_step)


if __name__ == "__main__":
    main()
