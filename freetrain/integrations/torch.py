"""Elastic training with PyTorch where a library has the loop, or saves checkpoints.

``join`` gives a :class:`TorchRun`, ``freetrain.elastic``'s fragment for such programs:
samples come from a data loader with an :class:`ElasticSampler`, and a commit is a
checkpoint of the library's own that a small checkpoint of ``freetrain.elastic`` names.
So all that is promised for those, one writer and nothing half written, holds for the
library's checkpoints too::

    with join(samples=len(data), global_batch=64, epochs=3) as run:
        saved = ShardedCheckpoint(model, optimizer)
        if run.checkpoint:
            saved.load(run.checkpoint)
        for inputs in run.batches(DataLoader(data, batch_sampler=run.sampler())):
            ...
            run.end_step(saved.save, loss=loss.item())
"""

from __future__ import annotations

import os
import random
import shutil
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import distributed
from torch.distributed import checkpoint as sharded
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.utils.data import Sampler

from freetrain import elastic
from freetrain.elastic.batches import order_of_epoch
from freetrain.elastic.files import RunDir, sync_folder
from freetrain.elastic.torch_world import TorchWorld, torch_world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import ExitStack
    from types import TracebackType

    from freetrain.elastic import Batch, Fragment

    Save = Callable[[Path], object]

# What the sampler and the run's own checkpoint hold; both are of the whole world.
_EPOCH, _OFFSET = "epoch", "offset"
_FOLDER, _NOTES = "folder", "notes"
_SAVED = "saved"


class ElasticSampler(Sampler[list[int]]):
    """A batch sampler whose state is the position of all ranks together.

    Their order in an epoch depends on seed and epoch alone, and each step takes the
    next *global_batch* samples, of which a rank has an even share. So a state that was
    saved on some number of ranks goes on, exactly once, on any other. Samples at the
    end of an epoch that do not fill a global batch are left out, others in each epoch.

    Iterating yields the rest of the present epoch, and the next time the epoch after
    it. It is made for ``DataLoader(batch_sampler=...)``, and for torchdata's
    ``StatefulDataLoader``, which saves its state.
    """

    def __init__(  # noqa: PLR0913  # what defines a training, and the rank's place
        self,
        samples: int,
        *,
        global_batch: int,
        seed: int = 0,
        pieces: int = 1,
        rank: int | None = None,
        size: int | None = None,
    ) -> None:
        """Take what defines the order, and the rank's place.

        Args:
            samples: Samples in the data set.
            global_batch: Samples in a step, over all ranks.
            seed: Of the order.
            pieces: Batches that a rank's share of a step comes in, for accumulating
                gradients.
            rank: This process' number; PyTorch's unless given, or 0.
            size: How many processes there are; likewise, or 1.

        Raises:
            LaunchError: There are more pieces in the world than samples in a batch.
            ProgramError: There are less samples than a batch has.
        """
        is_connected = distributed.is_available() and distributed.is_initialized()
        world = distributed.get_world_size() if is_connected else 1
        self.samples = samples
        self.global_batch = global_batch
        self.seed = seed
        self.pieces = pieces
        self.rank = (
            (distributed.get_rank() if world > 1 else 0) if rank is None else rank
        )
        self.size = world if size is None else size
        if not 0 < global_batch <= samples:
            raise elastic.ProgramError(
                f"the global batch is {global_batch} and there are {samples} samples: "
                f"an epoch has no step. Nothing was trained."
            )
        if self.size * pieces > global_batch:
            raise elastic.LaunchError(
                f"a global batch of {global_batch} cannot be shared by {self.size} "
                f"ranks in {pieces} pieces each. Nothing was trained. Lower `max` or "
                f"set `sizes` in [nodes]."
            )
        self._start = self._reached = (0, 0)
        self.on_start: Callable[[], None] = lambda: None

    @property
    def steps_per_epoch(self) -> int:
        """Whole global batches in an epoch."""
        return self.samples // self.global_batch

    def __len__(self) -> int:
        """Batches of this rank in a whole epoch."""
        return self.steps_per_epoch * self.pieces

    def __iter__(self) -> Iterator[list[int]]:
        """Yield this rank's samples of each step until the epoch ends."""
        self.on_start()
        epoch, offset = self._start
        end = self.steps_per_epoch * self.global_batch
        order = order_of_epoch(self.samples, self.seed, epoch)
        parts, first = self.size * self.pieces, self.rank * self.pieces
        while offset < end:
            step = order[offset : offset + self.global_batch]
            offset += self.global_batch
            for part in range(first, first + self.pieces):
                if part == first + self.pieces - 1:
                    self._reached = _position(epoch, offset, end)
                lo, hi = (n * len(step) // parts for n in (part, part + 1))
                yield step[lo:hi].tolist()
        self._start = self._reached

    def state_dict(self) -> dict[str, int]:
        """Return the position after the last step that was yielded whole."""
        return dict(zip((_EPOCH, _OFFSET), self._reached, strict=True))

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Have the next iteration begin at a position of :meth:`state_dict`."""
        end = self.steps_per_epoch * self.global_batch
        self._reached = _position(state[_EPOCH], state[_OFFSET], end)
        self._start = self._reached

    def start_at(self, epoch: int, offset: int) -> None:
        """Have the next iteration begin there; the present one goes on."""
        self._start = (epoch, offset)


def _position(epoch: int, offset: int, end: int) -> tuple[int, int]:
    return (epoch, offset) if offset < end else (epoch + 1, 0)


class AskedToLeaveError(Exception):
    """All is committed, and the world is to leave; :func:`join` ends cleanly by it."""


class TorchRun:
    """A fragment with samples from a data loader, and a state that a library saves.

    Methods marked *collective* must be called by all ranks, in the same order.

    Attributes:
        fragment: The fragment; ``fragment.position`` is how far the training is.
        checkpoint: The folder that the library saved last; None at the beginning.
        notes: Plain values that are committed with it, such as numbers and strings.
    """

    def __init__(self, fragment: Fragment) -> None:
        """Take the fragment, before its ``restore``."""
        self.fragment = fragment
        restored = fragment.restore({_FOLDER: "", _NOTES: {}})
        folder = restored[_FOLDER]
        self.checkpoint = fragment.run_dir / folder if folder else None
        self.notes: dict[str, Any] = dict(restored[_NOTES])
        self._samples = self._global_batch = self._seed = 0
        self._samplers: list[ElasticSampler] = []
        self._batches: Iterator[Batch] = iter(())
        self._has_ended = False
        # None until a step has ended: what comes before the first may draw numbers.
        self._random: dict[str, Any] | None = None
        if self.checkpoint:
            self._random = self._saved_random(self.checkpoint)

    @property
    def leaving(self) -> bool:
        """Whether all ranks agreed to stop before the training is over."""
        return bool(self.fragment.stop) and not self.finished

    @property
    def finished(self) -> bool:
        """Whether the training is over: evaluate and export only then."""
        return self._has_ended or self.fragment.finished

    def begin(
        self, *, samples: int, global_batch: int, epochs: int, seed: int = 0
    ) -> None:
        """Say what is trained; collective; :func:`join` does it where it can.

        Args:
            samples: Samples in the data set.
            global_batch: Samples in a step, over all ranks, whatever their number.
            epochs: Times that the samples are used.
            seed: Of their order.

        Raises:
            ChangedTrainingError: The checkpoint was made with other numbers.
        """
        self._samples, self._global_batch, self._seed = samples, global_batch, seed
        self._batches = self.fragment.batches(
            samples=samples // global_batch * global_batch,
            global_batch=global_batch,
            epochs=epochs,
            seed=seed,
            chunks=1,  # the shares are the sampler's
        )
        self._go_on()

    def end(self) -> None:
        """Say that the training is over, though it may not have had all epochs."""
        self._has_ended = not self.fragment.stop

    def sampler(self, *, pieces: int = 1) -> ElasticSampler:
        """Return a sampler that follows the run; see :class:`ElasticSampler`.

        Raises:
            LaunchError: The ranks' shares would differ, and so the mean of the ranks'
                losses or gradients would not be that of the batch.
        """
        size = self.fragment.size
        check_shares(self._global_batch, size=size, pieces=pieces)
        made = ElasticSampler(
            self._samples,
            global_batch=self._global_batch,
            seed=self._seed,
            pieces=pieces,
            rank=self.fragment.rank,
            size=size,
        )
        made.on_start = self.rewind_random
        self._samplers.append(made)
        self._follow()
        return made

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield what *loader* does, until the training is over or asked to leave."""
        while not self.finished and not self.leaving:
            before = self.fragment.position
            for batch in loader:
                yield batch
                if self.leaving:
                    return
            if self.fragment.position == before:
                raise elastic.ProgramError(
                    "an epoch passed and no step was ended: nothing of it will be "
                    "kept. Call end_step() after each step of the optimizer, and give "
                    "the data loader batch_sampler=run.sampler()."
                )

    def end_step(self, save: Save, **metrics: float) -> None:
        """End an optimizer step: report it, and commit or stop where due; collective.

        Args:
            save: Saves all but samples' position and random generators, into a new
                folder that is there; called on every rank when a commit is due, at the
                end of this step or in :meth:`poll`. If it returns a future (of
                ``concurrent.futures``), rank 0 knows by it that all ranks are done.
            **metrics: The loss and other values to report; rank 0's count.
        """
        self._random = _random_state()
        self.fragment.end_step(partial(self._saved, save), **metrics)
        self._go_on()

    def poll(self) -> None:
        """Commit or leave in the middle of other work, as an evaluation; collective.

        What is committed is the state at the end of the last step.

        Raises:
            AskedToLeaveError: All ranks are to leave, and the last step is committed.
        """
        if not self.finished and self.fragment.poll():
            raise AskedToLeaveError

    def rewind_random(self) -> None:
        """Put Python's, NumPy's and PyTorch's generators back to the last step's end.

        After an evaluation, so that the training goes on the same whether it was cut
        short or not.
        """
        if self._random is not None:
            _set_random_state(self._random)

    def _go_on(self) -> None:
        next(self._batches, None)
        self._follow()

    def _follow(self) -> None:
        position = self.fragment.position
        for sampler in self._samplers:
            sampler.start_at(position.epoch, position.offset)

    def _saved(self, save: Save) -> dict[str, Any] | Future[Mapping[str, Any]]:
        """Save, each rank its part, and return the state that names what was saved."""
        fragment = self.fragment
        step, generation = fragment.position.step, fragment.generation
        folder = checkpoint_folder(fragment) / f"checkpoint-{step}"
        if fragment.rank == 0:
            _remove_unnamed(fragment.run_dir, generation)
            folder.mkdir(parents=True, exist_ok=True)
        self._meet()
        torch.save(self._random, folder / f"random-{fragment.rank}-of-{fragment.size}")
        before = _random_state()
        self.rewind_random()
        begun = save(folder)
        _set_random_state(before)
        name = str(folder.relative_to(fragment.run_dir))
        state = {_FOLDER: name, _NOTES: dict(self.notes)}
        if isinstance(begun, Future):
            return _once(begun, partial(_sync, folder), state)
        _sync(folder)
        self._meet()
        return state

    def _saved_random(self, folder: Path) -> dict[str, Any]:
        rank, size = self.fragment.rank, self.fragment.size
        path = folder / f"random-{rank}-of-{size}"
        if path.exists():
            # Tensors and plain values only: nothing in the file can be executed.
            return dict(torch.load(path, weights_only=True))
        # Another number of ranks: generators that depend on nothing but the place.
        seeds = np.random.SeedSequence((self.fragment.position.step, rank, size))
        before = _random_state()
        seed = int(seeds.generate_state(1)[0])
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 -- programs and libraries use it
        torch.manual_seed(seed)
        made = _random_state()
        _set_random_state(before)
        return made

    def _meet(self) -> None:
        self.fragment.world.maxima(np.zeros(1, dtype=np.int64))


def check_shares(global_batch: int, *, size: int, pieces: int) -> None:
    """Check that *size* ranks have equal shares in *pieces* of equal numbers.

    Raises:
        LaunchError: They have not.
    """
    if global_batch % (size * pieces):
        each = f"{size} ranks" if pieces == 1 else f"{size} ranks in {pieces} pieces"
        raise elastic.LaunchError(
            f"a global batch of {global_batch} has no equal shares for {each}. Nothing "
            f"was trained. Let `sizes` in [nodes] have divisors only, or change it."
        )


class RunBlock:
    """The end of a block in which a library's callback has joined the run.

    Attributes:
        run: The run, within the block.
    """

    run: TorchRun
    _joined: ExitStack

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        """Leave the run, as ``elastic.join`` does at its end."""
        return self._joined.__exit__(kind, error, trace)

    @property
    def finished(self) -> bool:
        """Whether the training is over: evaluate and export only then."""
        return self.run.finished


@contextmanager
def join(
    *, samples: int = 0, global_batch: int = 1, epochs: int = 0, seed: int = 0
) -> Iterator[TorchRun]:
    """Join the run that the launcher set up, as ``elastic.join``; collective.

    PyTorch's process group is set up unless there is one. An
    :class:`AskedToLeaveError` ends the block, and the program goes on behind it.

    Args:
        samples: See :meth:`TorchRun.begin`; 0 where the program calls that itself.
        global_batch: Likewise.
        epochs: Likewise.
        seed: Likewise.
    """
    with _world() as world, elastic.join(world=world) as fragment:
        run = TorchRun(fragment)
        if samples:
            run.begin(
                samples=samples, global_batch=global_batch, epochs=epochs, seed=seed
            )
        with suppress(AskedToLeaveError):
            yield run


@contextmanager
def _world() -> Iterator[TorchWorld]:
    if not distributed.is_initialized():
        with torch_world() as world:
            yield world
        return
    # A group of our own: the library's calls, on whatever backend, are not in the way.
    world = TorchWorld(distributed.new_group(backend="gloo"))
    try:
        yield world
    finally:
        world.settle()


# Checkpoints that each rank writes its shard of, and that any number of ranks reads.


class ShardedCheckpoint:
    """What a plain loop saves by ``torch.distributed.checkpoint``, and loads anew."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        wait: bool = True,
        **more: Any,
    ) -> None:
        """Take what is saved; collective.

        Args:
            model: The model, which FSDP, DDP or DTensor may have spread over ranks.
            optimizer: Its optimizer.
            wait: Whether a step waits until its state is on disk. If not, it waits for
                a copy in main memory only, and a thread writes that.
            **more: Further objects with a ``state_dict``, as a scheduler.
        """
        self._model = model
        self._optimizer = optimizer
        self._more = more
        # The thread has calls of its own among the ranks, so it needs its own group.
        self._group = None if wait else distributed.new_group(backend="gloo")

    def load(self, folder: Path) -> None:
        """Load what any number of ranks saved; collective."""
        state = self._state()
        sharded.load(state, checkpoint_id=folder)
        set_state_dict(
            self._model,
            self._optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        for name, stateful in self._more.items():
            stateful.load_state_dict(state[name])

    def save(self, folder: Path) -> Future[Any] | None:
        """Save into *folder*, or begin to; for :meth:`TorchRun.end_step`."""
        if self._group is None:
            sharded.save(self._state(), checkpoint_id=folder)
            return None
        begun: Future[Any] = sharded.async_save(
            self._state(), checkpoint_id=folder, process_group=self._group
        )
        return begun

    def _state(self) -> dict[str, Any]:
        weights, moments = get_state_dict(self._model, self._optimizer)
        rest = {name: stateful.state_dict() for name, stateful in self._more.items()}
        return {"model": weights, "optimizer": moments, **rest}


# Folders of checkpoints, beside the files that name them.


def checkpoint_folder(fragment: Fragment) -> Path:
    """The folder of the checkpoints that *fragment* commits.

    A generation has its own, so that a world that slept and wakes up writes to no
    folder of its successor's.
    """
    return fragment.run_dir / _SAVED / f"{fragment.generation:010d}"


def _remove_unnamed(run_dir: Path, generation: int) -> None:
    """Remove folders that no checkpoint names, of this generation and earlier ones."""
    named = {
        (c.generation, f"checkpoint-{c.step}") for c in RunDir(run_dir).committed()
    }
    for folder in sorted((run_dir / _SAVED).glob("[0-9]*/checkpoint-*")):
        made_by = int(folder.parent.name)
        if made_by <= generation and (made_by, folder.name) not in named:
            shutil.rmtree(folder, ignore_errors=True)


def _once(
    begun: Future[Any], finish: Callable[[], None], state: Mapping[str, Any]
) -> Future[Mapping[str, Any]]:
    """Return a future of *state*, done once *begun* and then *finish* are."""
    named: Future[Mapping[str, Any]] = Future()

    def go_on(done: Future[Any]) -> None:
        try:
            done.result()
            finish()
        except BaseException as error:  # noqa: BLE001 -- handed on
            named.set_exception(error)
        else:
            named.set_result(state)

    begun.add_done_callback(go_on)
    return named


def _sync(folder: Path) -> None:
    """Make what lies in *folder* survive a crash of the machine."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with (Path(parent) / name).open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(parent))


# Random generators.


def _random_state() -> dict[str, Any]:
    name, keys, *rest = np.random.get_state()  # noqa: NPY002 -- programs use it
    return {
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest),
        "cpu": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None,
    }


def _set_random_state(state: Mapping[str, Any]) -> None:
    random.setstate(state["python"])
    name, keys, *rest = state["numpy"]
    np.random.set_state(  # noqa: NPY002 -- programs use it
        (name, keys.numpy().astype(np.uint32), *rest)
    )
    torch.set_rng_state(state["cpu"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
