"""When ranks agree, and on what; and how seldom the stop file is looked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from freetrain.elastic.contract import Stop, StopFile
from freetrain.elastic.files import Clock
from freetrain.elastic.fragment import Agreement
from freetrain.elastic.world import LoneWorld
from tests.elastic.threads import ThreadWorld, on_every_rank

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.elastic import World


class HandClock:
    """A clock that goes on by hand."""

    def __init__(self) -> None:
        self.now_s = 50.0

    def clock(self) -> Clock:
        return Clock(unix_s=lambda: self.now_s, elapsed_s=lambda: self.now_s)


def steps_between_agreements(world: World, step_s: float, agreements: int) -> list[int]:
    hand = HandClock()
    agreement = Agreement(world, hand.clock())
    counts: list[int] = []
    steps = 0
    while len(counts) < agreements:
        hand.now_s += step_s
        steps += 1
        if agreement.is_due():
            agreement.agree(Stop.NO, commit=False)
            counts.append(steps)
            steps = 0
    return counts


@pytest.mark.parametrize(
    ("step_s", "steps"),
    [(10.0, 1), (0.05, 1), (0.024, 2), (0.0099, 5), (0.001, 49), (1e-6, 64), (0.0, 64)],
)
def test_ranks_agree_every_20th_of_a_second_and_every_64_steps_at_least(
    step_s: float, steps: int
) -> None:
    assert steps_between_agreements(LoneWorld(), step_s, 3)[1:] == pytest.approx(
        [steps, steps], abs=1
    )


def test_the_slowest_rank_sets_the_pace_for_all_of_them() -> None:
    def work(world: ThreadWorld) -> list[int]:
        return steps_between_agreements(world, 0.0099 if world.rank == 1 else 1e-6, 3)

    assert on_every_rank(3, work) == [[1, 5, 5]] * 3


def test_all_ranks_do_what_one_of_them_wants() -> None:
    def work(world: ThreadWorld) -> tuple[Stop, bool]:
        agreement = Agreement(world, HandClock().clock())
        wanted = (Stop.NO, Stop.RESCALE, Stop.FOR_GOOD)[world.rank]
        return agreement.agree(wanted, commit=world.rank == 0)

    assert on_every_rank(3, work) == [(Stop.FOR_GOOD, True)] * 3


def test_the_control_file_is_looked_for_no_more_often_than_asked(
    tmp_path: Path,
) -> None:
    hand = HandClock()
    file = StopFile(tmp_path / "stop", every_s=0.1, clock=hand.clock())
    assert not file.is_there()
    (tmp_path / "stop").touch()

    hand.now_s += 0.05
    assert not file.is_there()
    hand.now_s += 0.06
    assert file.is_there()


def test_a_control_folder_that_is_missing_asks_for_nothing(tmp_path: Path) -> None:
    file = StopFile(tmp_path / "none" / "stop", every_s=0, clock=HandClock().clock())

    assert not file.is_there()
