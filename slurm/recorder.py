"""What a recording is made of: commands, and how each answer is made harmless.

Pure: whoever runs the commands and writes the files is elsewhere. A recording reads
as Slurm's own answers do, to the same holes under other names.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from slurm import recorder_text
from slurm.config import config_argv, version_argv
from slurm.dialects import JSON, TEXT
from slurm.errors import UnreadableOutputError
from slurm.recorder_disguise import Disguise
from slurm.recorder_json import anonymised
from slurm.sdiag import sdiag_argv
from slurm.topology import topology_argv

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

COMMANDS = "commands.txt"
"""The file that names the commands; a line each."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One file of a recording.

    Attributes:
        file: Its name.
        argv: The command whose answer it has.
        change: Makes the answer harmless.
        is_optional: Whether some releases have no such command.
    """

    file: str
    argv: tuple[str, ...]
    change: Callable[[Disguise, str], str]
    is_optional: bool = False


def _json(section: str, argv: tuple[str, ...]) -> Recorded:
    change = partial(anonymised, section=section)
    return Recorded(f"{section}.json", argv, change, is_optional=True)


RECORDED = (
    Recorded("sdiag-before.txt", tuple(sdiag_argv()), recorder_text.statistics),
    Recorded("nodes.txt", TEXT.nodes.argv, recorder_text.nodes),
    Recorded("jobs.txt", TEXT.jobs.argv, recorder_text.jobs),
    Recorded("reservations.txt", TEXT.reservations.argv, recorder_text.reservations),
    Recorded("partitions.txt", TEXT.partitions.argv, recorder_text.partitions),
    Recorded("sdiag-after.txt", tuple(sdiag_argv()), recorder_text.statistics),
    Recorded("config.txt", tuple(config_argv()), recorder_text.config),
    Recorded("version.txt", tuple(version_argv()), recorder_text.version),
    Recorded(
        "topology.txt", tuple(topology_argv()), recorder_text.topology, is_optional=True
    ),
    _json("nodes", JSON.nodes.argv),
    _json("jobs", JSON.jobs.argv),
    _json("reservations", JSON.reservations.argv),
    _json("partitions", JSON.partitions.argv),
)
"""All files, in the order in which a look asks."""


def recording(
    answers: Mapping[str, str], *, disguise: Disguise | None = None
) -> dict[str, str]:
    """Return the files of a recording, harmless, and the commands beside.

    Args:
        answers: What the commands answered, by file; optional ones may lack.
        disguise: The mapping; by default one that is gone afterwards.

    Raises:
        UnreadableOutputError: An answer is not what its command answers. Optional
            ones that cannot be read are left out.
    """
    mapping = disguise or Disguise()
    files, commands = {}, []
    for one in RECORDED:
        if one.file not in answers:
            continue
        try:
            files[one.file] = one.change(mapping, answers[one.file])
        # A release that answers --json with text, or tells a topology that is new.
        except (ValueError, UnreadableOutputError):
            if not one.is_optional:
                raise
        else:
            commands.append(f"{one.file}: {shlex.join(one.argv)}\n")
    return files | {COMMANDS: "".join(commands)}
