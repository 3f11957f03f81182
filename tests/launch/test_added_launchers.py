"""Launchers that other packages add by an entry point."""

import json
import os
import time
from pathlib import Path

import pytest

from freetrain.client.submit import remarks
from freetrain.config.document import BaseFolders
from freetrain.config.job import TrainerJob, parse_job
from freetrain.errors import BadConfigurationError
from freetrain.launch.base import launcher_of
from freetrain.launch.local import LocalLauncher, this_node
from freetrain.plugins import LAUNCHERS, launcher_names
from freetrain.state.files import StateDir
from tests.launch.launch_records import job, request

MODULE = """\
from freetrain.launch.base import agent_files
from freetrain.launch.base import Launcher, Tool, assemble_plan

class Whisper(Launcher):
    usual_program = "whisper"

    def problems(self, job):
        yield from super().problems(job)
        if "--loud" in job.launch.options:
            yield "launch", "a whisper is never --loud"

    def find_tool(self, job, head, finder):
        return Tool(finder.find(self.program(job.launch), advice="install whisper"))

    def plan(self, request, tool):
        nodes = ",".join(request.hosts)
        argv = (tool.path, nodes, *request.command)
        return assemble_plan(
            request, argv, files=agent_files(request), stop_signal=None
        )

NO_LAUNCHER = 3
"""
ENTRY_POINTS = """\
[freetrain.launchers]
whisper = whisper_for_freetrain:Whisper
broken = whisper_for_freetrain:Missing
strange = whisper_for_freetrain:NO_LAUNCHER
mpirun = whisper_for_freetrain:Whisper
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a package that adds launchers, and the program ``whisper``."""
    site = tmp_path / "site"
    metadata = site / "whisper_for_freetrain-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Name: whisper-for-freetrain\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    (site / "whisper_for_freetrain.py").write_text(MODULE)
    monkeypatch.syspath_prepend(site)
    program = tmp_path / "bin" / "whisper"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "at $1"; shift; exec "$@"\n')
    program.chmod(0o755)
    return program.parent


def written(folder: Path, launch: str) -> TrainerJob:
    text = (
        'name = "digits"\ncommand = ["echo", "trained"]\n[nodes]\nmax = 8\n'
        f"[launch]\n{launch}\n"
    )
    return parse_job(text.encode(), path="job.toml", places=BaseFolders(folder))


def test_a_world_is_started_by_a_launcher_of_another_package(
    tmp_path: Path, installed: Path
) -> None:
    a_job = written(tmp_path, 'launcher = "whisper"')
    state = StateDir(tmp_path / "state")
    state.trainer("digits").create()
    path = f"{installed}:{os.environ['PATH']}"
    state.trainer("digits").environment.write_text(json.dumps({"PATH": path}))

    launcher = LocalLauncher(state, this_node(os.environ))
    world = launcher.launch(a_job, request(nodes=("n1", "n2")).assigned)
    while world.poll() is None:
        time.sleep(0.01)

    log = state.trainer("digits").logs / "0000000003.log"
    assert (world.poll(), log.read_text()) == (0, "at n1,n2\ntrained\n")


def test_an_added_launcher_says_what_is_wrong_in_a_job_file_and_at_submit(
    tmp_path: Path, installed: Path
) -> None:
    with pytest.raises(BadConfigurationError, match=r"\[launch\]: a whisper is never"):
        written(tmp_path, 'launcher = "whisper"\noptions = ["--loud"]')

    a_job = written(tmp_path, 'launcher = "whisper"')
    missing = remarks(a_job, {"PATH": ""}, [], beside=tmp_path, mounts="")
    there = remarks(a_job, {"PATH": str(installed)}, [], beside=tmp_path, mounts="")

    assert any('the launcher "whisper" is not on your PATH' in one for one in missing)
    assert not any("the launcher" in one for one in there)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("whispr", "one of mpirun, srun, .*whisper. Did you mean 'whisper'?"),
        ("broken", "Missing of the entry point broken cannot be imported"),
        ("strange", "3 of the entry point strange is no subclass of"),
    ],
)
def test_a_launcher_that_cannot_be_used_is_refused_with_the_reason(
    tmp_path: Path, name: str, said: str
) -> None:
    with pytest.raises(BadConfigurationError, match=said):
        written(tmp_path, f'launcher = "{name}"')


@pytest.mark.usefixtures("installed")
def test_a_built_in_launcher_cannot_be_replaced() -> None:
    assert type(launcher_of(job())).__module__ == "freetrain.launch.mpirun"
    assert launcher_names()[: len(LAUNCHERS)] == tuple(LAUNCHERS)
    assert "whisper" in launcher_names()


@pytest.mark.parametrize("name", LAUNCHERS)
def test_every_name_of_the_registry_is_a_launcher(name: str) -> None:
    assert launcher_of(job(name)).keys <= {"command", "pack"}
