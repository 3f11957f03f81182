"""A long random history of kills and rescales, checked at the end.

Run as ``python -m tests.elastic.soak --kills 20 --seed 1``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.elastic.history import (
    check_losses,
    check_no_commit_was_lost,
    check_samples,
    live_through,
    losses_by_step,
)
from tests.elastic.launching import Stand, find_mpirun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--step-s", type=float, default=0.2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak") as name:
        alone = Stand(Path(name) / "alone")
        assert alone.run(1, 1) == 0
        worlds = Stand(Path(name) / "worlds", find_mpirun())
        try:
            soak(worlds, losses_by_step(alone), options)
        finally:
            worlds.close()
            alone.close()


def soak(
    stand: Stand, reference: dict[int, float], options: argparse.Namespace
) -> None:
    history = live_through(
        stand, options.seed, options.kills, sizes=(1, 2, 3, 4), step_s=options.step_s
    )
    check_losses(stand, reference)
    check_samples(stand)
    check_no_commit_was_lost(stand, history)
    for passage in history:
        sys.stdout.write(f"{passage}\n")
    done = Counter(p.event for p in history if p.exit_code != 0)
    repeated = sum(1 for line in stand.lines() if "loss" in line) - len(reference)
    sys.stdout.write(
        f"{len(history)} generations, killed: {dict(done)}; {repeated} steps trained "
        f"again of {len(reference)}; all losses identical, every sample used once\n"
    )


if __name__ == "__main__":
    main()
