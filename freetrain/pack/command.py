"""What ``python -m freetrain.pack pack.toml`` does."""

import os
import sys
from pathlib import Path

from freetrain.elastic.errors import ElasticError
from freetrain.elastic.files import Clock
from freetrain.errors import FreeTrainError
from freetrain.pack.run import MembersFailedError, run_pack

USAGE = """\
usage: python -m freetrain.pack PACK_FILE

Trains several small trainers on this node, which share its CPUs by how they grow.
PACK_FILE is TOML; docs/quality-flowcon.md says what is in it. Example:

    members = ["digits/job.toml", "wine/job.toml"]
    sharing = "flowcon"
    interval = "30s"
"""


def main(arguments: list[str]) -> int:
    """Run the pack that *arguments* name; return the exit status."""
    if arguments[:1] in (["-h"], ["--help"]):
        sys.stdout.write(USAGE)
        return 0
    if len(arguments) != 1:
        sys.stderr.write(USAGE)
        return 64
    try:
        path = Path(arguments[0]).absolute()
        run_pack(path, os.environ, clock=Clock(), say=_say)
    except FreeTrainError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except (ElasticError, MembersFailedError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"pack: {line}\n")
    sys.stdout.flush()
