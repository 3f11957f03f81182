"""A pack that is submitted, gets leases, loses one, and goes on in the next."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from typing import TYPE_CHECKING

from freetrain.client.submit import SubmitRequest, submit_file
from freetrain.config.site import HoleSettings, LeaseSettings, PlannerSettings, Site
from freetrain.elastic.contract import read_outcome
from freetrain.errors import FreeTrainError
from freetrain.pack.pack import PackRecord, member_folder, read_record
from freetrain.state.database import read_store
from freetrain.state.files import (
    Ended,
    StateDir,
    TrainerDir,
    newest_assigned,
    read_ending,
)
from freetrain.state.tables import TrainerState, trainers
from freetrain.tick.environment import real_environment
from freetrain.tick.tick import tick
from slurm.errors import SlurmError
from tests.cluster.waiting import wait_for
from tests.pack.packs import PROGRESS, TOP, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NAME = "small-ones"
SAMPLES = 40
COUNTS = """
import time
import numpy as np
from freetrain import elastic

def used(chunk):
    return np.bincount(chunk.indices, minlength={samples})

with elastic.join(commit_every_s=1e6) as run:
    state = run.restore({{"used": np.zeros({samples}, np.int64)}})
    for batch in run.batches(samples={samples}, global_batch=4, epochs={epochs}):
        state["used"] += np.asarray(run.sum(batch, used), np.int64).reshape(-1)
        time.sleep({step_s})
        run.end_step(state, loss=1.0 / (batch.step + 1))
    if run.finished:
        print("used", *state["used"], flush=True)
"""
"""It commits when it is asked to stop, and never before: losses show."""

FAILS = """
import pathlib, sys
sys.exit(0 if pathlib.Path({flag!r}).exists() else 3)
"""
REPORTS = """
import time
for step in range(100_000):
    time.sleep(0.01)
    print("step", step, "loss", {loss}, flush=True)
"""
TICK_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class LeasedPack:
    """A pack of three: a short member, a long one, and one that fails at first."""

    stage: Stage
    site: Site
    environ: Mapping[str, str]

    @property
    def trainer(self) -> TrainerDir:
        return StateDir(self.site.state_directory).trainer(NAME)

    @property
    def record(self) -> PackRecord:
        return read_record(self.trainer.run)

    @property
    def flag(self) -> Path:
        return self.stage.folder / "flag"

    def submit(self, *, long_epochs: int) -> None:
        short = COUNTS.format(samples=SAMPLES, epochs=2, step_s=0.01)
        long = COUNTS.format(samples=SAMPLES, epochs=long_epochs, step_s=0.02)
        self.stage.job("short", short)
        self.stage.job("long", long)
        fails = FAILS.format(flag=str(self.flag))
        self.stage.job("fails", fails, more='[restart]\nwait = "0.5s"\n')
        self.submit_file('members = ["short.toml", "long.toml", "fails.toml"]\n')

    def submit_file(self, members: str) -> None:
        """Submit a pack of *members*, which share one CPU by turns."""
        folder = self.stage.folder
        means = 'means = "duty-cycle"\ncpus = 1\ninterval = "1s"\n'
        (folder / "pack.toml").write_text(f"{members}{means}")
        path = folder / "job.toml"
        path.write_text(
            f'name = "{NAME}"\n[nodes]\nmax = 1\n[launch]\nlauncher = "pack"\n'
            'pack = "pack.toml"\n[restart]\nwait = "1s"\n'
        )
        submit_file(
            SubmitRequest(path=path, named=path.name),
            self.site,
            environ=self.environ,
            home=folder,
            uid=os.getuid(),
            now_s=now_s(),
        )

    def ticks_until(self, event: str, happened: Callable[[], object]) -> None:
        environment = real_environment(self.environ)
        due_s = 0.0

        def look() -> object:
            nonlocal due_s
            if time.monotonic() >= due_s:
                due_s = time.monotonic() + TICK_EVERY_S
                with suppress(SlurmError, FreeTrainError):  # the next tries again
                    tick(self.site, environment)
            return happened()

        wait_for(event, look, limit_s=300.0)

    def kill_packer(self) -> None:
        words = [b"freetrain.pack", bytes(self.stage.folder / "pack.toml"), b""]
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # it is gone
                if path.read_bytes().split(b"\0")[-3:] == words:
                    found.append(int(path.parent.name))
        (packer,) = found
        os.kill(packer, SIGKILL)

    def node(self) -> str:
        """Return the node on which it is, empty for none."""
        assigned = newest_assigned(self.trainer)
        return assigned.members[0].node if assigned and assigned.members else ""

    def steps(self, member: str) -> int:
        path = member_folder(self.trainer.run, member) / "run" / "progress.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return int(json.loads(lines[-1])["step"]) if lines else 0

    def printed(self, member: str) -> dict[int, str]:
        """Return what each generation of a member printed."""
        logs = member_folder(self.trainer.run, member) / "logs"
        return {int(path.stem): path.read_text() for path in logs.glob("*.log")}

    def used(self, member: str) -> set[int]:
        """Return how often samples were used, as a member that is finished says."""
        (text,) = [t for t in self.printed(member).values() if "used" in t]
        return set(map(int, text.partition("used")[2].split()))

    def ended(self) -> Ended | None:
        """Return how generation 1 ended; None while it runs."""
        ending = read_ending(self.trainer, 1)
        return ending.ended if ending else None

    def is_finished(self) -> bool:
        with read_store(self.site.state_directory, uid=os.getuid()) as state:
            return [row.state for row in trainers(state)] == [TrainerState.FINISHED]


def now_s() -> float:
    return time.time()  # noqa: TID251 - Slurm goes by the machine's clock


def leased_pack(
    folder: Path, environ: Mapping[str, str], *, longest_s: float
) -> LeasedPack:
    """Return a pack in *folder*; leases are at most *longest_s* long."""
    site = Site(
        state_directory=folder / "state",
        lease=LeaseSettings(
            partition="freetrain", shortest_s=60.0, longest_s=longest_s
        ),
        holes=HoleSettings(margin_s=2.0),
        planner=PlannerSettings(t_fwd_s=30.0),
    )
    path = f"{environ['PATH']}:{Path(sys.executable).parent}"
    # Members' programs are the tests' own, which find the package beside them.
    return LeasedPack(
        Stage(folder), site, {**environ, "PATH": path, "PYTHONPATH": str(TOP)}
    )


def loses_its_lease_and_goes_on(
    pack: LeasedPack, take_away: Callable[[str], None]
) -> None:
    """Train, have *take_away* let another user's job need the node, and train on."""
    epochs = 60
    pack.submit(long_epochs=epochs)
    pack.ticks_until("members to train", lambda: _is_in_the_middle(pack))
    before = pack.steps("long")
    take_away(pack.node())
    pack.ticks_until("generation 1 to be over", pack.ended)
    assert pack.ended() is Ended.RESCALED
    assert pack.record.members["long"].end == "stopped"
    outcome = read_outcome(pack.trainer.run, 1)
    assert outcome is not None
    assert outcome.committed_step >= before

    _goes_on_to_its_end(pack, epochs)
    assert list(pack.printed("short")) == [1]  # it was over, and is not started again
    assert len(pack.printed("fails")) == 4  # once more, beyond its attempts


def shares_by_growth_in_every_lease(
    pack: LeasedPack, take_away: Callable[[str], None]
) -> None:
    """Train two of which one still grows, in two leases after each other."""
    for name, loss in (("falls", "0.999 ** step"), ("flat", "1.0 if step else 9.0")):
        pack.stage.job(name, REPORTS.format(loss=loss), more=PROGRESS)
    pack.submit_file('members = ["falls.toml", "flat.toml"]\n')
    by_growth = {"falls": 0.75, "flat": 0.25}
    pack.ticks_until("shares by growth", lambda: pack.record.shares == by_growth)
    before = pack.record.sharing
    take_away(pack.node())
    pack.ticks_until("generation 1 to be over", pack.ended)

    def shares() -> list[str]:
        logs = sorted(pack.trainer.logs.glob("*.log"))
        later = [log.read_text() for log in logs if int(log.stem) > 1]
        return [line for text in later for line in text.splitlines() if "%" in line]

    pack.ticks_until("it to go on", shares)
    assert before["tracks"]
    assert "flat 25 % (completing" in shares()[0], "its growth is known there, too"


def goes_on_after_its_packer_was_killed(pack: LeasedPack) -> None:
    """Train, have the packer killed with -9, and train on to the end."""
    epochs = 40
    pack.submit(long_epochs=epochs)
    pack.ticks_until("members to train", lambda: _is_in_the_middle(pack))
    members = set(pack.stage.processes())

    pack.kill_packer()
    pack.ticks_until("generation 1 to be over", pack.ended)

    assert pack.ended() is Ended.KILLED
    assert not members & set(pack.stage.processes())
    _goes_on_to_its_end(pack, epochs)


def _goes_on_to_its_end(pack: LeasedPack, epochs: int) -> None:
    pack.flag.touch()  # the member that fails does not, the next time
    pack.ticks_until("the pack to be finished", pack.is_finished)

    ends = {name: line.end for name, line in pack.record.members.items()}
    assert ends == dict.fromkeys(("short", "long", "fails"), "finished")
    assert pack.used("short") == {2}
    assert pack.used("long") == {epochs}
    assert len(pack.printed("long")) > 1
    wait_for("nothing to be left", lambda: not pack.stage.processes())


def _is_in_the_middle(pack: LeasedPack) -> bool:
    fails, short = (pack.record.members.get(name) for name in ("fails", "short"))
    if short is None or short.end != "finished":
        return False
    # It was started again, in this generation, until that was of no use any more.
    is_hopeless = fails is not None and fails.failures == 3 and fails.again_s is None
    return is_hopeless and pack.steps("long") > 20
