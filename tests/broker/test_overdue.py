"""Leases that Slurm should have preempted: after its time, once, and not for ever."""

from freetrain.broker.yielding import (
    NO_CLAIMS,
    AwaitedPreemption,
    Claims,
    overdue_leases,
)
from tests.broker.broker_records import NOW_S

PATIENCE_S = 70.0


def at(
    after_s: float,
    awaited: dict[int, AwaitedPreemption],
    claimed: dict[str, int],
    waiting: tuple[int, ...] = (5,),
) -> tuple[dict[str, int], dict[int, AwaitedPreemption]]:
    now_s = NOW_S + after_s
    patience_s = dict.fromkeys(claimed.values(), PATIENCE_S)
    return overdue_leases(claimed, awaited, waiting, patience_s=patience_s, now_s=now_s)


def test_slurm_has_its_time() -> None:
    given, seen = at(0.0, {}, {"n1": 5})
    assert (given, seen) == ({}, {5: AwaitedPreemption(NOW_S)})
    given, seen = at(69.0, seen, {"n1": 5, "n2": 5})
    assert given == {}
    given, seen = at(70.0, seen, {"n1": 5, "n2": 5})
    assert given == {"n1": 5, "n2": 5}


def test_slurm_has_longer_where_the_leases_of_one_job_have_longer() -> None:
    _, seen = at(0.0, {}, {"n1": 5, "n2": 6})
    given, _ = overdue_leases(
        {"n1": 5, "n2": 6},
        seen,
        (5, 6),
        patience_s={5: 30.0, 6: 90.0},
        now_s=NOW_S + 60.0,
    )

    assert given == {"n1": 5}


def test_a_job_that_could_not_start_for_a_moment_waits_anew() -> None:
    _, seen = at(0.0, {}, {"n1": 5})
    _, seen = at(60.0, seen, {})
    given, _ = at(75.0, seen, {"n1": 5})
    assert given == {}


def test_leases_are_given_once_for_a_job_that_does_not_start_then() -> None:
    _, seen = at(0.0, {}, {"n1": 5})
    given, seen = at(70.0, seen, {"n1": 5})
    assert given
    _, seen = at(100.0, seen, {})  # they are gone, and new ones come
    for after_s in (140.0, 500.0, 5_000.0):
        given, seen = at(after_s, seen, {"n1": 5})
        assert given == {}
    assert 5 in seen
    assert at(5_100.0, seen, {}, waiting=())[1] == {}


def test_a_clock_that_was_set_back_begins_anew() -> None:
    _, seen = at(1_000.0, {}, {"n1": 5})
    assert at(0.0, seen, {"n1": 5}) == ({}, {5: AwaitedPreemption(NOW_S)})


def test_of_a_node_of_which_a_job_needs_a_part_the_other_leases_stay() -> None:
    found = Claims({"n1": 5, "n2": 6}, {}, spared={"n1": frozenset({12})})
    claims = NO_CLAIMS.with_overdue({"n1": 5}, found)
    assert claims.takes("n1", 11)
    assert not claims.takes("n1", 12)
    assert not claims.takes("n2", 21)
