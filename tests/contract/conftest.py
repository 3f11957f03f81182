"""The worlds that contracts are checked on."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from slurm.command_line import CommandLine
from slurm.subprocess_runner import SubprocessRunner
from tests.contract.slurm_worlds import World
from tests.fakes.slurm.batch import USER
from tests.fakes.slurm.installing import FakeSlurm, install

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from slurm.backend import SlurmBackend


@pytest.fixture
def fake_slurm(tmp_path: Path) -> FakeSlurm:
    folder = tmp_path / "fake-slurm"
    folder.mkdir()
    return install(folder)


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.slurm)])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "fake":
        fake: FakeSlurm = request.getfixturevalue("fake_slurm")
        yield _world(fake.environ, USER, tmp_path)
        return
    cluster = request.getfixturevalue("cluster_of")()
    user = pwd.getpwuid(os.getuid()).pw_name
    yield _world(cluster.environ, user, tmp_path)
    cluster.clear()


def _world(environ: Mapping[str, str], user: str, folder: Path) -> World:
    def connect(max_requests: int | None) -> SlurmBackend:
        runner = SubprocessRunner(environ)
        return CommandLine(runner, user=user, max_requests=max_requests)

    script = folder / "lease"
    script.write_text("#!/bin/sh\nexec sleep 600\n", encoding="ascii")
    script.chmod(0o755)
    return World(connect, user, str(script), lambda: f"ft-{uuid4()}")
