"""The faults of a seed: repeatable, and of every kind."""

from itertools import islice
from pathlib import Path
from random import Random

import pytest

from tests.soak.storm import Strike, Target, WatchedStage, is_helper, is_tick, weather

COUNT = 1_000


def test_a_seed_gives_the_same_faults_of_every_kind() -> None:
    first, again, other = (
        list(islice(weather(Random(seed)), COUNT))  # noqa: S311
        for seed in (1, 1, 2)
    )

    assert first == again != other
    assert {fault.target for fault in first} == set(Target)
    assert {fault.strike for fault in first} == set(Strike)
    assert sum(fault.strike is Strike.CALL for fault in first) > COUNT / 8
    assert all(fault.frozen_s > 0.0 for fault in first if fault.strike is Strike.FREEZE)


@pytest.mark.parametrize(
    ("argv", "helper", "tick"),
    [
        (["/usr/bin/srun", "--overlap", "sleep"], True, False),
        (["/x/python", "-P", "-m", "freetrain.launch.starter", "f"], True, False),
        (["/x/python", "-m", "freetrain", "tick", "--follow-up"], False, True),
        (["/x/python", "-m", "freetrain", "status"], False, False),
        (["sleep", "7200"], False, False),
        ([], False, False),
    ],
)
def test_helpers_and_ticks_are_known_by_their_words(
    argv: list[str], *, helper: bool, tick: bool
) -> None:
    assert (is_helper(argv), is_tick(argv)) == (helper, tick)


def test_a_lease_that_two_good_ticks_do_not_know_is_a_stranger(tmp_path: Path) -> None:
    stage = WatchedStage(None, tmp_path)  # type: ignore[arg-type]  # not asked
    for jobs, known in (
        ({"1", "2"}, {"1"}),
        ({"1", "2"}, {"1", "2"}),
        ({"1", "2"}, {"1"}),
        ({"1", "2", "3"}, {"1", "3"}),
    ):
        stage.compare(jobs, known)

    assert [stranger.split(",")[0] for stranger in stage.strangers] == ["2"]
