"""Trainers that tell of their progress and commit, for tests of ticks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from freetrain.broker.lease import LeaseKey
from freetrain.elastic.checkpoint import Checkpoint, Position, write_checkpoint
from freetrain.state.files import Assigned, Member, create_assigned

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.elastic.files import RunDir
    from freetrain.state.files import TrainerDir
    from tests.tick.tick_worlds import TickWorld

NOW_S = 1_900_000_000.0


PRINTS = """
elastic = false
[progress]
format = "pattern"
pattern = '{pattern}'
"""


def tell(
    run_dir: RunDir,
    *losses: float,
    since: int = 0,
    generation: int = 1,
    step_s: float = 1.0,
) -> None:
    """Tell a loss a step, ten samples and *step_s* each, after the step *since*."""
    run_dir.create()
    with run_dir.progress.open("a") as file:
        for step, loss in enumerate(losses, since + 1):
            line: dict[str, Any] = {
                "t": NOW_S + since + step_s * (step - since),
                "step": step,
                "samples": 10 * step,
                "epoch": 0,
                "generation": generation,
                "world_size": 2,
                "loss": loss if abs(loss) < 1e300 else None,
            }
            if line["loss"] is None:
                line["nonfinite"] = {"loss": str(loss)}
            file.write(json.dumps(line) + "\n")


def commit(run_dir: RunDir, step: int, *, generation: int = 1) -> Path:
    """Leave a checkpoint of *step* steps."""
    run_dir.create()
    path = run_dir.checkpoints / f"{generation:010d}-{step:015d}.npz"
    position = Position(step=step, samples=10 * step)
    with path.open("w+b") as file:
        write_checkpoint(Checkpoint(generation, position, {}, {"x": step}), file)
    return path


def assigned(folder: TrainerDir, generation: int, nodes: int, *, at_s: float) -> None:
    """Make a generation of a trainer, so long after ``NOW_S``."""
    members = tuple(
        Member(key=LeaseKey("u", n), job_id=n, display_id=str(n), node=f"n{n}")
        for n in range(1, nodes + 1)
    )
    made = Assigned(
        trainer=folder.path.name,
        generation=generation,
        members=members,
        created_s=NOW_S + at_s,
        author="broker",
        reason="as tests do",
    )
    create_assigned(folder, made)


def printing(world: TickWorld, pattern: str, more: str = "") -> None:
    """Submit the trainer ``a``, which prints its progress."""
    world.submit("a", PRINTS.format(pattern=pattern) + more)


def printed(world: TickWorld, text: str, *, generation: int = 1) -> None:
    """Let it print *text*."""
    log = world.folder.trainer("a").logs / f"{generation:010d}.log"
    with log.open("a") as file:
        file.write(text)
