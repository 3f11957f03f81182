"""The start of a fragment: claim the generation, restore, tell all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.elastic.agreement import Agreement
from freetrain.elastic.checkpoint import Position, read_checkpoint
from freetrain.elastic.committer import Committer
from freetrain.elastic.errors import LaunchError
from freetrain.elastic.fragment import Fragment
from freetrain.elastic.notice import warn
from freetrain.elastic.progress import ProgressLog
from freetrain.elastic.stop import StopFile
from freetrain.elastic.store import CheckpointStore

if TYPE_CHECKING:
    from freetrain.elastic.checkpoint import Checkpoint
    from freetrain.elastic.setting import Setting
    from freetrain.elastic.stop import Stop, StopSignals
    from freetrain.elastic.world import World

_GENERATION_BYTES = 8


@dataclass(frozen=True, slots=True)
class _Start:
    """What all ranks of a fragment must know; the store is rank 0's alone."""

    generation: int
    restored: Checkpoint | None
    store: CheckpointStore | None

    @property
    def position(self) -> Position:
        return self.restored.position if self.restored else Position()


def begin(setting: Setting, world: World, signals: StopSignals) -> Fragment:
    """Start a fragment; collective.

    Rank 0 alone reads the run directory and sends the others what it found, so
    that all begin from the same state even where a file system shows them others.

    Raises:
        GenerationTakenError: Another world runs, or has followed, this one.
        LaunchError: The run directory cannot be read, or none of its checkpoints.
    """
    try:
        start = _start_of_all(setting, world)
    except OSError as error:
        raise LaunchError(
            f"the run directory {setting.run.path} cannot be read: {error}. Nothing "
            f"was trained, since what was committed there would be passed over."
        ) from error
    progress = None
    if world.rank == 0:
        progress = ProgressLog(
            setting, generation=start.generation, world_size=world.size
        )
        progress.start(start.position)
    request = setting.run.stop_request(start.generation)
    file = StopFile(request, clock=setting.clock)
    return Fragment(
        world=world,
        generation=start.generation,
        run_dir=setting.run.path,
        restored=start.restored,
        agreement=Agreement(world, setting.clock),
        committer=Committer(
            start.store,
            committed_step=start.position.step,
            every_s=setting.commit_every_s,
            clock=setting.clock,
        ),
        progress=progress,
        stop_wanted=lambda: signals.came or (world.rank == 0 and file.is_there()),
    )


def begin_nothing(setting: Setting, world: World, *, stop: Stop, why: str) -> Fragment:
    """Return a fragment that ends before its first step; it claims nothing.

    Nothing of the run directory is read, and nothing of it fenced: an earlier
    generation may still commit.
    """
    return Fragment(
        world=world,
        generation=setting.launch.generation or 0,
        run_dir=setting.run.path,
        restored=None,
        agreement=Agreement(world, setting.clock),
        committer=Committer(
            None, committed_step=0, every_s=setting.commit_every_s, clock=setting.clock
        ),
        progress=None,
        stop_wanted=lambda: False,
        stop=stop,
        gave_up=why if world.rank == 0 else "",
    )


def _start_of_all(setting: Setting, world: World) -> _Start:
    if world.rank > 0:
        received = world.broadcast(b"")
        content = received[_GENERATION_BYTES:]
        return _Start(
            generation=int.from_bytes(received[:_GENERATION_BYTES]),
            restored=read_checkpoint(content) if content else None,
            store=None,
        )
    generation = setting.launch.generation or setting.run.newest_generation() + 1
    store = CheckpointStore(setting.run, generation=generation)
    _claim(setting, store)
    newest = store.newest()
    content = newest.content if newest else b""
    world.broadcast(generation.to_bytes(_GENERATION_BYTES) + content)
    return _Start(generation, newest.checkpoint if newest else None, store)


def _claim(setting: Setting, store: CheckpointStore) -> None:
    try:
        store.claim()
    except OSError as error:
        warn(
            f"{setting.run.path} cannot be written: {error}. Training begins all the "
            f"same, but nothing of it is kept until the directory can be written."
        )
