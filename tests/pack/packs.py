"""Packs of small real programs, started as users and agents start them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from freetrain.elastic.files import Clock, RunDir
from freetrain.pack.cpu_controllers import MARK, this_packer
from freetrain.pack.run import pack_id, sweep

TOP = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0
COMMAND = ("-m", "freetrain.pack")
PROGRESS = r"""
[progress]
format = "pattern"
pattern = 'step (?P<step>\d+) loss (?P<loss>.*)'
"""


@dataclass
class Stage:
    folder: Path
    packs: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def run(self) -> RunDir:
        return RunDir(self.folder / "run")

    def job(self, name: str, program: str, *, more: str = "", to: str = "") -> None:
        """Write a job file whose program is the Python text *program*."""
        script = self.folder / f"{name}.py"
        script.write_text(program)
        folder = self.folder / to
        folder.mkdir(exist_ok=True)
        elastic = "" if "elastic" in program else "elastic = false\n"
        part = folder / f"{name}.part"
        part.write_text(
            f'name = "{name}"\ncommand = {json.dumps([sys.executable, str(script)])}\n'
            f"directory = {json.dumps(str(TOP))}\n{elastic}[nodes]\nmax = 1\n{more}"
        )
        part.rename(part.with_suffix(".toml"))

    def start(
        self, text: str, *, by: Sequence[str] = COMMAND, **variables: str
    ) -> subprocess.Popen[str]:
        """Start a pack of *text*, *by* the usual command or another program."""
        path = self.folder / "pack.toml"
        path.write_text(text)
        pack = subprocess.Popen(  # noqa: S603
            [sys.executable, *by[:2], str(path), *by[2:]],
            cwd=TOP,
            env={**os.environ, "FREETRAIN_RUN_DIR": str(self.run.path), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.packs.append(pack)
        return pack

    def end(self, pack: subprocess.Popen[str]) -> str:
        """Wait for the end of *pack*; return its output."""
        return pack.communicate(timeout=PATIENCE_S)[0]

    def run_to_end(self, text: str, **variables: str) -> tuple[int, str]:
        """Run a pack of *text*; return its exit status and its output."""
        pack = self.start(text, **variables)
        printed = self.end(pack)
        return pack.returncode, printed

    def record(self) -> dict[str, Any]:
        """The record of the pack; empty before there is one."""
        path = self.run.path / "pack.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def ends(self) -> dict[str, str]:
        return {name: line["end"] for name, line in self.record()["members"].items()}

    def outcome(self, generation: int) -> dict[str, Any]:
        return dict(json.loads(self.run.outcome(generation).read_text()))

    def log(self, member: str, generation: int = 1) -> str:
        logs = self.run.path / "members" / member / "logs"
        path = logs / f"{generation:010d}.log"
        return path.read_text() if path.exists() else ""

    def processes(self) -> list[int]:
        """All processes that carry the mark of a member and this folder."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                environ = path.read_bytes()
            except OSError:
                continue
            if f"{MARK}=".encode() in environ and str(self.folder).encode() in environ:
                found.append(int(path.parent.name))
        return found


@contextmanager
def staged(folder: Path) -> Iterator[Stage]:
    """Give a stage in *folder*, and end its packs and all their processes."""
    stage = Stage(folder)
    yield stage
    for pack in stage.packs:
        pack.kill()
        pack.wait()
        if pack.stdout is not None:
            pack.stdout.close()
    sweep(this_packer(pack_id(stage.run)), Clock())
    assert not stage.processes()


def until(happened: Callable[[], bool]) -> None:
    """Wait until something *happened*, for as long as a busy machine may take."""
    end_s = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < end_s, "it did not happen"
        time.sleep(0.02)
