"""What a rescale costs: last step before it to first step after it, in seconds.

Run as ``python -m tests.elastic.pauses``; under mpirun, alone on this machine, with
and without the next world launched ahead.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from tests.elastic.launching import Stand, find_mpirun, wait_until

SIZES = (2, 3)


def steps(stand: Stand, generation: int) -> list[float]:
    return [
        line["t"]
        for line in stand.lines()
        if "event" not in line and line["generation"] == generation
    ]


def rescale_s(stand: Stand, generation: int, *, is_ahead: bool) -> float:
    """Rescale from *generation* to the next; return the time without a step."""
    running = stand.launched[-1]
    then = generation + 1
    size = SIZES[then % 2]
    extra = {"TEST_STEP_S": "0.02", "TEST_EPOCHS": "400"}
    if is_ahead:
        stand.launch(size, then, FREETRAIN_AFTER=str(generation), **extra)
        wait_until((stand.run_dir / "control" / f"{then:010d}.ready").exists)
    stand.ask_to_stop(generation)
    running.wait()
    if not is_ahead:
        stand.launch(size, then, **extra)
    wait_until(lambda: len(steps(stand, then)) > 2)
    return steps(stand, then)[0] - steps(stand, generation)[-1]


def pauses_s(folder: Path, repeats: int, *, is_ahead: bool) -> dict[int, list[float]]:
    """The pauses of rescales, by the size that was rescaled to."""
    stand = Stand(folder, find_mpirun())
    found: dict[int, list[float]] = {size: [] for size in SIZES}
    try:
        stand.launch(SIZES[1], 1, TEST_STEP_S="0.02", TEST_EPOCHS="400")
        wait_until(lambda: len(steps(stand, 1)) > 2)
        for generation in range(1, repeats + 1):
            pause_s = rescale_s(stand, generation, is_ahead=is_ahead)
            found[SIZES[(generation + 1) % 2]].append(pause_s)
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
