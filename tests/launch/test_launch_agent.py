"""The launch agent's script, with a program in place of srun that says its words."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from freetrain.broker.lease import LeaseKey
from freetrain.launch.base import (
    PlannedFile,
    Tool,
    WorldRequest,
    agent_files,
    plan_world,
)
from freetrain.launch.local import find_tool
from freetrain.launch.mpirun import Flavour
from tests.launch.launch_records import job, request

# Says what it was called with, then does what srun does with the rest.
_SRUN = """\
import json, os, sys
words = sys.argv[1:]
at = words.index("/bin/sh")
with open(os.environ["SAID"], "w") as file:
    json.dump([words[:at], dict(os.environ)], file)
os.environ["SLURM_STEP_ID"] = "5"
os.execv("/bin/sh", words[at:])
"""


class Called:
    """The result of one call of the launch agent, and the words of its srun."""

    def __init__(self, said: Path, done: subprocess.CompletedProcess[bytes]) -> None:
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.options: list[str] = []
        self.environment: dict[str, str] = {}
        if said.exists():
            self.options, self.environment = json.loads(said.read_text())


def written(
    folder: Path, world: WorldRequest, files: Iterable[PlannedFile] | None = None
) -> WorldRequest:
    for one in files or agent_files(world):
        one.path.parent.mkdir(parents=True, exist_ok=True)
        one.path.write_text(one.content)
        one.path.chmod(one.mode)
    (folder / "said.json").unlink(missing_ok=True)
    return world


def call(folder: Path, world: WorldRequest, *words: str, **extra: str) -> Called:
    said = folder / "said.json"
    environment = {"PATH": os.defpath, "SAID": str(said), **extra}
    argv = [str(world.agent_path), *words]
    done = subprocess.run(argv, check=False, capture_output=True, env=environment)  # noqa: S603 -- the script under test
    return Called(said, done)


def srun(folder: Path) -> str:
    path = folder / "s run"
    path.write_text(f"#!{sys.executable}\n{_SRUN}")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def world(tmp_path: Path) -> WorldRequest:
    return written(tmp_path, request(folder=tmp_path, srun=srun(tmp_path)))


def test_it_starts_a_step_in_the_lease_on_the_node(
    tmp_path: Path, world: WorldRequest
) -> None:
    called = call(tmp_path, world, "n2", "echo", "hello")

    assert called.out == b"hello\n"
    assert called.options[:2] == ["--jobid=42", "--nodelist=n2"]
    assert {"--overlap", "--ntasks=1", "--mpi=none"} <= set(called.options)
    assert called.environment["FREETRAIN_LEASE"] == "uuid-n2-0"
    assert called.environment["FREETRAIN_WORLD"] == "digits/3"


def test_each_of_several_leases_of_a_node_gets_its_own_steps(tmp_path: Path) -> None:
    asked = request(
        job("srun"), nodes=("n1", "n2", "n1"), folder=tmp_path, srun=srun(tmp_path)
    )
    world = written(tmp_path, asked)

    found = {}
    for host in ("n1/1", "n2", "n1/2"):
        called = call(tmp_path, world, host, "true")
        found[host] = (*called.options[:2], called.environment["FREETRAIN_LEASE"])

    assert found == {
        "n1/1": ("--jobid=41", "--nodelist=n1", "uuid-n1-0"),
        "n2": ("--jobid=42", "--nodelist=n2", "uuid-n2-0"),
        "n1/2": ("--jobid=43", "--nodelist=n1", "uuid-n1-1"),
    }
    assert call(tmp_path, world, "n1", "true").status == 69


@pytest.mark.parametrize("is_said", [True, False])
def test_the_head_s_devices_do_not_get_to_other_leases(
    tmp_path: Path, *, is_said: bool
) -> None:
    own = (("CUDA_VISIBLE_DEVICES", "3"),) if is_said else ()
    asked = request(job(environment=own), folder=tmp_path, srun=srun(tmp_path))
    world = written(tmp_path, asked)
    heads = {"CUDA_VISIBLE_DEVICES": "3", "ROCR_VISIBLE_DEVICES": "3"}

    called = call(tmp_path, world, "n2", "true", **heads)

    assert called.environment.get("CUDA_VISIBLE_DEVICES") == ("3" if is_said else None)
    assert "ROCR_VISIBLE_DEVICES" not in called.environment


def test_it_steps_over_the_options_that_launchers_give_to_ssh(
    tmp_path: Path, world: WorldRequest
) -> None:
    assert call(tmp_path, world, "-x", "n3", "echo", "a").out == b"a\n"


def test_a_node_of_another_generation_is_refused(
    tmp_path: Path, world: WorldRequest
) -> None:
    called = call(tmp_path, world, "n9", "echo", "hello")

    assert (called.status, called.out) == (69, b"")
    assert b"generation 3 has no node n9" in called.err
    assert not called.options


def test_no_variable_of_a_job_or_a_launcher_gets_to_the_step_or_the_command(
    tmp_path: Path, world: WorldRequest
) -> None:
    outer = {
        "SLURM_JOB_ID": "1",
        "SLURMD_NODENAME": "n1",
        "PMIX_RANK": "0",
        "SLURM_CONF": "/etc/slurm.conf",
        "TRAP": "a\nSLURM_X=1\nSLURM_Y; touch x=1",
    }

    called = call(tmp_path, world, "n1", "env | sort", **outer)

    names = {line.partition(b"=")[0] for line in called.out.splitlines()}
    assert not names & {b"SLURM_JOB_ID", b"SLURMD_NODENAME", b"PMIX_RANK"}
    assert b"SLURM_STEP_ID" not in names
    assert b"SLURM_CONF=/etc/slurm.conf" in called.out.splitlines()
    assert "SLURM_JOB_ID" not in called.environment
    assert called.environment["TRAP"] == outer["TRAP"]


def test_the_command_s_own_status_is_the_agent_s(
    tmp_path: Path, world: WorldRequest
) -> None:
    assert call(tmp_path, world, "n1", "exit 7").status == 7


def test_options_for_srun_come_quoted_and_executable_is_used(tmp_path: Path) -> None:
    a_job = job("srun", executable=srun(tmp_path), options=("--comment=a b; $(x)",))
    plain = request(a_job, folder=tmp_path, srun="/not/there")
    world = written(tmp_path, plain, plan_world(plain, find_tool(plain)).files)

    called = call(tmp_path, world, "n1", "true")

    assert called.options[-1] == "--comment=a b; $(x)"


def test_a_site_s_own_agent_is_called_like_ssh_and_sets_the_marks(
    tmp_path: Path,
) -> None:
    site = tmp_path / "site agent"
    site.write_text('#!/bin/sh\nhost=$1; shift\necho "at $host"\nenv -i sh -c "$*"\n')
    site.chmod(0o755)
    world = written(tmp_path, request(folder=tmp_path, srun="", launch_agent=site))

    called = call(tmp_path, world, "n2", "echo $FREETRAIN_LEASE $FREETRAIN_WORLD")

    assert called.out == b"at n2\nuuid-n2-0 digits/3\n"


NAMES = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=30)


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(uuid=NAMES, trainer=NAMES)
def test_no_text_of_an_assignment_is_read_by_the_shell(
    tmp_path: Path, uuid: str, trainer: str
) -> None:
    plain = request(folder=tmp_path, srun=srun(tmp_path))
    members = tuple(replace(one, key=LeaseKey(uuid, 0)) for one in plain.members)
    hostile = replace(plain.assigned, trainer=trainer, members=members)
    world = replace(plain, assigned=hostile)

    called = call(tmp_path, written(tmp_path, world), "n2", "true")

    assert called.environment["FREETRAIN_LEASE"] == f"{uuid}-0"
    assert called.environment["FREETRAIN_WORLD"] == f"{trainer}/3"


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="no bash: nothing blocks")
def test_a_daemon_begins_with_term_blocked_whatever_sh_is(tmp_path: Path) -> None:
    plan = plan_world(
        request(job(), python=sys.executable), Tool("mpirun", Flavour.OPEN_MPI_5)
    )
    (node,) = (one for one in plan.files if one.path.name == "node")
    script = tmp_path / "node"
    script.write_text(node.content)

    status = "A='a b'; export A; exec cat /proc/self/status"
    said = subprocess.run(  # noqa: S603 -- our own script
        ["/bin/sh", str(script), status], check=True, capture_output=True, text=True
    ).stdout

    (blocked,) = (line for line in said.splitlines() if line.startswith("SigBlk:"))
    assert int(blocked.split()[1], 16) & 1 << signal.SIGTERM - 1
