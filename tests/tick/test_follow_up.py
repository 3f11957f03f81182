"""Ticks that follow up a first one, against the fake Slurm."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from freetrain.broker.yielding import APART_S
from freetrain.config.site import LeaseMode, LeaseSettings
from freetrain.state.tables import Counter, TrainerState, counters
from freetrain.tick.tick import tick_and_follow_up
from slurm.errors import SlurmError
from tests.fakes.slurm.state import Act
from tests.tick.tick_worlds import TickWorld, theirs, tick_world

SOON_S = 2.0
"""No usual look comes so soon after the first tick."""

PROGRAMS = ("squeue", "scontrol", "sdiag", "sbatch", "scancel")

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from freetrain.tick.tick import TickReport


def follow(
    world: TickWorld, wait: Callable[[float], None], *, within_s: float = 20.0
) -> int:
    """Tick and follow up; return how many ticks that were."""
    done = tick_and_follow_up(
        world.site, world.environment, within_s=within_s, wait=wait
    )
    return len(list(done))


def test_new_leases_train_without_another_tick(world: TickWorld) -> None:
    world.submit("a", most=2)

    ticks = follow(world, lambda _: world.beat())

    assert ticks == 2
    assert world.newest().keys == set(world.running())


def test_agents_that_have_begun_do_not_wait_long_for_the_rest(world: TickWorld) -> None:
    world.submit("a", most=2)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        world.beat(world.running()[0])

    ticks = follow(world, wait, within_s=1000.0)

    assert ticks == 2
    assert len(world.nodes()) == 1
    assert len(waits) < 5


def test_without_a_heartbeat_there_is_no_second_tick(world: TickWorld) -> None:
    world.submit("a", most=2)
    waits: list[float] = []

    assert follow(world, waits.append, within_s=1000.0) == 1

    assert 1 < len(waits) <= 20
    assert world.generation() == 0


@pytest.mark.parametrize(("nodes", "within_s"), [(0, 20.0), (2, 0.0)])
def test_it_waits_only_where_leases_were_asked_for_and_there_is_time(
    world: TickWorld, nodes: int, within_s: float
) -> None:
    if nodes:
        world.submit("a", most=nodes)
    waits: list[float] = []

    assert follow(world, waits.append, within_s=within_s) == 1

    assert not waits


class Passing:
    """A clock that stands but for waits and commands, and the looks it has seen."""

    def __init__(self, world: TickWorld) -> None:
        self.world = world
        self.environment = replace(world.environment, clock=lambda: world.now_s)
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
        """Follow up; return when it looked before cycles, seconds after it began."""
        began_s, site = self.world.now_s, self.world.site
        self.reports = list(
            tick_and_follow_up(
                site, self.environment, within_s=within_s, wait=self.wait
            )
        )
        return [look_s - began_s for look_s in self.looks_s]


def leased(quick_folder: Path, mode: LeaseMode) -> Passing:
    """Return a world in which a lease trains."""
    lease = LeaseSettings(partition="freetrain", mode=mode)
    world = tick_world(quick_folder, lease=lease)
    world.submit("a", most=1)
    world.tick()
    world.beat()
    world.tick()
    return Passing(world)


def test_leases_that_make_room_are_looked_at_again_but_not_all_the_time(
    quick_folder: Path,
) -> None:
    """The stand-in's backfill looks every second."""
    looks_s = leased(quick_folder, LeaseMode.YIELD).looks_after(100.0)

    assert 4 <= len(looks_s) <= 1 + 100 / APART_S
    assert all(b - a >= APART_S for a, b in pairwise(looks_s))


def test_no_tick_follows_where_slurm_preempts(quick_folder: Path) -> None:
    assert not leased(quick_folder, LeaseMode.PREEMPT).looks_after(100.0)


def test_no_tick_follows_later_than_was_asked_for(quick_folder: Path) -> None:
    looks_s = leased(quick_folder, LeaseMode.YIELD).looks_after(20.0)

    assert looks_s
    assert max(looks_s) <= 20.0


def test_no_tick_follows_for_others_where_there_are_no_leases(
    quick_folder: Path,
) -> None:
    passing = leased(quick_folder, LeaseMode.YIELD)
    passing.world.set_state("a", TrainerState.CANCELLED)
    passing.world.tick()
    passing.world.now_s += 60.0
    passing.world.tick()

    assert not passing.world.running()
    assert not passing.looks_after(100.0)


def test_a_slow_tick_is_not_followed_up_after_the_end(quick_folder: Path) -> None:
    passing = leased(quick_folder, LeaseMode.YIELD)  # a tick takes eight seconds there

    assert not passing.looks_after(8.0)


def test_looks_rest_after_a_slow_one_and_are_not_late_for_their_cycle(
    quick_folder: Path,
) -> None:
    passing = leased(quick_folder, LeaseMode.YIELD)

    looks_s = passing.looks_after(100.0)

    assert all(b - a >= APART_S + 8.0 for a, b in pairwise(looks_s))


def no_answer(world: TickWorld) -> None:
    """Let Slurm not answer the next question about jobs."""
    world.slurm.script("squeue", Act.HANG)


def test_a_look_that_slurm_does_not_answer_is_followed_by_the_next(
    quick_folder: Path,
) -> None:
    passing = leased(quick_folder, LeaseMode.YIELD)
    passing.before_look = {0: no_answer}
    looks_s = passing.looks_after(60.0)

    assert len(looks_s) >= 3
    assert len(passing.reports) == len(looks_s)  # the first tick, and all but one


def test_the_last_look_that_fails_is_told(quick_folder: Path) -> None:
    passing = leased(quick_folder, LeaseMode.YIELD)
    passing.before_look = {0: no_answer}

    with pytest.raises(SlurmError):
        passing.looks_after(12.0)


def quick(quick_folder: Path) -> Passing:
    """Return a world in which a lease trains, and a tick takes half a second."""
    passing = leased(quick_folder, LeaseMode.YIELD)
    passing.world.command_s = 0.0625
    return passing


def glances(passing: Passing) -> int:
    """Return how many of the looks that it waited for were no ticks."""
    return 1 + len(passing.looks_s) - len(passing.reports)


def they_come(world: TickWorld) -> None:
    """Let somebody come who needs the leased node, too."""
    world.slurm.standin.add([theirs(world) for _ in range(8)])


def test_between_quick_looks_there_is_a_last_one_that_asks_for_jobs_alone(
    quick_folder: Path,
) -> None:
    passing = quick(quick_folder)
    before = len(passing.world.slurm.calls("sdiag"))

    looks_s = passing.looks_after(60.0)

    ticks = (len(passing.world.slurm.calls("sdiag")) - before) / 2
    assert ticks == len(passing.reports)
    assert 5 <= glances(passing) <= 1 + 60 / APART_S
    assert 5 <= ticks <= 1 + 60 / APART_S
    assert len(looks_s) <= 2 * (1 + 60 / APART_S)


def test_jobs_that_come_after_a_look_are_made_room_for_at_the_last_one(
    quick_folder: Path,
) -> None:
    passing = quick(quick_folder)
    passing.before_look = {0: they_come}

    passing.looks_after(SOON_S)

    leases = [job for job in passing.world.live() if job.user != "bob"]
    assert [job.signals for job in leases] == [["TERM"]]
    assert len(passing.reports) == 2


def test_a_last_look_that_finds_no_new_job_is_all(quick_folder: Path) -> None:
    passing = quick(quick_folder)
    passing.world.slurm.standin.add([theirs(passing.world, limit_s=1e6, run_s=1e6)])

    passing.looks_after(SOON_S)

    assert glances(passing) == 1
    assert len(passing.reports) == 1


def test_slow_looks_are_not_followed_by_last_ones(quick_folder: Path) -> None:
    passing = leased(quick_folder, LeaseMode.YIELD)

    passing.looks_after(60.0)

    assert glances(passing) == 0


def test_a_last_look_that_slurm_does_not_answer_is_followed_by_a_tick(
    quick_folder: Path,
) -> None:
    passing = quick(quick_folder)
    passing.before_look = {0: no_answer}

    passing.looks_after(20.0)

    assert len(passing.reports) >= 3


def test_a_look_that_failed_is_not_told_where_a_last_one_found_nothing_new(
    quick_folder: Path,
) -> None:
    passing = quick(quick_folder)
    passing.before_look = {1: no_answer}

    passing.looks_after(6.0)

    assert len(passing.looks_s) == 3
    assert (len(passing.reports), glances(passing)) == (1, 3), "one of them no answer"


def test_questions_of_last_looks_are_counted(quick_folder: Path) -> None:
    passing = quick(quick_folder)
    passing.looks_after(60.0)

    asked = sum(map(len, map(passing.world.slurm.calls, PROGRAMS)))
    with passing.world.reading() as state:
        assert counters(state)[Counter.REQUESTS] == asked
