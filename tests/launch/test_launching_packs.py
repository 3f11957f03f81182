"""Packs launched for real on this machine, as the agent of a lease does it."""

import os
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL

import pytest
from msgspec import structs

from freetrain.agent.environment import marked_processes
from freetrain.elastic.contract import Outcome, OutcomeKind, read_outcome
from freetrain.elastic.files import Clock
from freetrain.launch.local import LocalLauncher, Session, this_node
from freetrain.pack.cpu_controllers import this_packer
from freetrain.pack.pack import read_record
from freetrain.pack.run import pack_id, sweep
from freetrain.processes import send_signal
from freetrain.state.files import StateDir
from tests.launch.launch_records import job, request, wait
from tests.pack.packs import Stage, until

SHORT = "print('step 1 loss 0.5', flush=True)"
FOR_EVER = "import time\nprint('up', flush=True)\nwhile True: time.sleep(0.05)\n"
BOTH = 'members = ["a.toml", "b.toml"]\nmeans = "duty-cycle"\n'


class PackPlace:
    """A state directory, a folder with a pack, and the worlds that were launched."""

    def __init__(self, folder: Path) -> None:
        self.stage = Stage(folder)
        self.state = StateDir(folder / "state")
        self.run = self.state.trainer("digits").run
        self.started: list[Session] = []

    def launch(self, text: str = BOTH) -> Session:
        pack = self.stage.folder / "pack.toml"
        pack.write_text(text)
        a_job = job("pack", directory=pack.parent)
        a_job = structs.replace(a_job, launch=structs.replace(a_job.launch, pack=pack))
        head = this_node({"PATH": os.environ["PATH"], "SLURM_CONF": "/slurm.conf"})
        assigned = request(a_job, nodes=("n1",)).assigned
        launcher = LocalLauncher(self.state, head)
        world = launcher.launch(a_job, assigned, after=None)
        self.started.append(world)
        return world

    def said(self, member: str) -> str:
        path = self.run.path / "members" / member / "logs" / "0000000003.log"
        return path.read_text() if path.exists() else ""

    def outcome(self) -> Outcome:
        outcome = read_outcome(self.run, 3)
        assert outcome is not None
        return outcome


@pytest.fixture
def place(tmp_path: Path) -> Iterator[PackPlace]:
    made = PackPlace(tmp_path)
    yield made
    for world in made.started:
        world.kill()
        wait(world)
    sweep(this_packer(pack_id(made.run)), Clock())
    assert not made.stage.processes()


def test_members_have_the_lease_s_node_and_the_trainer_is_finished_with_them(
    place: PackPlace,
) -> None:
    variables = "SLURM_CONF", "FREETRAIN_WORLD", "FREETRAIN_LEASE"
    place.stage.job("a", f"import os; print(*map(os.environ.get, {variables}))")
    place.stage.job("b", SHORT)

    assert wait(place.launch()) == 0

    assert place.outcome().kind is OutcomeKind.FINISHED
    ends = {n: line.end for n, line in read_record(place.run).members.items()}
    assert ends == {"a": "finished", "b": "finished"}
    assert place.said("a") == "/slurm.conf digits/3 uuid-n1-0\n"
    log = place.state.trainer("digits").logs / "0000000003.log"
    assert "pack: a started" in log.read_text()


def test_asked_while_python_begins_it_stops_well(place: PackPlace) -> None:
    for name in "ab":
        place.stage.job(name, FOR_EVER)
    world = place.launch()
    world.ask_to_stop()

    assert wait(world) == 0
    assert place.outcome().kind is OutcomeKind.RESCALED


def test_what_a_kill_leaves_is_found_by_the_lease_s_marks(place: PackPlace) -> None:
    for name in "ab":
        place.stage.job(name, FOR_EVER)
    world = place.launch()
    until(lambda: "up" in place.said("a") and "up" in place.said("b"))

    world.kill()
    wait(world)

    left = place.stage.processes()
    marked = marked_processes(uid=os.geteuid(), own_pid=os.getpid())
    ours = [process for process in marked if process.pid in left]
    assert sorted(one.pid for one in ours) == sorted(left)
    assert len(left) == 2
    assert {(one.mark.trainer, one.mark.generation) for one in ours} == {("digits", 3)}
    for one in ours:
        send_signal(one.pid, SIGKILL, started=one.started)
    until(lambda: not place.stage.processes())


@pytest.mark.parametrize("text", ["members = 3", 'members = ["gone.toml"]'])
def test_a_pack_that_cannot_be_read_fails_and_says_why(
    place: PackPlace, text: str
) -> None:
    assert wait(place.launch(text=text)) != 0

    said = place.outcome()
    assert said.kind is OutcomeKind.FAILED
    assert "members = 3" in said.message or "gone.toml" in said.message
