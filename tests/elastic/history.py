"""Random histories of worlds, stops and kills, and what must hold after them.

Run as ``python -m tests.elastic.history --kills 20 --seed 1`` for a long one.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.elastic.launching import Launched, Stand, find_mpirun, wait_until
from tests.elastic.program import EPOCHS, SAMPLES, STEPS

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
        seen_step = _befall(stand, world, event, random) if event else 0
        # A frozen world wakes up only after its successor has had its time.
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
    claim = stand.run_dir / "generations" / f"{world.generation:010d}.started"
    # Now and then before it has even joined.
    if random.random() < 0.85:
        wait_until(lambda: claim.exists() or world.process.poll() is not None)
    time.sleep(float(random.uniform(0, 0.5)))
    files = stand.checkpoints()
    seen_step = int(files[-1].stem.partition("-")[2]) if files else 0
    with suppress(ProcessLookupError):
        match event:
            case "stop file":
                stand.ask_to_stop(world.generation)
            case "stop signal":
                world.process.send_signal(signal.SIGUSR2)
            case "kill mpirun":
                world.process.kill()
            case "kill a rank":
                _kill_rank(stand, world, int(random.integers(world.size)))
            case "freeze":
                world.signal_all(signal.SIGSTOP)
            case _:
                world.kill_all()
    return seen_step


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
    """Every sample of every epoch was used exactly once in the committed history."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--step-s", type=float, default=0.2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak") as name:
        alone = Stand(Path(name) / "alone")
        worlds = Stand(Path(name) / "worlds", find_mpirun())
        try:
            assert alone.run(1, 1) == 0
            history = live_through(
                worlds,
                options.seed,
                options.kills,
                sizes=(1, 2, 3, 4),
                step_s=options.step_s,
            )
            reference = losses_by_step(alone)
            check_losses(worlds, reference)
            check_samples(worlds)
            check_no_commit_was_lost(worlds, history)
            done = Counter(p.event for p in history if p.exit_code != 0)
            losses = sum(1 for line in worlds.lines() if "loss" in line)
        finally:
            worlds.close()
            alone.close()
    sys.stdout.writelines(f"{passage}\n" for passage in history)
    sys.stdout.write(
        f"{len(history)} generations, killed: {dict(done)}; "
        f"{losses - len(reference)} steps trained again of {len(reference)}; "
        f"all losses identical, every sample used once\n"
    )


if __name__ == "__main__":
    main()
