"""Benchmarks: ``python -m tests.bench [SECTION ...]``.

A section is a module here with a function ``lines(shared)`` that yields rows of
text as they come. Figures are ratios within one run wherever that is possible;
nothing is asserted.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

# What `make bench` runs; further sections are run by name.
DEFAULT = ("planner", "replay", "tick", "window")


def main(arguments: list[str]) -> int:
    beside = Path(__file__).resolve().parents[3] / "shared"
    shared = Path(os.environ.get("FREETRAIN_SHARED", beside))
    if {"-h", "--help"} & set(arguments):
        sys.stdout.write(f"{__doc__}\nWithout a section: {', '.join(DEFAULT)}.\n")
        return 0
    for name in arguments or DEFAULT:
        if find_spec(f"tests.bench.{name}") is None:
            sys.stderr.write(f"there is no section {name} in tests/bench\n")
            return 64
        for line in import_module(f"tests.bench.{name}").lines(shared):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
