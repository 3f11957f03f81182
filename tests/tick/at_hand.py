"""The fake Slurm in this very process, at a time of one's own: quick enough for many.

It keeps its state on disk like the programs do, so that what was done before a kill
stays done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.demo.fake_slurm import commands as programs
from freetrain.demo.fake_slurm.cluster import ComplaintError
from slurm.errors import (
    SlurmRefusedError,
    SlurmUnavailableError,
)
from tests.fakes.slurm.state import Act, opened

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class AtHand:
    """A ``slurm.runner.Runner`` without processes.

    Attributes:
        folder: The stand-in's.
        now_s: Its clock.
    """

    folder: Path
    now_s: Callable[[], float]

    def run(self, argv: Sequence[str], *, timeout_s: float) -> str:
        del timeout_s
        program, *words = argv
        with opened(self.folder) as script:
            script.calls.append(list(argv))
            act = script.take_act(program)
        if act is Act.HANG:
            raise SlurmUnavailableError(f"`{program}` did not answer")
        try:
            said = programs.answer(self.folder, program, words, now_s=self.now_s())
        except ComplaintError as complaint:
            raise SlurmRefusedError(str(complaint), said=str(complaint)) from complaint
        if act is Act.HANG_AFTER:
            raise SlurmUnavailableError(f"`{program}` did not answer")
        return said
