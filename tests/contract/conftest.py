"""The worlds that contracts are checked on."""

from __future__ import annotations

import os
import pwd
import time
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from freetrain.demo.fake_slurm.processes import FakeSlurmFolder, at_work
from freetrain.demo.fake_slurm.processes import install as install_standin
from slurm.backend import CommandLine
from slurm.runner import SubprocessRunner
from tests.cluster.settings import NODES, Variant
from tests.contract.pyslurm_worlds import PyslurmWorld, pyslurm_world
from tests.contract.slurm_worlds import World
from tests.fakes.slurm.installing import USER, FakeSlurm, install

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from slurm.backend import SlurmBackend

__all__ = ["pyslurm_world"]


@pytest.fixture
def fake_slurm(tmp_path: Path) -> FakeSlurm:
    folder = tmp_path / "fake-slurm"
    folder.mkdir()
    return install(folder)


@pytest.fixture
def standin(tmp_path: Path) -> Iterator[FakeSlurmFolder]:
    folder = tmp_path / "stand-in"
    folder.mkdir()
    now_s = time.time()  # noqa: TID251 - its programs go by the machine's clock
    with at_work(install_standin(folder, now_s=now_s)) as standin:
        yield standin


@pytest.fixture(
    params=[
        "fake",
        "stand-in",
        pytest.param("real", marks=pytest.mark.slurm),
        pytest.param("pyslurm", marks=pytest.mark.slurm),
    ]
)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "fake":
        fake: FakeSlurm = request.getfixturevalue("fake_slurm")
        yield _world(fake.environ, USER, tmp_path)
        return
    user = pwd.getpwuid(os.getuid()).pw_name
    if request.param == "stand-in":
        standin: FakeSlurmFolder = request.getfixturevalue("standin")
        path = f"{standin.path}{os.pathsep}{os.defpath}"
        yield _world({"PATH": path, "LC_ALL": "C", "TZ": "UTC"}, user, tmp_path)
        return
    if request.param == "pyslurm":
        pyslurm: PyslurmWorld = request.getfixturevalue("pyslurm_world")
        yield World(pyslurm.connect, user, _script(tmp_path), _new_name)
        pyslurm.cluster.clear()
        return
    cluster = request.getfixturevalue("cluster_of")()
    yield _world(cluster.environ, user, tmp_path)
    cluster.clear()


@pytest.fixture(
    params=["fake", "stand-in", pytest.param("real", marks=pytest.mark.slurm)]
)
def racked_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Nodes n1 to n4 are below the leaf switch rack1, n5 to n8 below rack2."""
    racks = {"rack1": NODES[:4], "rack2": NODES[4:]}
    user = pwd.getpwuid(os.getuid()).pw_name
    if request.param == "fake":
        fake: FakeSlurm = request.getfixturevalue("fake_slurm")
        fake.standin.wire(racks)
        yield _world(fake.environ, USER, tmp_path)
    elif request.param == "stand-in":
        standin: FakeSlurmFolder = request.getfixturevalue("standin")
        standin.wire(racks)
        yield _world(
            {"PATH": f"{standin.path}{os.pathsep}{os.defpath}"}, user, tmp_path
        )
    else:
        cluster = request.getfixturevalue("cluster_of")(Variant.TREE)
        yield _world(cluster.environ, user, tmp_path)


def _world(environ: Mapping[str, str], user: str, folder: Path) -> World:
    def connect(max_requests: int | None) -> SlurmBackend:
        runner = SubprocessRunner(environ)
        return CommandLine(runner, user=user, max_requests=max_requests)

    return World(connect, user, _script(folder), _new_name)


def _new_name() -> str:
    return f"ft-{uuid4()}"


def _script(folder: Path) -> str:
    script = folder / "lease"
    script.write_text("#!/bin/sh\nexec sleep 600\n", encoding="ascii")
    script.chmod(0o755)
    return str(script)
