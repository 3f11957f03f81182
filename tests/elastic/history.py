"""Random histories of worlds, stops and kills, and what must hold after them."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tests.elastic.launching import wait_until
from tests.elastic.program import EPOCHS, SAMPLES, STEPS

if TYPE_CHECKING:
    from tests.elastic.launching import Launched, Stand

EVENTS = (
    "stop file",
    "stop signal",
    "kill a rank",
    "kill mpirun",
    "kill all",
    "freeze",
)
MOST_GENERATIONS = 400


@dataclass(frozen=True)
class Passage:
    """What happened to one generation."""

    generation: int
    size: int
    event: str
    exit_code: int
    seen_step: int


def live_through(
    stand: Stand, seed: int, kills: int, *, sizes: tuple[int, ...], step_s: float
) -> list[Passage]:
    """Launch generations with random sizes and fates until training is finished."""
    random = np.random.default_rng(seed)
    history: list[Passage] = []
    frozen: list[Launched] = []
    left = kills
    for generation in range(1, MOST_GENERATIONS):
        size = int(random.choice(sizes))
        # Slow steps while there are kills to come, so that training outlives them.
        pause_s = step_s if left > 0 else 0
        world = stand.launch(size, generation, TEST_STEP_S=str(pause_s))
        event = str(random.choice(EVENTS)) if left > 0 else ""
        seen_step = _befall(stand, world, event, random)
        # What is frozen wakes up only after its successor has had its time.
        exit_code = 0 if event == "freeze" else world.wait()
        for sleeper in frozen:
            sleeper.signal_all(signal.SIGCONT)
            sleeper.wait()
        frozen = [world] if event == "freeze" else []
        history.append(Passage(generation, size, event, exit_code, seen_step))
        left -= event.startswith("kill") and exit_code != 0
        if stand.outcome(generation).get("outcome") == "finished":
            return history
    raise AssertionError(f"not finished after {MOST_GENERATIONS} generations")


def _befall(
    stand: Stand, world: Launched, event: str, random: np.random.Generator
) -> int:
    """Let *event* befall a world at a random moment; return the newest commit."""
    if not event:
        return 0
    # Now and then before it has even joined.
    if random.random() < 0.85:
        wait_until(lambda: _has_begun(stand, world))
    time.sleep(float(random.uniform(0, 0.5)))
    files = stand.checkpoints()
    seen_step = int(files[-1].stem.partition("-")[2]) if files else 0
    with suppress(ProcessLookupError):
        _act(stand, world, event, random)
    return seen_step


def _has_begun(stand: Stand, world: Launched) -> bool:
    claim = stand.run_dir / "generations" / f"{world.generation:010d}.started"
    return claim.exists() or world.process.poll() is not None


def _act(
    stand: Stand, world: Launched, event: str, random: np.random.Generator
) -> None:
    if event == "stop file":
        stand.ask_to_stop(world.generation)
    elif event == "stop signal":
        world.process.send_signal(signal.SIGUSR2)
    elif event == "kill mpirun":
        world.process.kill()
    elif event == "kill a rank":
        _kill_rank(stand, world, int(random.integers(world.size)))
    elif event == "freeze":
        world.signal_all(signal.SIGSTOP)
    else:
        world.kill_all()


def _kill_rank(stand: Stand, world: Launched, rank: int) -> None:
    joined = stand.folder / "pids" / f"{world.generation}-{rank}"
    if joined.exists():
        os.kill(int(joined.read_text()), signal.SIGKILL)
    else:
        world.process.kill()


def check_losses(stand: Stand, reference: dict[int, float]) -> None:
    """Every loss ever reported is the uninterrupted run's, to the last bit."""
    losses = [(line["step"], line["loss"]) for line in stand.lines() if "loss" in line]
    wrong = [(step, loss) for step, loss in losses if loss != reference[step]]
    assert not wrong
    assert {step for step, _ in losses} == set(range(1, STEPS + 1))


def check_samples(stand: Stand) -> None:
    """Every sample of every epoch was used exactly once in what was committed."""
    committed = stand.committed()
    assert committed.position.step == STEPS
    assert committed.position.samples == EPOCHS * SAMPLES
    assert np.array_equal(committed.state["used"], np.ones((EPOCHS, SAMPLES)))


def check_no_commit_was_lost(stand: Stand, history: list[Passage]) -> None:
    """A generation goes on from the newest commit before it, or a later one."""
    starts = {
        line["generation"]: line["step"]
        for line in stand.lines()
        if line.get("event") == "start"
    }
    for passage in history:
        later = [step for g, step in starts.items() if g > passage.generation]
        assert all(step >= passage.seen_step for step in later), passage


def losses_by_step(stand: Stand) -> dict[int, float]:
    """The loss of every step of a run that was never interrupted."""
    return {line["step"]: line["loss"] for line in stand.lines() if "loss" in line}
