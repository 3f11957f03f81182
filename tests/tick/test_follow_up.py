"""Ticks that follow up a first one, against the fake Slurm."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from freetrain.broker.yielding import APART_S
from freetrain.config.site import LeaseMode
from freetrain.errors import CannotWriteError
from freetrain.state.tables import TickCounter, TrainerState, counters
from freetrain.tick.tick import TickReport, tick_and_follow_up
from slurm.errors import SlurmError
from tests.fakes.slurm.state import Act
from tests.tick.tick_worlds import TickWorld, running, theirs

SOON_S = 2.0
"""No usual tick comes so soon after the first."""


# A second tick, once the agents of new leases answer.


def follow(
    world: TickWorld,
    beat: Callable[[TickWorld], object] = lambda _: None,
    *,
    within_s: float = 20.0,
) -> tuple[int, int]:
    """Tick and follow up, *beat* at each wait; return how many ticks and waits."""
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        beat(world)

    environment = replace(world.environment, sleep=wait)
    done = tick_and_follow_up(world.site, environment, within_s=within_s)
    return len(list(done)), len(waits)


def test_new_leases_train_without_another_tick(world: TickWorld) -> None:
    world.submit("a", most=2)
    assert follow(world, TickWorld.beat)[0] == 2
    assert world.newest().keys == set(world.running())


def test_agents_that_have_begun_do_not_wait_long_for_the_rest(world: TickWorld) -> None:
    world.submit("a", most=2)
    ticks, waits = follow(world, lambda w: w.beat(w.running()[0]), within_s=1000.0)
    assert (ticks, len(world.nodes())) == (2, 1)
    assert waits < 5


def test_without_a_heartbeat_there_is_no_second_tick(world: TickWorld) -> None:
    world.submit("a", most=2)
    ticks, waits = follow(world, within_s=1000.0)
    assert (ticks, world.generation()) == (1, 0)
    assert 1 < waits <= 20


@pytest.mark.parametrize(("trainers", "within_s"), [("", 20.0), ("a", 0.0)])
def test_it_waits_only_for_leases_and_within_time(
    world: TickWorld, trainers: str, within_s: float
) -> None:
    for name in trainers:
        world.submit(name)
    assert follow(world, within_s=within_s) == (1, 0)


# Ticks and polls before cycles of backfill; the fake Slurm's looks every second.


class Passing:
    """A clock that stands but for waits and commands, and when it waited for what."""

    def __init__(self, world: TickWorld) -> None:
        self.world = world
        self.looks_s: list[float] = []
        self.reports: list[TickReport] = []
        self.before_look: dict[int, Callable[[TickWorld], object]] = {}

    def wait(self, seconds: float) -> None:
        self.world.now_s += seconds
        self.world.beat()
        if len(self.looks_s) in self.before_look:
            self.before_look[len(self.looks_s)](self.world)
        self.looks_s.append(self.world.now_s)

    def looks_after(self, within_s: float) -> list[float]:
        """Follow up; return when it ticked or polled, seconds after it began."""
        world, began_s = self.world, self.world.now_s
        environment = replace(
            world.environment, clock=lambda: world.now_s, sleep=self.wait
        )
        done = tick_and_follow_up(world.site, environment, within_s=within_s)
        self.reports = list(done)
        return [look_s - began_s for look_s in self.looks_s]

    @property
    def polls(self) -> int:
        """How many of the looks that it waited for were no ticks."""
        return 1 + len(self.looks_s) - len(self.reports)


@pytest.fixture
def passing(world: TickWorld) -> Passing:
    """A world in which a lease trains and makes room; a tick takes eight seconds."""
    world.change("lease", mode=LeaseMode.YIELD)
    running(world, most=1)
    return Passing(world)


@pytest.fixture
def quick(passing: Passing) -> Passing:
    """The same, where a tick takes half a second."""
    passing.world.command_s = 0.05  # the comment for others is one command more
    return passing


def no_answer(world: TickWorld) -> None:
    """Let Slurm not answer the next question about jobs."""
    world.slurm.script("squeue", Act.HANG)


def no_report(world: TickWorld) -> None:
    """Let no status report be written."""
    page = world.folder.status_report
    page.unlink(missing_ok=True)
    (page / "x").mkdir(parents=True)


def reports_again(world: TickWorld) -> None:
    """Let it be written again."""
    page = world.folder.status_report
    (page / "x").rmdir()
    page.rmdir()


def test_a_file_that_cannot_be_written_ends_no_looks(passing: Passing) -> None:
    passing.before_look = {1: no_report, 2: reports_again}
    looks_s = passing.looks_after(100.0)
    assert len(looks_s) >= 4
    assert len(passing.reports) == len(looks_s)  # one of them and the first tick

    passing.before_look = {len(looks_s): no_report}
    with pytest.raises(CannotWriteError, match=r"page\.json"):
        passing.looks_after(100.0)
    assert len(passing.looks_s) > len(looks_s) + 2


def test_a_second_tick_that_cannot_write_fails_at_the_end(world: TickWorld) -> None:
    world.submit("a", most=2)

    def begin(world: TickWorld) -> None:
        world.beat()
        if world.folder.status_report.is_file():
            no_report(world)

    with pytest.raises(CannotWriteError, match=r"page\.json"):
        follow(world, begin)
    assert world.newest().keys == set(world.running())


def test_a_first_tick_that_cannot_write_is_tried_again_within_time(
    passing: Passing,
) -> None:
    no_report(passing.world)
    with pytest.raises(CannotWriteError):
        passing.looks_after(0.0)
    assert passing.looks_s == []

    passing.before_look = {0: reports_again}
    looks_s = passing.looks_after(100.0)
    assert len(looks_s) >= 4
    assert passing.reports


def test_yielding_leases_get_ticks_apart_from_each_other(passing: Passing) -> None:
    looks_s = passing.looks_after(100.0)
    assert 4 <= len(looks_s) <= 1 + 100 / APART_S
    assert all(b - a >= APART_S + 8.0 for a, b in pairwise(looks_s)), "a tick takes 8 s"
    assert passing.polls == 0, "ticks are too slow for polls between them"


def test_no_tick_follows_where_slurm_preempts(passing: Passing) -> None:
    passing.world.change("lease", mode=LeaseMode.PREEMPT)
    assert not passing.looks_after(100.0)


def test_no_tick_follows_later_than_was_asked_for(passing: Passing) -> None:
    looks_s = passing.looks_after(20.0)
    assert looks_s
    assert max(looks_s) <= 20.0


def test_a_slow_tick_is_not_followed_up_after_the_end(passing: Passing) -> None:
    assert not passing.looks_after(8.0)


def test_without_leases_no_tick_follows_for_others(passing: Passing) -> None:
    world = passing.world
    world.set_state("a", TrainerState.CANCELLED)
    world.tick()
    world.now_s += 60.0
    world.tick()
    assert not world.running()
    assert not passing.looks_after(100.0)


def test_a_tick_without_answer_is_followed_by_the_next(passing: Passing) -> None:
    passing.before_look = {0: no_answer}
    looks_s = passing.looks_after(60.0)
    assert len(looks_s) >= 3
    assert len(passing.reports) == len(looks_s)  # the first tick, and all but one


def test_a_last_tick_that_fails_is_an_error(passing: Passing) -> None:
    passing.before_look = {0: no_answer}
    with pytest.raises(SlurmError):
        passing.looks_after(12.0)


def test_quick_ticks_have_polls_of_the_queue_between_them(quick: Passing) -> None:
    slurm = quick.world.slurm
    before = len(slurm.calls("sdiag"))

    looks_s = quick.looks_after(60.0)

    ticks = (len(slurm.calls("sdiag")) - before) / 2
    assert ticks == len(quick.reports)
    assert 5 <= quick.polls <= 1 + 60 / APART_S
    assert 5 <= ticks <= 1 + 60 / APART_S
    assert len(looks_s) <= 2 * (1 + 60 / APART_S)
    programs = ("squeue", "scontrol", "sdiag", "sbatch", "scancel")
    with quick.world.reading() as state:
        asked = counters(state)[TickCounter.REQUESTS]
    assert asked == sum(map(len, map(slurm.calls, programs)))


def test_a_poll_finds_jobs_that_came_after_the_tick(quick: Passing) -> None:
    quick.before_look = {
        0: lambda world: world.slurm.standin.add([theirs(world) for _ in range(8)])
    }
    quick.looks_after(SOON_S)
    leases = [job for job in quick.world.live() if job.user != "bob"]
    assert [job.signals for job in leases] == [["TERM"]]
    assert len(quick.reports) == 2


def test_a_poll_that_finds_no_new_job_is_all(quick: Passing) -> None:
    quick.world.slurm.standin.add([theirs(quick.world, limit_s=1e6, run_s=1e6)])
    quick.looks_after(SOON_S)
    assert (quick.polls, len(quick.reports)) == (1, 1)


def test_a_poll_without_answer_is_followed_by_a_tick(quick: Passing) -> None:
    quick.before_look = {0: no_answer}
    quick.looks_after(20.0)
    assert len(quick.reports) >= 3


def test_a_failed_poll_is_no_error_where_the_last_is_fine(quick: Passing) -> None:
    quick.before_look = {1: no_answer}
    quick.looks_after(6.0)
    assert len(quick.looks_s) == 3
    assert (len(quick.reports), quick.polls) == (1, 3), "one of them no answer"
