"""Rows as a file that people and ``freetrain.recorded`` read."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import TYPE_CHECKING

from examples.record_curves.training import train

if TYPE_CHECKING:
    from collections.abc import Iterator

    from examples.record_curves.training import Row, Training


def made_with() -> str:
    """The versions on which the bytes of a file depend."""
    libraries = [f"{name} {version(name)}" for name in ("numpy", "scikit-learn")]
    return ", ".join((f"Python {platform.python_version()}", *libraries))


def recorded(training: Training) -> str:
    """Train from first to last, and return the file."""
    learner, split = training.begin()
    about = learner.about
    header = {
        "model": about.model,
        "data_set": str(split),
        "epoch_samples": str(len(split.x)),
        "batch_size": str(training.batch_size),
        "optimizer": about.optimizer,
        "learning_rate": str(training.rate),
        "seed": str(training.seed),
        "loss": f"{about.loss}, lower is better",
        "validation": f"{about.metric}, {about.better} is better",
        "made_with": made_with(),
        "licence": "Apache-2.0",
    }
    lines = [f"# {key}: {value}" for key, value in header.items()]
    lines.append(f"samples,step,epoch,loss,{about.metric}")
    lines += _lines(train(training, learner, samples=len(split.x)))
    return "\n".join(lines) + "\n"


def _lines(rows: Iterator[Row]) -> Iterator[str]:
    """Six digits are more than two runs on other processors agree on."""
    for row in rows:
        metric = "" if row.metric is None else f"{row.metric:.6g}"
        counts = f"{row.samples},{row.step},{row.epoch:.6g}"
        yield f"{counts},{row.loss:.6g},{metric}"
