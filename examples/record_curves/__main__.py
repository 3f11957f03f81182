"""Record real, small trainings: their losses, and how long their steps take.

::

    python -m examples.record_curves curves --out freetrain/losscurve/curves
    python -m examples.record_curves steps --out freetrain/losscurve/step_times.csv

Run it in the repository's top folder. docs/notes/recorded-curves.md says what for.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.record_curves.catalogue import TRAININGS
from examples.record_curves.shares import best_share
from examples.record_curves.step_times import heading, measure, starved
from examples.record_curves.writing import recorded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from examples.record_curves.training import Training

# Imported by name: it has no types.
threadpoolctl: Any = import_module("threadpoolctl")

PERCENTS = (100, 50, 25, 10)
SECONDS = 1.0
REPEATS = 3


def main(argv: Sequence[str] | None = None) -> None:
    """Do what the command line says."""
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = arguments.add_subparsers(dest="verb", required=True)
    for verb, what in (("curves", "one file a training"), ("steps", "one table")):
        parser = verbs.add_parser(verb, help=f"record {what}")
        parser.add_argument("--out", type=Path, required=True, help="where to")
        parser.add_argument("--only", nargs="+", choices=[t.name for t in TRAININGS])
    parser.add_argument("--percent", type=int, nargs="+", default=PERCENTS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="a stretch")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="stretches")
    given = arguments.parse_args(argv)
    chosen = [t for t in TRAININGS if not given.only or t.name in given.only]
    # Sums depend on the number of threads, and a share is of one processor.
    with threadpoolctl.threadpool_limits(1):
        if given.verb == "curves":
            record_curves(chosen, given.out)
        else:
            record_steps(chosen, given)


def record_curves(trainings: Sequence[Training], folder: Path) -> None:
    """Write one file a training into *folder*."""
    folder.mkdir(parents=True, exist_ok=True)
    for training in trainings:
        path = folder / f"{training.name}.csv"
        path.write_text(recorded(training), "ascii")
        sys.stdout.write(f"{path}\n")


def record_steps(trainings: Sequence[Training], given: argparse.Namespace) -> None:
    """Write the table, when all of it is measured."""
    lines = heading(given.seconds, given.repeats)
    rows = measure(
        trainings,
        best_share(),
        percents=given.percent,
        seconds=given.seconds,
        repeats=given.repeats,
    )
    for row in rows:
        sys.stdout.write(f"{row}\n")
        lines.append(row)
    text = "\n".join(lines) + "\n"
    given.out.write_text(text, "ascii")
    for name, percent in starved(text):
        sys.stderr.write(f"{name} did not get its {percent:g} %: measure again\n")


if __name__ == "__main__":
    main()
