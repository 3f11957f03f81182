"""FlowCon against fair sharing, on this machine, with real training processes.

::

    python -m tests.pack.measure --seeds 5

Takes about 15 minutes on a quiet machine of two CPUs. It may be interrupted and
started again: runs that came to their end are not repeated. Nothing is asserted; the
ratios are within one seed on one machine, fair and flowcon in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.pack.measure.running import RunFailedError, Wanted, run
from tests.pack.measure.schedules import INTERVAL_S, SCHEDULES, Arrival
from tests.pack.measure.table import report

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SHARINGS = ("fair", "flowcon")


def main(argv: Sequence[str] | None = None) -> int:
    given = _arguments(argv)
    given.out.mkdir(parents=True, exist_ok=True)
    kept = given.out / "results.jsonl"
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if not given.table:
            _measure(given, kept)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; the same command goes on from here\n")
    for line in report(_results(kept)):
        sys.stdout.write(f"{line}\n")
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.pack.measure",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=5, help="how many (5)")
    parser.add_argument("--out", type=Path, default=Path("/tmp/freetrain-pack"))  # noqa: S108
    parser.add_argument("--only", choices=list(SCHEDULES), help="one schedule")
    parser.add_argument("--means", default="auto", help="by what shares are set (auto)")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of work and times (1)"
    )
    parser.add_argument("--table", action="store_true", help="only show what there is")
    return parser.parse_args(argv)


def _measure(given: argparse.Namespace, kept: Path) -> None:
    done = {(r["schedule"], r["seed"], r["sharing"]) for r in _results(kept)}
    # Python's and NumPy's files are in memory from the first run on.
    subprocess.run([sys.executable, "-c", "import sklearn.datasets"], check=True)
    for wanted in _wanted(given):
        if wanted.key in done:
            continue
        begun_s = time.monotonic()
        name = "-".join(map(str, wanted.key))
        try:
            result = run(wanted, given.out / name)
        except RunFailedError as error:
            sys.stderr.write(f"{error}; not counted\n")
            continue
        with kept.open("a") as file:
            file.write(json.dumps(result) + "\n")
            os.fsync(file.fileno())
        took_s = time.monotonic() - begun_s
        sys.stderr.write(f"{name}: {took_s:.0f} s, load before {result['load']:.2f}\n")


def _wanted(given: argparse.Namespace) -> Iterator[Wanted]:
    chosen = [given.only] if given.only else list(SCHEDULES)
    for seed in range(1, given.seeds + 1):
        # Whatever drifts on the machine meets both alike.
        turns = _SHARINGS if seed % 2 else _SHARINGS[::-1]
        for schedule in chosen:
            for sharing in turns:
                yield Wanted(
                    schedule=schedule,
                    seed=seed,
                    sharing=sharing,
                    means=given.means,
                    cpus=SCHEDULES[schedule].cpus,
                    interval_s=max(0.1, INTERVAL_S * given.scale),
                    arrivals=tuple(
                        _scaled(arrival, given.scale)
                        for arrival in SCHEDULES[schedule].arrivals(seed)
                    ),
                )


def _scaled(arrival: Arrival, scale: float) -> Arrival:
    steps = max(1, round(arrival.steps * scale))
    return Arrival(arrival.name, arrival.kind, steps, arrival.at_s * scale)


def _results(kept: Path) -> list[dict[str, Any]]:
    if not kept.exists():
        return []
    with kept.open() as file:
        lines = [line for line in file if line.endswith("\n")]
    return [json.loads(line) for line in lines]


if __name__ == "__main__":
    sys.exit(main())
