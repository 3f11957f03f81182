"""What leases call, and the variables that go with it."""

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from uuid import uuid4

import pytest

from freetrain.agent.agent import own_job, read_call
from freetrain.agent.environment import (
    Environment,
    LeaseEndListener,
    does_answer,
    listener_argv,
)
from freetrain.agent.observation import LISTENER_MARK, Patience, read_patience
from freetrain.broker.lease import LeaseKey
from freetrain.errors import UsageError
from freetrain.processes import status_of
from freetrain.state.files import StateDir
from slurm.backend import CommandLine
from slurm.records import JobKey, JobRecord
from slurm.runner import SubprocessRunner
from tests.cluster.waiting import wait_for
from tests.state.endings import a_lease

UUID = "7b0a3c1e-0000-4000-8000-000000000000"


def test_a_lease_calls_agent_and_sweep() -> None:
    call = read_call(["/state", UUID, "3", "30", "10"])

    assert call.key == LeaseKey(UUID, 3)
    assert (call.limit_s, call.grace_s, call.is_sweep) == (1800.0, 10.0, False)
    assert read_call(["sweep", "/state", UUID, "0"]).is_sweep


@pytest.mark.parametrize(
    "argv",
    [
        *([], ["/state", UUID, "3", "30"], ["sweep", "/state", UUID, "0", "1"]),
        *(["state", UUID, "3", "30", "10"], ["/state", "../x", "3", "30", "10"]),
        *(["/state", UUID, "-1", "30", "10"], ["/state", UUID, "3", "soon", "10"]),
        ["/state", UUID, "3", "inf", "10"],
    ],
)
def test_calls_that_make_no_sense_are_refused(argv: list[str]) -> None:
    with pytest.raises(UsageError, match="Nothing was started"):
        read_call(argv)


def test_tasks_of_arrays_are_ended_by_what_scancel_calls_them() -> None:
    alone = {"SLURM_JOB_ID": "17"}
    task = {"SLURM_ARRAY_JOB_ID": "16", "SLURM_ARRAY_TASK_ID": "2"} | alone

    assert own_job(alone) == JobKey(17, "17")
    assert own_job(task) == JobKey(17, "16_2")
    assert own_job({}) is None


def test_patience_is_what_it_was_but_for_what_is_said() -> None:
    assert read_patience("") == Patience()
    assert read_patience("silent_s=3,stuck_s=2.5") == Patience(silent_s=3, stuck_s=2.5)


@pytest.mark.parametrize("text", ["x=1", "silent_s", "silent_s=0", "beat_s=nan", "a b"])
def test_patience_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="did not start"):
        read_patience(text)


def test_the_command_says_what_is_wrong_in_one_line_and_how_it_is_called() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "freetrain.agent", "nonsense"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 64
    assert done.stderr.startswith("error: the number of arguments is wrong")
    assert "usage: " in done.stderr


def test_an_agent_starts_and_ends_without_heavy_libraries() -> None:
    """NumPy alone takes longer than all else that an agent's start needs."""
    program = (
        "import sys, freetrain.agent.agent, freetrain.pack.cpu_controllers; "
        "print({'numpy', 'pulp', 'sqlite3', 'rich'} & sys.modules.keys())"
    )

    said = subprocess.run(  # noqa: S603 -- our own words
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout

    assert said == "set()\n"


def test_a_listener_hears_that_its_step_got_term_and_of_nothing_else(
    tmp_path: Path,
) -> None:
    def hears(status: int) -> bool:
        srun = tmp_path / "srun"
        srun.write_text(f"#!/bin/sh\nexit {status}\n", encoding="ascii")
        srun.chmod(0o755)
        listener = LeaseEndListener(1, {"PATH": str(tmp_path)}, elapsed_s=lambda: 0.0)
        listener.has_heard()
        wait_for(
            "the step to end", lambda: listener.has_heard() or not listener.is_listening
        )
        return listener.has_heard()

    assert hears(143)
    assert not hears(1)
    assert "--jobid=7" in listener_argv(7)


@pytest.mark.parametrize("step", [None, "-5"], ids=["to 25.11", "from 26.05"])
def test_an_agent_under_a_batch_script_has_a_step_that_listens(
    tmp_path: Path, step: str | None
) -> None:
    """From 26.05 on the script has the number of a step, too: that of itself."""
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\nexit 143\n", encoding="ascii")
    srun.chmod(0o755)
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "7"}
    if step is not None:
        variables["SLURM_STEP_ID"] = step
    lease = LeaseKey(str(uuid4()), 0)
    state = StateDir(tmp_path / "state")
    words = [sys.executable, "-P", "-m", "freetrain.agent", str(state.path)]

    with subprocess.Popen(  # noqa: S603 -- our own words
        [*words, lease.uuid, "0", "5", "15"], env=os.environ | variables
    ) as agent:
        log = state.lease(lease).log
        try:
            wait_for(
                "the agent to leave",
                lambda: log.exists() and "leaving: asked" in log.read_text(),
                limit_s=20,
            )
        finally:
            agent.kill()


HELPER = """#!/bin/sh
sleep 600 &
echo $$ $! > pids.new
mv pids.new pids
wait
"""


def stopped_helper(folder: Path, lease: str) -> tuple[LeaseEndListener, list[int]]:
    """Return a listener whose step, and a child of it, were stopped; their numbers."""
    srun = folder / "srun"
    srun.write_text(HELPER.replace("pids", f"{folder}/pids"), encoding="ascii")
    srun.chmod(0o755)
    variables = {"PATH": f"{folder}:{os.environ['PATH']}", LISTENER_MARK: lease}
    listener = LeaseEndListener(1, variables, elapsed_s=lambda: 0.0)
    assert not listener.has_heard()
    wait_for("the step", (folder / "pids").exists)
    pids = [int(word) for word in (folder / "pids").read_text().split()]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    return listener, pids


def are_gone(pids: list[int]) -> bool:
    found = [status_of(pid) for pid in pids]
    return all(status is None or status.has_ended for status in found)


def test_a_sweep_ends_helpers_that_were_stopped_and_those_of_its_lease_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    uuid = str(uuid4())
    listener, pids = stopped_helper(tmp_path / "a", f"{uuid}-0")
    other, others = stopped_helper(tmp_path / "b", f"{uuid}-01")
    try:
        StateDir(tmp_path).lease(LeaseKey(uuid, 0)).create()
        sweep = [sys.executable, "-m", "freetrain.agent", "sweep", str(tmp_path), uuid]
        subprocess.run([*sweep, "0"], check=True)  # noqa: S603 -- our own words
        wait_for("the helpers to end", lambda: are_gone(pids), limit_s=10.0)
        assert not are_gone(others)
    finally:
        listener.close()
        other.close()
        os.kill(others[1], signal.SIGKILL)


def test_a_listener_that_was_stopped_is_deaf_and_is_started_again(
    tmp_path: Path,
) -> None:
    now_s = 0.0
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\necho $$ >> pids\nexec sleep 600\n", encoding="ascii")
    srun.chmod(0o755)
    pids = tmp_path / "pids"
    srun.write_text(srun.read_text().replace("pids", str(pids)), encoding="ascii")
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    listener = LeaseEndListener(1, variables, elapsed_s=lambda: now_s)
    listener.has_heard()
    wait_for("the step", lambda: pids.exists() and pids.read_text())
    first = int(pids.read_text())

    os.kill(first, signal.SIGSTOP)
    wait_for("it to stop", lambda: (status := status_of(first)) and status.is_stopped)
    now_s = 6.0
    wait_for("it to end", lambda: not listener.has_heard() and are_gone([first]))
    now_s = 12.0
    listener.has_heard()

    wait_for("another", lambda: len(pids.read_text().split()) == 2)
    listener.close()
    assert are_gone([int(word) for word in pids.read_text().split()])


def test_a_listener_without_slurm_hears_nothing(tmp_path: Path) -> None:
    listener = LeaseEndListener(1, {"PATH": str(tmp_path)}, elapsed_s=lambda: 0.0)

    assert not listener.has_heard()
    assert not listener.is_listening


@pytest.mark.parametrize(
    ("script", "answers"),
    [
        pytest.param("echo 'ClusterName = c'", True, id="an answer"),
        pytest.param(
            "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1",
            False,
            id="no slurmctld",
        ),
        pytest.param("sleep 60", False, id="it hangs"),
        pytest.param("echo 'Access denied' >&2; exit 1", True, id="a refusal"),
        pytest.param(None, True, id="no such program: others come first"),
    ],
)
def test_slurm_answers_unless_slurmctld_is_silent(
    tmp_path: Path, script: str | None, *, answers: bool
) -> None:
    if script is not None:
        scontrol = tmp_path / "scontrol"
        scontrol.write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
        scontrol.chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin" if script else str(tmp_path)
    slurm = CommandLine(SubprocessRunner({"PATH": path}), timeout_s=1.0)

    assert does_answer(slurm, log=print) is answers


def test_an_agent_that_is_a_step_is_woken_by_the_signal_that_its_lease_ends() -> None:
    program = (
        "import os, signal\n"
        "from freetrain.agent.environment import Environment\n"
        "own = Environment(None, None, own_job=None, listener=None, journal=print)\n"
        "own.handle_signals()\n"
        "print(own.is_asked_to_leave())\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "own.wait(600.0)\n"
        "print(own.is_asked_to_leave())\n"
        "begun_s = own.elapsed_s()\n"
        "own.wait(0.1)\n"
        "print(own.elapsed_s() - begun_s >= 0.1)"  # it does not turn round and round
    )

    said = subprocess.run(  # noqa: S603 -- our own words
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout

    assert said == "False\nTrue\nTrue\n"


class SlurmOfNoJobs(CommandLine):
    """Knows of no job, and how often it was asked."""

    def __init__(self) -> None:
        super().__init__(SubprocessRunner({}), timeout_s=1.0)
        self.asked = 0

    def find_by_name(self, *names: str) -> tuple[JobRecord, ...]:
        assert names
        self.asked += 1
        return ()


class LateNode(Environment):
    """An agent's environment with a clock that the test moves."""

    now_s = 100.0

    def elapsed_s(self) -> float:
        return self.now_s


def test_slurm_is_soon_asked_again_of_a_lost_lease_and_then_once_a_second() -> None:
    slurm = SlurmOfNoJobs()
    node = LateNode(
        None,  # type: ignore[arg-type]  # nothing is launched
        slurm,
        own_job=None,
        listener=None,
        journal=print,
    )

    def asked_at(second: float) -> bool:
        before, node.now_s = slurm.asked, 100.0 + second
        begun = set(threading.enumerate())
        node.ask_of_leases([a_lease(LeaseKey("u", 0), "n1", 1)])
        for thread in set(threading.enumerate()) - begun:
            thread.join()
        return slurm.asked > before

    tenths = [tenth for tenth in range(31) if asked_at(tenth / 10)]
    assert tenths == [0, 3, 8, 18, 28]
    assert [asked_at(20.0), asked_at(20.3)] == [True, True]
    for held in vars(node).values():  # an agent holds them until it ends
        if isinstance(held, socket.socket):
            held.close()
