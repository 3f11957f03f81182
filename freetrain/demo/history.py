"""What happened to the trainers, read from the files that they and agents left."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from freetrain.exchange.assigned import BROKER, generations, read_assigned
from freetrain.exchange.ending import Ended, read_ending

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from freetrain.exchange.layout import TrainerDir

_DONE = {Ended.FINISHED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """One generation that trained, on one set of nodes.

    Attributes:
        generation: Which.
        nodes: Where.
        is_brokers: Whether the broker made it, and not a lease's agent.
        reason: Why it was made.
        start_s: When its state was restored and its first step began, Unix time.
        first_s: When its first step was done.
        last_s: When its last step was done.
    """

    generation: int
    nodes: tuple[str, ...]
    is_brokers: bool
    reason: str
    start_s: float
    first_s: float
    last_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a program's progress lines say.

    Attributes:
        losses: Of each step, as it was last done.
        repeated_steps: Steps that were done again, because a kill undid them.
        samples: Samples done.
        accuracy: The last one measured; None before.
        times: By generation: start, first step, last step; Unix time.
    """

    losses: Mapping[int, float]
    repeated_steps: int
    samples: int
    accuracy: float | None
    times: Mapping[int, tuple[float, float, float]]

    @property
    def steps(self) -> int:
        """Steps done."""
        return max(self.losses, default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What happened to one trainer.

    Attributes:
        name: Its name.
        told: What its program said.
        stretches: The generations that trained, in order.
        is_finished: Whether it came to its end.
    """

    name: str
    told: Told
    stretches: tuple[Stretch, ...]
    is_finished: bool

    @property
    def rescales(self) -> tuple[Stretch, ...]:
        """The generations that trained on after another."""
        return self.stretches[1:]

    @property
    def pauses_s(self) -> tuple[float, ...]:
        """From the last step before each rescale to the first one after it."""
        return tuple(b.first_s - a.last_s for a, b in pairwise(self.stretches))


def read_history(name: str, folder: TrainerDir) -> History:
    """Return what happened to the trainer *name*.

    Raises:
        UnreadableFileError: A file of the exchange is not what its name says.
        OSError: A file cannot be read.
    """
    told = read_told(folder.run.progress)
    known = generations(folder.assignments)
    endings = [read_ending(folder, one) for one in known]
    return History(
        name=name,
        told=told,
        stretches=tuple(
            _stretch(folder, one, told.times[one]) for one in known if one in told.times
        ),
        is_finished=any(e is not None and e.ended in _DONE for e in endings),
    )


def read_told(path: Path) -> Told:
    """Return what progress lines say; nothing where there are none.

    Raises:
        OSError: They cannot be read.
    """
    losses: dict[int, float] = {}
    times: dict[int, tuple[float, float, float]] = {}
    repeated, samples, accuracy = 0, 0, None
    for line in _lines(path):
        generation, t = line["generation"], line["t"]
        if line.get("event") == "start":
            times[generation] = (t, t, t)
            continue
        start_s, first_s, _ = times.get(generation, (t, t, t))
        times[generation] = (start_s, t if first_s == start_s else first_s, t)
        repeated += line["step"] in losses
        losses[line["step"]] = line["loss"]
        samples, accuracy = line["samples"], line.get("accuracy", accuracy)
    return Told(
        losses=losses,
        repeated_steps=repeated,
        samples=samples,
        accuracy=accuracy,
        times={k: v for k, v in times.items() if v[1] > v[0]},
    )


def _stretch(
    folder: TrainerDir, generation: int, times: tuple[float, float, float]
) -> Stretch:
    assigned = read_assigned(folder, generation)
    return Stretch(
        generation=generation,
        nodes=tuple(member.node for member in assigned.members),
        is_brokers=assigned.author == BROKER,
        reason=assigned.reason,
        start_s=times[0],
        first_s=times[1],
        last_s=times[2],
    )


def _lines(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines; the last one may still be written."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.split("\n")[:-1] if line.endswith("}")]
