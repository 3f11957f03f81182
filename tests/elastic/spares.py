"""Spares, and ranks that ask them, as a launcher and an agent start them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from freetrain.elastic import rank
from tests.elastic.launching import (
    REPOSITORY,
    Launched,
    Stand,
    clean_environment,
    wait_until,
)

_LISTENS = "00010000"  # a flag; connections have the name, too
RANK = ("-I", "-S", str(Path(rank.__file__)))
TRAINER = "t"


def marks(lease: str, generation: str) -> dict[str, str]:
    """Return the variables that agents' worlds and spares carry."""
    return {"FREETRAIN_LEASE": lease, "FREETRAIN_WORLD": f"{TRAINER}/{generation}"}


def _buffered() -> dict[str, str]:
    """Return variables with which Python writes as it does by itself."""
    found = clean_environment()
    return {k: v for k, v in found.items() if k != "PYTHONUNBUFFERED"}


@dataclass(frozen=True)
class Rank:
    """What a launcher started as a rank."""

    process: subprocess.Popen[bytes]
    log: Path

    def lines(self) -> list[str]:
        """What it has printed so far."""
        return self.log.read_text().splitlines()

    def said(self) -> dict[str, Any]:
        """What it says of itself, once it does."""
        wait_until(self._said)
        return dict(json.loads(self._said()[0]))

    def _said(self) -> list[str]:
        return [line for line in self.lines() if line.startswith("{")]


@dataclass(frozen=True)
class Spare:
    """A spare of a program, its lease, and the ranks that asked it."""

    lease: str
    process: subprocess.Popen[bytes]
    folder: Path
    ranks: list[Rank] = field(default_factory=list)

    @property
    def log(self) -> Path:
        return self.folder / "spare.log"

    @property
    def listens(self) -> bool:
        lines = Path("/proc/net/unix").read_text().splitlines()
        return any(self.lease in one and _LISTENS in one.split() for one in lines)

    def rank(self, *command: str, given: str = "", **variables: str) -> Rank:
        """Start what a launcher starts for a rank, after the words of *command*."""
        log = self.folder / f"rank-{len(self.ranks)}.log"
        read = self.folder / f"rank-{len(self.ranks)}.in"
        read.write_text(given)
        own = marks(self.lease, "7") | variables
        with log.open("wb") as output, read.open("rb") as given_file:
            process = subprocess.Popen(  # noqa: S603 -- our own program
                command,
                cwd=REPOSITORY,
                env=_buffered() | own,
                stdin=given_file,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.ranks.append(Rank(process, log))
        return self.ranks[-1]

    def end(self) -> None:
        """Kill it, and with it what it made."""
        for process in (self.process, *(one.process for one in self.ranks)):
            process.kill()
            process.wait()


def start_spare(folder: Path, *program: str, **extra: str) -> Spare:
    """Start a spare of *program*, which Python runs."""
    lease, log = f"{uuid4()}-0", folder / "spare.log"
    own = marks(lease, "0000000000") | {"FREETRAIN_SPARE": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 -- our own program
            (sys.executable, *program),
            cwd=REPOSITORY,
            env=_buffered() | extra | own,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    return Spare(lease, process, folder)


@dataclass(frozen=True)
class SpareStand(Stand):
    """A run directory for worlds whose ranks a spare makes."""

    spares: list[Spare] = field(default_factory=list)

    def launch(
        self, size: int, generation: int, *program: str, **extra: str
    ) -> Launched:
        """Start *program*, or the test program, on *size* ranks."""
        program = program or ("-m", "tests.elastic.program")
        if not self.spares:
            self.folder.mkdir(parents=True, exist_ok=True)
            # What the program reads before it joins, it reads here for good.
            self.spares.append(start_spare(self.folder, *program, **extra))
            wait_until(lambda: self.spares[0].listens)
        own = marks(self.spares[0].lease, str(generation))
        argv = (*RANK, sys.executable, *program)
        return super().launch(size, generation, *argv, **extra, **own)

    def close(self) -> None:
        """Kill what still runs."""
        for spare in self.spares:
            spare.end()
        super().close()
