"""Jobs of the fake Slurm are processes, and end as those of Slurm do."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from freetrain.demo.fake_slurm import processes
from freetrain.demo.fake_slurm.cluster import FakeJob, Process
from freetrain.demo.fake_slurm.processes import (
    FakeSlurmFolder,
    at_work,
    install,
    is_alive,
    process_of,
)
from slurm.errors import SlurmRefusedError
from slurm.runner import SubprocessRunner
from tests.cluster.waiting import wait_for

FORMAT = "--Format=Name:20|,JobArrayID:|,State:|,NodeList:|"


@dataclass(frozen=True, slots=True)
class LoginNode:
    """A user at a login node, with a folder for scripts and their output."""

    slurm: FakeSlurmFolder
    home: Path

    def run(self, *words: str) -> str:
        path = f"{self.slurm.path}{os.pathsep}{os.defpath}"
        return SubprocessRunner({"PATH": path}).run(words, timeout_s=60)

    def submit(self, body: str, *options: str) -> str:
        """Submit a lease that runs *body*; return its number."""
        script = self.home / f"script-{len(list(self.home.iterdir()))}"
        path = f"PATH={self.slurm.path}:$PATH"
        script.write_text(f"#!/bin/sh\n{path}\ncd {self.home}\n{body}\n")
        script.chmod(0o700)
        words: tuple[str, ...] = ("--parsable", "--partition=freetrain", "--time=60")
        words = (*words, f"--output={self.home}/job-%j.out", *options)
        return self.run("sbatch", *words, str(script)).strip()

    def others(self, nodes: list[str], *, in_s: float, run_s: float) -> None:
        """Submit another user's job now, planned on *nodes* in *in_s*."""
        now_s = time.time()  # noqa: TID251 - the programs go by the machine's clock
        job = FakeJob(
            job_id=0,
            name="theirs",
            user="bob",
            partition="main",
            limit_s=3_600,
            submit_s=now_s,
            due_s=now_s + in_s,
            wanted=nodes,
            run_s=run_s,
        )
        self.slurm.add([job])

    def state(self, job_id: str) -> str:
        lines = self.run("squeue", "--states=all", "--array", FORMAT).splitlines()
        rows = [line.split("|") for line in lines]
        return next(row[2] for row in rows if row[1] == job_id)

    def wait(self, job_id: str, state: str) -> None:
        wait_for(f"{job_id} to be {state}", lambda: self.state(job_id) == state)

    def said(self, name: str) -> str:
        """Return what is in a file, once there is something."""

        def text() -> str:
            path = self.home / name
            return path.read_text() if path.exists() else ""

        return wait_for(f"something in {name}", text)


@pytest.fixture
def login(tmp_path: Path) -> Iterator[LoginNode]:
    folder, home = tmp_path / "slurm", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    now_s = time.time()  # noqa: TID251 - the programs go by the machine's clock
    with at_work(install(folder, now_s=now_s)) as slurm:
        yield LoginNode(slurm, home)


pytestmark = pytest.mark.long

SLEEP = "exec sleep 600"
STEP = "srun -N1 -n1 sh -c"


def process_in(login: LoginNode, name: str) -> Process:
    """Return the process whose number is in a file."""
    pid = int(login.said(name))
    return process_of(pid) or pytest.fail(f"{pid} is gone already")


def test_a_script_finds_its_job_in_its_environment_and_its_arguments(
    login: LoginNode,
) -> None:
    told = "$SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID $SLURM_JOB_ID $SLURMD_NODENAME"

    array = login.submit(f'echo "{told}" > said-$SLURM_ARRAY_TASK_ID', "--array=0-1")

    assert login.said("said-0").split() == [array, "0", "2", "n1"]
    assert login.said("said-1").split() == [array, "1", array, "n2"]
    login.wait(f"{array}_0", "COMPLETED")


def test_a_job_has_its_own_variables_output_nodes_and_exit_status(
    login: LoginNode,
) -> None:
    mine = ("--export=GIVEN=1", "--exclude=n[1-3,5],n6,n4", "--job-name=j")
    output = f"--output={login.home}/%x-%j.out"
    job = login.submit("env > said\necho hello\nexit 3", output, *mine)

    login.wait(job, "FAILED")
    said = login.said("said")
    assert "GIVEN=1" in said
    assert "SLURMD_NODENAME=n7" in said
    assert "PYTEST_CURRENT_TEST" not in said
    assert login.said(f"j-{job}.out") == "hello\n"
    with pytest.raises(SlurmRefusedError, match="Invalid node name"):
        login.submit(SLEEP, "--exclude=n[1-")


def test_a_job_that_takes_its_variables_from_an_empty_file_has_slurms_alone(
    login: LoginNode,
) -> None:
    job = login.submit("env > said", "--export-file=/dev/null")

    login.wait(job, "COMPLETED")
    said = login.said("said")
    assert f"SLURM_JOB_ID={job}" in said
    assert "PYTEST_CURRENT_TEST" not in said
    with pytest.raises(SlurmRefusedError, match="reads no"):
        login.submit(SLEEP, "--export-file=/home/ada/variables")


def test_a_ninth_job_waits_until_a_node_is_free(login: LoginNode) -> None:
    array = login.submit(SLEEP, "--array=0-8")
    login.wait(f"{array}_7", "RUNNING")
    assert login.state(f"{array}_8") == "PENDING"

    login.run("scancel", f"{array}_3")

    login.wait(f"{array}_8", "RUNNING")


def test_a_job_that_would_delay_a_planned_one_waits_and_dies_of_its_deadline(
    login: LoginNode,
) -> None:
    every = [f"n{n}" for n in range(1, 9)]
    login.others(every, in_s=90, run_s=600)

    long = login.submit(SLEEP, "--time=2")
    short = login.submit(SLEEP, "--time=1")
    soon = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + 30))  # noqa: TID251
    late = login.submit(SLEEP, "--time=1", f"--deadline={soon}")

    login.wait(short, "RUNNING")
    assert login.state(long) == "PENDING"
    assert login.state(late) == "DEADLINE"


def test_the_queue_has_jobs_that_are_not_over_and_more_where_they_are_asked_for(
    login: LoginNode,
) -> None:
    one, other = login.submit(SLEEP, "--job-name=one"), login.submit(SLEEP)
    login.wait(one, "RUNNING")
    login.run("scancel", other)
    login.wait(other, "CANCELLED")

    queues = [
        login.run("squeue", *words, "--Format=JobArrayID:|").splitlines()[1:]
        for words in ((), ("--states=all",), ("--states=all", "--name=one"))
    ]

    assert queues == [[f"{one}|"], [f"{one}|", f"{other}|"], [f"{one}|"]]


def test_somebody_elses_job_takes_a_lease_whose_step_hears_of_it_first(
    login: LoginNode,
) -> None:
    lease = login.submit(
        f"trap 'echo batch >> told' TERM\n{STEP} "
        f"'trap \"echo step >> told; exit 0\" TERM; echo up > up; sleep 600 & wait'"
    )
    login.said("up")

    login.others(["n1"], in_s=0, run_s=600)

    login.wait(lease, "PREEMPTED")
    assert login.said("told") == "step\n"
    wait_for("theirs to run", lambda: "theirs" in _running(login))


def test_a_lease_that_ignores_its_notice_is_killed_when_its_grace_is_over(
    login: LoginNode,
) -> None:
    lease = login.submit(
        f"trap '' TERM; {STEP} 'trap \"\" TERM; echo $$ > pid; sleep 600; sleep 600'"
    )
    step = process_in(login, "pid")
    started_s = time.monotonic()

    login.others(["n1"], in_s=0, run_s=600)
    wait_for("the notice", lambda: login.slurm.look().jobs[0].notice_s is not None)
    assert login.state(lease) == "RUNNING"

    login.wait(lease, "PREEMPTED")
    assert time.monotonic() - started_s > 10 + 5 - 1  # GraceTime and KillWait
    wait_for("the step to be gone", lambda: not is_alive(step))


@pytest.mark.parametrize("where", [("-w", "n1"), ()])
def test_a_step_started_from_elsewhere_is_our_child_and_ends_with_the_job(
    login: LoginNode, where: tuple[str, ...]
) -> None:
    job = login.submit(SLEEP)
    login.wait(job, "RUNNING")
    path = f"{login.slurm.path}{os.pathsep}{os.defpath}"
    words = ["srun", f"--jobid={job}", "--overlap", "-N1", "-n1", *where]
    told = "echo $SLURM_JOB_ID $SLURMD_NODENAME $MINE; exec sleep 600"
    with subprocess.Popen(  # noqa: S603 - our own words
        [*words, "--mpi=none", "--export=ALL", "sh", "-c", told],
        stdout=subprocess.PIPE,
        env={"PATH": path, "MINE": "yes"},
        text=True,
    ) as step:
        assert step.stdout is not None
        assert step.stdout.readline().split() == [job, "n1", "yes"]

        login.run("scancel", "--signal=KILL", job)

        assert step.wait(60) == -signal.SIGKILL
    login.wait(job, "CANCELLED")


def test_no_step_is_made_in_a_job_that_is_over_or_on_another_node(
    login: LoginNode,
) -> None:
    job = login.submit(SLEEP)
    login.wait(job, "RUNNING")

    with pytest.raises(SlurmRefusedError, match="not available"):
        login.run("srun", f"--jobid={job}", "-w", "n2", "true")
    login.run("scancel", "--signal=KILL", job)
    with pytest.raises(SlurmRefusedError, match="already completing or completed"):
        login.run("srun", f"--jobid={job}", "true")


@pytest.mark.parametrize("environment", ["", "env -i PATH=$PATH"])
@pytest.mark.parametrize("by", ["itself", "scancel"])
def test_a_child_that_made_itself_a_daemon_ends_with_its_job(
    login: LoginNode, by: str, environment: str
) -> None:
    last = "" if by == "itself" else SLEEP
    daemon_words = 'trap "" TERM; echo $$ > pid; sleep 600; sleep 600'
    job = login.submit(
        f"({environment} setsid sh -c '{daemon_words}' &)\n"
        f"while [ ! -s pid ]; do sleep 0.05; done\n{last}"
    )
    daemon = process_in(login, "pid")

    if by == "scancel":
        login.run("scancel", "--signal=KILL", job)

    wait_for("the daemon to be gone", lambda: not is_alive(daemon))
    login.wait(job, "COMPLETED" if by == "itself" else "CANCELLED")


@pytest.mark.parametrize("from_step", [True, False])
def test_a_job_that_cancels_itself_is_cancelled_and_did_not_fail(
    login: LoginNode, *, from_step: bool
) -> None:
    own = "scancel --signal=KILL $SLURM_JOB_ID; sleep 600"
    job = login.submit(f"{STEP} '{own}'" if from_step else own)

    login.wait(job, "CANCELLED")


def test_a_job_whose_supervisor_was_killed_has_failed_and_leaves_nothing(
    login: LoginNode,
) -> None:
    job = login.submit("echo $$ > pid; exec sleep 600")
    script = process_in(login, "pid")
    supervisor = login.slurm.look().jobs[0].supervisor
    assert supervisor is not None

    os.kill(supervisor.pid, signal.SIGKILL)

    login.wait(job, "FAILED")
    wait_for("the script to be gone", lambda: not is_alive(script))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_everything_ends_when_the_keeper_does(
    tmp_path: Path, number: signal.Signals
) -> None:
    keeper = subprocess.Popen(  # noqa: S603 - our own words
        [sys.executable, Path(__file__).with_name("keeper.py"), tmp_path],
        cwd=Path(__file__).parent.parent.parent,
    )
    pids = tmp_path / "pids"
    wait_for(
        "two processes", lambda: pids.exists() and pids.read_text().count("\n") > 1
    )
    ours = [process_of(int(pid)) for pid in pids.read_text().split()]

    keeper.send_signal(number)
    keeper.wait(60)

    wait_for(
        "them to be gone",
        lambda: not any(is_alive(process) for process in ours if process),
    )
    wait_for("nothing to name the folder", lambda: not _naming(tmp_path))


def test_everything_ends_when_the_folder_is_removed(login: LoginNode) -> None:
    login.submit("echo $$ > pid; exec sleep 600")
    script = process_in(login, "pid")

    away = login.slurm.folder.with_name("away")
    login.slurm.folder.rename(away)

    wait_for("the script to be gone", lambda: not is_alive(script))
    wait_for("nobody to be left", lambda: not _naming(login.slurm.folder))
    away.rename(login.slurm.folder)


def _running(login: LoginNode) -> str:
    lines = login.run("squeue", "--Format=Name:20|,State:|").splitlines()
    return " ".join(line for line in lines if "RUNNING" in line)


def _naming(folder: Path) -> list[str]:
    """Return the command lines that name *folder*."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line:
            found.append(line)
    return found


def test_where_not_all_processes_were_seen_a_marked_one_may_be_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def seen(_: bytes) -> Iterator[tuple[int, bytes]]:
        yield os.getpid() + 1, b"FREETRAIN_FAKE_JOB=elsewhere\0"
        raise BlockingIOError(errno.EAGAIN, "a process is still being started")

    monkeypatch.setattr(processes, "environments", seen)

    assert processes.signal_marked("/here:1", 0) == 1
