"""The worlds that contracts of Slurm back ends are checked on."""

import os
import pwd
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from subprocess import CalledProcessError
from types import ModuleType
from uuid import uuid4

import pytest

from freetrain.demo.fake_slurm.processes import FakeSlurmFolder, at_work
from freetrain.demo.fake_slurm.processes import install as install_standin
from slurm.backend import CommandLine, SlurmBackend
from slurm.batch import LeaseRequest
from slurm.pyslurm import Pyslurm, find_pyslurm
from slurm.records import JobRecord
from slurm.runner import SubprocessRunner
from tests.cluster import accounting
from tests.cluster.cluster import Cluster
from tests.cluster.settings import NODES, Variant
from tests.cluster.waiting import wait_for
from tests.fakes.slurm.installing import USER as FAKE_USER
from tests.fakes.slurm.installing import FakeSlurm, install

HELD_BACK = "/freetrain-no-such-node-feature"


@dataclass(frozen=True, slots=True)
class World:
    """A real or fake Slurm with eight nodes that are all idle.

    Attributes:
        connect: Makes a back end, with a cap on its requests or None.
        user: Our user name there.
        script: A batch script that runs for long.
        promote: Gives a user an administrator's level, and returns the user's name;
            None where there is no accounting.
    """

    connect: Callable[[int | None], SlurmBackend]
    user: str
    script: str
    promote: Callable[[str], str] | None = None

    @staticmethod
    def new_name() -> str:
        """Return a job name that no other test has."""
        return f"ft-{uuid4()}"

    def lease(self, name: str, *, tasks: int = 1, comment: str = "") -> LeaseRequest:
        """A request for *tasks* leases."""
        return LeaseRequest(
            name=name,
            comment=comment,
            partition="freetrain",
            limit_min=5,
            nice=10_000,
            script=self.script,
            tasks=tasks,
        )

    def wait_for_states(
        self, backend: SlurmBackend, name: str, expected: Sequence[str]
    ) -> tuple[JobRecord, ...]:
        """Return the jobs of *name* by task, once their states are as *expected*."""

        def look() -> tuple[JobRecord, ...]:
            jobs = sorted(backend.find_by_name(name), key=_task)
            return (
                tuple(jobs) if [_state(job) for job in jobs] == list(expected) else ()
            )

        return wait_for(f"{name} to be {expected}", look)


def _task(job: JobRecord) -> int:
    return job.array_task_id or 0


def _state(job: JobRecord) -> str:
    return "+".join(sorted(job.states))


USER = pwd.getpwuid(os.getuid()).pw_name


@dataclass(frozen=True, slots=True)
class PyslurmWorld:
    """A real cluster, and the pyslurm that fits it."""

    cluster: Cluster
    module: ModuleType

    @property
    def programs(self) -> CommandLine:
        """The same cluster by Slurm's programs."""
        return CommandLine(SubprocessRunner(self.cluster.environ))

    def connect(self, max_requests: int | None) -> SlurmBackend:
        """Make a back end, with a cap on its requests or None."""
        runner = SubprocessRunner(self.cluster.environ)
        programs = CommandLine(runner, max_requests=max_requests)
        return Pyslurm(self.module, programs)


@pytest.fixture
def pyslurm_world(
    cluster_of: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> PyslurmWorld:
    """Skips, with the reason, where no pyslurm fits the cluster's Slurm."""
    cluster = cluster_of()
    # libslurm reads it when pyslurm is first imported, and never again
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    world = PyslurmWorld(cluster, os)
    module, reason = find_pyslurm(world.programs.release())
    if module is None:
        pytest.skip(reason)
    return PyslurmWorld(cluster, module)


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
    if request.param == "pyslurm":
        pyslurm: PyslurmWorld = request.getfixturevalue("pyslurm_world")
        yield World(pyslurm.connect, USER, _script(tmp_path))
        pyslurm.cluster.clear()
        return
    yield from _world_of(request, tmp_path)


@pytest.fixture(
    params=["fake", "stand-in", pytest.param("real", marks=pytest.mark.slurm)]
)
def racked_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Nodes n1 to n4 are below the leaf switch rack1, n5 to n8 below rack2."""
    yield from _world_of(request, tmp_path, Variant.TREE)


ACCOUNT_LIMIT = 6
"""GrpTRES=node of the account above ours, where there are limits."""


@pytest.fixture(
    params=["fake", "stand-in", pytest.param("real", marks=pytest.mark.slurm)]
)
def limited_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Limits are enforced; there is one on the account above ours."""
    if request.param == "fake":
        fake: FakeSlurm = request.getfixturevalue("fake_slurm")
        standin = fake.standin
    elif request.param == "stand-in":
        standin = request.getfixturevalue("standin")
    else:
        if accounting.why_not():
            pytest.skip(accounting.why_not())
        variants = (Variant.SHARED, Variant.LIMITS)
        cluster = request.getfixturevalue("cluster_of")(*variants)
        change = ("modify", "account", accounting.ABOVE, "set")
        accounting.sacctmgr(cluster.folder, *change, f"GrpTRES=node={ACCOUNT_LIMIT}")
        promote = partial(_promote, cluster.folder)
        yield replace(_world(cluster.environ, USER, tmp_path), promote=promote)
        _promote(cluster.folder, "None")
        accounting.sacctmgr(cluster.folder, *change, "GrpTRES=node=-1")
        return
    standin.limit(nodes=ACCOUNT_LIMIT, account=accounting.ABOVE)
    for world in _world_of(request, tmp_path):
        yield replace(world, promote=standin.promote)


def _promote(folder: Path, level: str) -> str:
    """Make the colleague a coordinator of our account, or of an administrator's level.

    No level is left from before.
    """
    user = accounting.COLLEAGUE
    is_coordinator = level == "Coordinator"
    set_level = "None" if is_coordinator else level
    accounting.sacctmgr(
        folder, "modify", "user", user, "set", f"AdminLevel={set_level}"
    )
    of = ("coordinator", f"account={accounting.ACCOUNT}", f"names={user}")
    with suppress(CalledProcessError):  # sacctmgr exits 1 where nothing changes
        accounting.sacctmgr(folder, "add" if is_coordinator else "delete", *of)
    return user


def _world_of(
    request: pytest.FixtureRequest, folder: Path, *variants: Variant
) -> Iterator[World]:
    racks = {"rack1": NODES[:4], "rack2": NODES[4:]} if variants else {}
    if request.param == "fake":
        fake: FakeSlurm = request.getfixturevalue("fake_slurm")
        fake.standin.wire(racks)
        yield _world(fake.environ, FAKE_USER, folder)
    elif request.param == "stand-in":
        standin: FakeSlurmFolder = request.getfixturevalue("standin")
        standin.wire(racks)
        path = f"{standin.path}{os.pathsep}{os.defpath}"
        yield _world({"PATH": path, "LC_ALL": "C", "TZ": "UTC"}, USER, folder)
    else:
        cluster = request.getfixturevalue("cluster_of")(*variants)
        yield _world(cluster.environ, USER, folder)
        cluster.clear()


def _world(environ: Mapping[str, str], user: str, folder: Path) -> World:
    def connect(max_requests: int | None) -> SlurmBackend:
        runner = SubprocessRunner(environ)
        return CommandLine(runner, max_requests=max_requests)

    return World(connect, user, _script(folder))


def _script(folder: Path) -> str:
    script = folder / "lease"
    script.write_text("#!/bin/sh\nexec sleep 600\n", encoding="ascii")
    script.chmod(0o755)
    return str(script)
