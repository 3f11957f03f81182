"""What a training program imports to become elastic; needs NumPy only.

Ten lines make a loop elastic:

    from freetrain import elastic

    with elastic.join(commit_every_s=60) as run:
        state = run.restore({"weights": np.zeros(4)})
        for batch in run.batches(samples=len(x), global_batch=32, epochs=20):
            loss, gradient = run.sum(
                batch, lambda chunk: loss_and_gradient(state["weights"], chunk.indices)
            )
            state["weights"] -= 0.1 * gradient / len(batch)
            run.end_step(state, loss=loss / len(batch))

The same program runs alone, under ``mpirun``, and under FreeTrain on any number of
ranks that changes as it goes, with the same losses. docs/reference/run-directory.md
has the contract.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freetrain.elastic.batches import Batch, Chunk
    from freetrain.elastic.checkpoint import Checkpoint, Position, read_checkpoint
    from freetrain.elastic.contract import (
        ChangedTrainingError,
        CheckpointError,
        CheckpointMissingError,
        ElasticError,
        GenerationTakenError,
        LaunchError,
        NotCommittedError,
        ProgramError,
        StateError,
        WorldMismatchError,
    )
    from freetrain.elastic.fragment import Fragment, join
    from freetrain.elastic.world import World

__all__ = [
    "Batch",
    "ChangedTrainingError",
    "Checkpoint",
    "CheckpointError",
    "CheckpointMissingError",
    "Chunk",
    "ElasticError",
    "Fragment",
    "GenerationTakenError",
    "LaunchError",
    "NotCommittedError",
    "Position",
    "ProgramError",
    "StateError",
    "World",
    "WorldMismatchError",
    "join",
    "read_checkpoint",
]

_MODULES = {
    "batches": ("Batch", "Chunk"),
    "checkpoint": ("Checkpoint", "Position", "read_checkpoint"),
    "contract": tuple(name for name in __all__ if name.endswith("Error")),
    "fragment": ("Fragment", "join"),
    "world": ("World",),
}


def __getattr__(name: str) -> object:
    """Import *name* from its module when it is first asked for.

    The broker and every agent use a few modules of this package that need no NumPy,
    whose import is a third of an agent's start.
    """
    for module, names in _MODULES.items():
        if name in names:
            found = getattr(import_module(f"{__name__}.{module}"), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, those not imported yet included."""
    return sorted({*globals(), *__all__})


if "unasked" in os.environ.get("FREETRAIN_SPARE", ""):
    # As early as can be: the program may ask for its rank on its way to join().
    from freetrain.elastic.spare import watch_variables

    watch_variables()
