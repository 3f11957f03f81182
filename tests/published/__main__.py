"""FreeTrain's planner beside runs that others published, on their terms.

::

    git clone https://github.com/JF-D/Parcae
    python -m tests.published spot Parcae
    git clone --branch osdi21-artifact https://github.com/petuum/adaptdl
    python -m tests.published pollux adaptdl/simulator

Nothing of what they published is in this repository. Each prints a table in Markdown;
docs/notes/published.md has them, and says what can be compared. Nothing is asserted.
"""

import argparse
import sys
from pathlib import Path

from tests.published import pollux, spot

parser = argparse.ArgumentParser(
    prog="python -m tests.published",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
)
commands = parser.add_subparsers(required=True)

command = commands.add_parser("spot", help="an hour of spot instances, four times")
command.add_argument("folder", type=Path, help="a clone of JF-D/Parcae (MIT)")
command.add_argument(
    "--stop",
    type=float,
    default=40.0,
    help="seconds without training at each change of any row; they measured 29 to 43",
)
command.set_defaults(run=lambda given: spot.table(given.folder, given.stop))

command = commands.add_parser("pollux", help="160 jobs on 64 GPUs, eight times")
command.add_argument("folder", type=Path, help="simulator/ of petuum/adaptdl")
command.add_argument(
    "--workload", type=int, nargs="+", default=list(range(1, 9)), choices=range(1, 9)
)
command.add_argument(
    "--priority", nargs="+", default=["weight", "fair", "shortest"], help="of ours"
)
command.set_defaults(
    run=lambda given: pollux.table(given.folder, given.workload, given.priority)
)

given = parser.parse_args()
for line in given.run(given):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
