"""What a rescale costs: last step before it to first step after it, in seconds.

Run as ``python -m tests.elastic.pauses``; under mpirun, alone on this machine, with
and without the next world launched ahead.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from tests.elastic.launching import Stand, find_mpirun, wait_until

SIZES = (2, 3)


def pause_s(stand: Stand, generation: int) -> float:
    """The time between the last step before *generation* and its first."""
    lines = [line for line in stand.lines() if "event" not in line]
    before = [line["t"] for line in lines if line["generation"] == generation - 1]
    after = [line["t"] for line in lines if line["generation"] == generation]
    return float(after[0] - before[-1])


def has_stepped(stand: Stand, generation: int) -> bool:
    lines = (line for line in stand.lines() if "event" not in line)
    return len([line for line in lines if line["generation"] == generation]) > 2


def rescale(stand: Stand, generation: int, *, is_ahead: bool) -> float:
    """Rescale from the world of *generation* to the next; return the pause."""
    running = stand.launched[-1]
    then = generation + 1
    size = SIZES[then % 2]
    extra = {"TEST_STEP_S": "0.02", "TEST_EPOCHS": "400"}
    ready = stand.run_dir / "control" / f"{then:010d}.ready"
    if is_ahead:
        stand.launch(size, then, FREETRAIN_AFTER=str(generation), **extra)
        wait_until(ready.exists)
    stand.ask_to_stop(generation)
    running.wait()
    if not is_ahead:
        stand.launch(size, then, **extra)
    wait_until(lambda: has_stepped(stand, then))
    return pause_s(stand, then)


def pauses_s(folder: Path, repeats: int, *, is_ahead: bool) -> dict[int, list[float]]:
    """The pauses of rescales, by the size that was rescaled to."""
    stand = Stand(folder, find_mpirun())
    found: dict[int, list[float]] = {size: [] for size in SIZES}
    try:
        stand.launch(SIZES[1], 1, TEST_STEP_S="0.02", TEST_EPOCHS="400")
        wait_until(lambda: has_stepped(stand, 1))
        for generation in range(1, repeats + 1):
            pause = rescale(stand, generation, is_ahead=is_ahead)
            found[SIZES[(generation + 1) % 2]].append(pause)
    finally:
        stand.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.elastic.pauses")
    parser.add_argument("--repeats", type=int, default=10)
    repeats = parser.parse_args().repeats
    for is_ahead in (False, True):
        with tempfile.TemporaryDirectory() as name:
            found = pauses_s(Path(name), repeats, is_ahead=is_ahead)
        for size, pauses in found.items():
            sys.stdout.write(
                f"to {size} ranks, {'launched ahead' if is_ahead else 'one by one'}: "
                f"median {statistics.median(pauses):.2f} s, "
                f"most {max(pauses):.2f} s, of {len(pauses)}\n"
            )


if __name__ == "__main__":
    main()
