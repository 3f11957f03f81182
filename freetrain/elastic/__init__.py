"""What a training program imports to become elastic; needs NumPy only.

Ten lines make a loop elastic::

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
ranks that changes as it goes, with the same losses. docs/training-program.md has the
contract.
"""

from freetrain.elastic.checkpoint import Checkpoint, Position, read_checkpoint
from freetrain.elastic.errors import (
    ChangedTrainingError,
    CheckpointError,
    ElasticError,
    GenerationTakenError,
    LaunchError,
    NotCommittedError,
    ProgramError,
    StateError,
    WorldMismatchError,
)
from freetrain.elastic.fragment import Fragment
from freetrain.elastic.join import join
from freetrain.elastic.sampler import Batch, Chunk
from freetrain.elastic.world import World

__all__ = [
    "Batch",
    "ChangedTrainingError",
    "Checkpoint",
    "CheckpointError",
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
