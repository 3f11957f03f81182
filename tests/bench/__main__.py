"""Benchmarks: ``python -m tests.bench [SECTION ...]``; all of them without one.

A section is a module here with a function ``run(console)``. Figures are ratios
within one run wherever that is possible; nothing is asserted.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec

from rich.console import Console

SECTIONS = ("planner", "replay")


def main(arguments: list[str]) -> int:
    console = Console()
    there = [name for name in SECTIONS if find_spec(f"tests.bench.{name}")]
    unknown = set(arguments) - set(there)
    if unknown:
        known = ", ".join(there)
        console.print(f"no section {', '.join(sorted(unknown))}; there are: {known}")
        return 64
    for name in arguments or there:
        import_module(f"tests.bench.{name}").run(console)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
