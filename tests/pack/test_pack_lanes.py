"""Turns and whole CPUs by share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.pack.cpu_controllers import cpu_slots, run_fractions, whole_cpus

members = st.dictionaries(
    st.sampled_from("abcdefgh"), st.floats(min_value=0.01, max_value=1), min_size=1
)
counts = st.integers(1, 6)


def running(found: dict[str, tuple[tuple[float, float], ...]], at: float) -> list[str]:
    return [n for n, own in found.items() if any(b <= at < e for b, e in own)]


@given(members, counts)
def test_parts_fill_the_cpus_as_far_as_members_can(
    shares: dict[str, float], cpus: int
) -> None:
    parts = run_fractions(shares, cpus)
    assert parts.keys() == shares.keys()
    assert all(0 < part <= 1 for part in parts.values())
    assert sum(parts.values()) == pytest.approx(min(cpus, len(shares)))


@given(members, counts)
def test_those_who_do_not_run_all_the_time_run_in_proportion(
    shares: dict[str, float], cpus: int
) -> None:
    parts = run_fractions(shares, cpus)
    rates = [parts[n] / shares[n] for n in shares if parts[n] < 1]
    assert rates == pytest.approx([rates[0]] * len(rates) if rates else [])


@given(members, counts, st.floats(min_value=0, max_value=0.999))
def test_no_more_run_at_once_than_there_are_cpus(
    shares: dict[str, float], cpus: int, at: float
) -> None:
    found = cpu_slots(shares, cpus)
    edges = {edge for own in found.values() for turn in own for edge in turn}
    if all(abs(at - edge) > 1e-6 for edge in edges):
        assert len(running(found, at)) <= cpus


@given(members, counts)
def test_turns_last_as_long_as_the_part_and_do_not_overlap(
    shares: dict[str, float], cpus: int
) -> None:
    parts, found = run_fractions(shares, cpus), cpu_slots(shares, cpus)
    for name, own in found.items():
        assert sum(end - begin for begin, end in own) == pytest.approx(parts[name])
        assert all(0 <= begin <= end <= 1 for begin, end in own)
        assert len(own) == 1 or own[0][1] <= own[1][0] + 1e-9


@given(members, st.lists(st.integers(0, 200), min_size=1, max_size=64, unique=True))
def test_everybody_has_a_cpu_and_only_given_ones(
    shares: dict[str, float], cpus: list[int]
) -> None:
    found = whole_cpus(shares, cpus)
    assert all(own and set(own) <= set(cpus) for own in found.values())
    assert {cpu for own in found.values() for cpu in own} == set(cpus)


def test_whole_cpus_go_by_share() -> None:
    found = whole_cpus({"a": 0.5, "b": 0.25, "c": 0.25}, range(8))
    assert found == {"a": (0, 1, 2, 3), "b": (4, 5), "c": (6, 7)}
