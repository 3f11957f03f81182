"""A pack that is submitted, gets leases, loses one, and goes on in the next.

Real agents and trainings, on a stand-in for Slurm and on a real cluster.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL

import pytest

from freetrain.client.submit import SubmitRequest, submit_file
from freetrain.config.site import HoleSettings, LeaseSettings, PlannerSettings, Site
from freetrain.demo.fake_slurm.processes import at_work, install
from freetrain.elastic.contract import read_outcome
from freetrain.elastic.files import RunDir
from freetrain.errors import FreeTrainError
from freetrain.pack.pack import PackRecord, member_folder, read_record
from freetrain.state.database import read_store
from freetrain.state.files import (
    EndingKind,
    StateDir,
    TrainerDir,
    newest_assigned,
    read_ending,
)
from freetrain.state.tables import TrainerState, trainers
from freetrain.tick.environment import real_environment
from freetrain.tick.tick import tick
from slurm.errors import SlurmError
from tests.cluster.cluster import Cluster
from tests.cluster.processes import processes
from tests.cluster.site import Site as SlurmSite
from tests.cluster.waiting import wait_for
from tests.fakes.others import take_nodes
from tests.pack.packs import PROGRESS, TOP, Stage

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

    def submit_file(self, members: str, *, name: str = NAME) -> None:
        """Submit a pack of *members*, which share one CPU by turns."""
        folder = self.stage.folder
        means = 'means = "duty-cycle"\ncpus = 1\ninterval = "1s"\n'
        (folder / f"{name}.pack").write_text(f"{members}{means}")
        path = folder / f"{name}.job"
        path.write_text(
            f'name = "{name}"\n[nodes]\nmax = 1\n[launch]\nlauncher = "pack"\n'
            f'pack = "{name}.pack"\n[restart]\nwait = "1s"\n'
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
        words = ["freetrain.pack", str(self.stage.folder / f"{NAME}.pack"), ""]
        (packer,) = (pid for pid, argv, _ in processes() if argv[-3:] == words)
        os.kill(packer, SIGKILL)

    def node(self, name: str = NAME) -> str:
        """Return the node on which a pack is, empty for none."""
        assigned = newest_assigned(StateDir(self.site.state_directory).trainer(name))
        return assigned.members[0].node if assigned and assigned.members else ""

    def steps(self, member: str) -> int:
        path = member_folder(self.trainer.run, member) / "run" / "progress.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return int(json.loads(lines[-1])["step"]) if lines else 0

    def printed(self, member: str, home: RunDir | None = None) -> dict[int, str]:
        """Return what each generation of a member printed."""
        logs = member_folder(home or self.trainer.run, member) / "logs"
        return {int(path.stem): path.read_text() for path in logs.glob("*.log")}

    def used(self, member: str, home: RunDir | None = None) -> set[int]:
        """Return how often samples were used, as a member that is finished says."""
        (text,) = [t for t in self.printed(member, home).values() if "used" in t]
        return set(map(int, text.partition("used")[2].split()))

    def ended(self) -> EndingKind | None:
        """Return how generation 1 ended; None while it runs."""
        ending = read_ending(self.trainer, 1)
        return ending.ended if ending else None

    def is_finished(self) -> bool:
        with read_store(self.site.state_directory, uid=os.getuid()) as state:
            return {row.state for row in trainers(state)} == {TrainerState.FINISHED}


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


Scene = tuple[LeasedPack, Callable[[str], object]]
"""A pack, and a function that lets another user's job have a node at once."""


@contextmanager
def on_a_stand_in(folder: Path) -> Iterator[Scene]:
    (folder / "slurm").mkdir()
    with at_work(install(folder / "slurm", now_s=now_s())) as fake_slurm:
        path = f"{fake_slurm.path}:{os.environ.get('PATH', '')}"

        def take_away(node: str) -> None:
            take_nodes(fake_slurm, [node], run_s=600.0, now_s=now_s())

        environ = {**os.environ, "PATH": path}
        yield leased_pack(folder, environ, longest_s=240.0), take_away


@contextmanager
def on_a_cluster(cluster_of: Callable[..., Cluster]) -> Iterator[Scene]:
    # Compute nodes may enter this folder.
    with tempfile.TemporaryDirectory(prefix="freetrain-pack-") as name:
        cluster = cluster_of()
        try:
            theirs = SlurmSite(cluster, Path(name), "freetrain")
            pack = leased_pack(Path(name), cluster.environ, longest_s=600.0)

            def take_away(node: str) -> None:
                theirs.others_job(1, 10, f"--nodelist={node}", "--exclusive")

            yield pack, take_away
        finally:
            cluster.clear()


@pytest.fixture(
    params=[
        pytest.param("a stand-in", marks=pytest.mark.long),
        pytest.param("a cluster", marks=pytest.mark.slurm),
    ]
)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    if request.param == "a stand-in":
        with on_a_stand_in(tmp_path) as made:
            yield made
    else:
        with on_a_cluster(request.getfixturevalue("cluster_of")) as made:
            yield made


def test_members_of_a_pack_lose_nothing_with_a_lease(scene: Scene) -> None:
    pack, take_away = scene
    epochs = 60
    pack.submit(long_epochs=epochs)
    pack.ticks_until("members to train", lambda: _is_in_the_middle(pack))
    before = pack.steps("long")
    take_away(pack.node())
    pack.ticks_until("generation 1 to be over", pack.ended)
    assert pack.ended() is EndingKind.RESCALED
    assert pack.record.members["long"].end == "stopped"
    outcome = read_outcome(pack.trainer.run, 1)
    assert outcome is not None
    assert outcome.committed_step >= before

    _goes_on_to_its_end(pack, epochs)
    assert list(pack.printed("short")) == [1]  # it was over, and is not started again
    assert len(pack.printed("fails")) == 4  # once more, beyond its attempts


@pytest.mark.long
def test_flowcons_shares_hold_in_a_lease_and_go_to_the_next(tmp_path: Path) -> None:
    with on_a_stand_in(tmp_path) as (pack, take_away):
        falls, flat = "0.999 ** step", "1.0 if step else 9.0"
        pack.stage.job("falls", REPORTS.format(loss=falls), more=PROGRESS)
        pack.stage.job("flat", REPORTS.format(loss=flat), more=PROGRESS)
        pack.submit_file('members = ["falls.toml", "flat.toml"]\nsharing = "flowcon"\n')
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


def test_the_agent_ends_members_whose_packer_was_killed(scene: Scene) -> None:
    pack, _ = scene
    epochs = 40
    pack.submit(long_epochs=epochs)
    pack.ticks_until("members to train", lambda: _is_in_the_middle(pack))
    members = set(pack.stage.processes())

    pack.kill_packer()
    pack.ticks_until("generation 1 to be over", pack.ended)

    assert pack.ended() is EndingKind.KILLED
    assert not members & set(pack.stage.processes())
    _goes_on_to_its_end(pack, epochs)


def test_a_member_moves_to_a_pack_on_another_node_and_loses_nothing(
    scene: Scene,
) -> None:
    pack, _ = scene
    epochs, names = 60, ("one", "two", "three")
    for name in names:
        counts = COUNTS.format(samples=SAMPLES, epochs=epochs, step_s=0.05)
        pack.stage.job(name, counts)
    members = ", ".join(f'"{name}.toml"' for name in names)
    exchange = f'exchange = "{pack.stage.folder}/exchange"\nstay = "60s"\n'
    other = StateDir(pack.site.state_directory).trainer("roomy").run
    pack.submit_file(f"members = [{members}]\n{exchange}")
    pack.submit_file(exchange, name="roomy")

    def moved() -> list[str]:
        lines = read_record(other).members
        return [name for name, line in lines.items() if line.generation > 0]

    pack.ticks_until("a member to move", moved)
    assert pack.node() != pack.node("roomy") != ""
    assert pack.record.members[moved()[0]].end == "with another pack"
    pack.ticks_until("both packs to be finished", pack.is_finished)

    home = RunDir(pack.stage.folder / "exchange")
    assert [pack.used(name, home) for name in names] == [{epochs}] * 3
    done = [read_record(run).done[0] for run in (pack.trainer.run, other)]
    assert sum(done) == len(names) * epochs * SAMPLES // 4
    assert min(done) > 0
    wait_for("nothing to be left", lambda: not pack.stage.processes())


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
