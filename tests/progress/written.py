"""Files of progress, written by the libraries themselves where they are installed.

``python -m tests.progress.written DIR`` writes what ``tests/data/progress`` holds, but
for checkpoints. It was recorded with tensorboardX 2.6.5, tensorboard 2.21.0, torch
2.13.0, lightning 2.6.6, transformers 5.23.0 and keras 3.15.1. The host in the names of
event files is replaced.
"""

import os
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

START_S = 1_767_225_600.0


def tensorboardx(folder: Path) -> None:
    """Write five losses, a nan, an epoch, a histogram, a text and an image."""
    writer = import_module("tensorboardX").SummaryWriter(str(folder))
    numpy = import_module("numpy")
    for step in range(1, 6):
        writer.add_scalar("train/loss", 1 / step, step, walltime=START_S + step)
        writer.add_scalar("epoch", step // 2, step, walltime=START_S + step)
    writer.add_histogram("weights", numpy.arange(10.0), 3)
    writer.add_text("text", "hello", 3)
    writer.add_image("image", numpy.zeros((3, 8, 8)), 3)
    writer.add_scalar("train/loss", float("nan"), 6, walltime=START_S + 6)
    writer.close()


def torch_tensorboard(folder: Path) -> None:
    """Write three losses as PyTorch does, and an accuracy in its new style."""
    writer = import_module("torch.utils.tensorboard").SummaryWriter(str(folder))
    for step in range(1, 4):
        writer.add_scalar("loss", 1 / step, step, walltime=START_S + step)
    writer.add_scalar("acc", 0.5, 3, new_style=True, walltime=START_S + 4)
    writer.close()


def tensorflow_2(folder: Path) -> None:
    """Write five losses as TensorFlow 2 and Keras do: tensors of the scalar plugin."""
    events = import_module("tensorboard.summary.writer.event_file_writer")
    scalars = import_module("tensorboard.plugins.scalar.metadata")
    proto = import_module("tensorboard.compat.proto.event_pb2")
    summaries = import_module("tensorboard.compat.proto.summary_pb2")
    tensor = import_module("tensorboard.util.tensor_util").make_tensor_proto
    numpy = import_module("numpy")

    writer = events.EventFileWriter(str(folder))
    for step in range(5):
        summary = summaries.Summary()
        value = summary.value.add(
            tag="epoch_loss", tensor=tensor(numpy.float32(1 / (step + 1)))
        )
        value.metadata.CopyFrom(scalars.create_summary_metadata(None, ""))
        now_s = START_S + step
        writer.add_event(proto.Event(wall_time=now_s, step=step, summary=summary))
    last = summaries.Summary()
    last.value.add(tag="double", tensor=tensor(numpy.array(2.5)))
    last.value.add(tag="table", tensor=tensor(numpy.zeros((3, 3))))
    writer.add_event(proto.Event(wall_time=START_S + 9, step=9, summary=last))
    writer.close()


def lightning(folder: Path) -> None:
    """Train twice for two epochs of ten steps: ``version_0`` and ``version_1``."""
    torch, trainer = import_module("torch"), import_module("lightning")
    logger = import_module("lightning.pytorch.loggers").CSVLogger
    base: Any = trainer.LightningModule

    class Module(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch: Any, number: int) -> Any:  # noqa: ANN401, ARG002
            loss = self.layer(batch[0]).pow(2).mean()
            self.log("train_loss", loss)
            return loss

        def validation_step(self, batch: Any, number: int) -> None:  # noqa: ANN401, ARG002
            self.log("val_loss", self.layer(batch[0]).pow(2).mean())

        def configure_optimizers(self) -> Any:  # noqa: ANN401
            return torch.optim.SGD(self.parameters(), 0.1)

    data = torch.utils.data.TensorDataset(torch.ones(40, 2))
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    for _ in range(2):
        trainer.Trainer(
            max_epochs=2,
            logger=logger(str(folder)),
            log_every_n_steps=3,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
            accelerator="cpu",
        ).fit(Module(), loader, loader)


def huggingface(folder: Path) -> None:
    """Train for 24 steps, and save after each eight."""
    torch, hub = import_module("torch"), import_module("transformers")
    base: Any = torch.nn.Module

    class Model(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def forward(self, x: Any = None, labels: Any = None) -> Any:  # noqa: ANN401
            found = self.layer(x)
            return {"loss": (found - labels).pow(2).mean(), "logits": found}

    data = [{"x": torch.ones(2), "labels": torch.zeros(1)} for _ in range(32)]
    settings = hub.TrainingArguments(
        str(folder),
        num_train_epochs=3,
        per_device_train_batch_size=4,
        logging_steps=2,
        save_steps=8,
        eval_strategy="steps",
        eval_steps=8,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    hub.Trainer(Model(), settings, train_dataset=data, eval_dataset=data[:8]).train()


def keras(folder: Path) -> None:
    """Train for three epochs with a CSVLogger."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    library, numpy = import_module("keras"), import_module("numpy")
    folder.mkdir(parents=True, exist_ok=True)
    model = library.Sequential([library.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(
        numpy.ones((16, 2)),
        numpy.zeros((16, 1)),
        validation_split=0.25,
        epochs=3,
        verbose=0,
        callbacks=[library.callbacks.CSVLogger(str(folder / "log.csv"))],
    )


WRITERS: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "tensorboardx": (tensorboardx, ("tensorboardX",)),
    "torch": (torch_tensorboard, ("torch", "tensorboard")),
    "tensorflow": (tensorflow_2, ("tensorboard",)),
    "lightning": (lightning, ("torch", "lightning")),
    "huggingface": (huggingface, ("torch", "transformers", "accelerate")),
    "keras": (keras, ("torch", "keras")),
}
"""By folder, what writes it, and the packages that this needs."""


def main(folder: Path) -> None:
    """Write all files, and leave in *folder* those that report progress."""
    warnings.simplefilter("ignore")
    for name, (write, _) in WRITERS.items():
        write(folder / name)
    for file in sorted(folder.rglob("*")):
        if ".tfevents." in file.name:
            file.rename(file.with_name("events.out.tfevents.1767225600.n1"))
        elif file.is_file() and file.suffix not in {".csv", ".json"}:
            file.unlink()
    for file in folder.rglob("*.json"):
        if file.name != "trainer_state.json":
            file.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
