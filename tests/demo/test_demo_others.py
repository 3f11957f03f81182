"""The demo's other people: a workload that is the same for the same seed."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from freetrain.demo.fake_slurm.cluster import NODES
from freetrain.demo.live import MOST_BUSY, as_jobs, others_jobs
from freetrain.demo.train import PIXELS, draw

seeds = st.integers(0, 2**32)
lengths = st.floats(10, 60)


@given(lengths, seeds)
def test_no_node_is_held_by_two_of_them_at_a_time(seconds: float, seed: int) -> None:
    found = others_jobs(seconds=seconds, seed=seed)

    for node in NODES:
        mine = [job for job in found if node in job.nodes]
        assert all(a.end_s < b.start_s for a, b in pairwise(mine))


@given(lengths, seeds)
def test_they_leave_nodes_to_train_on(seconds: float, seed: int) -> None:
    found = others_jobs(seconds=seconds, seed=seed)

    for moment in (stay.start_s for stay in found):
        held = [s.nodes for s in found if s.start_s <= moment < s.end_s]
        assert len([node for nodes in held for node in nodes]) <= MOST_BUSY


@given(seeds)
def test_holes_open_and_close_with_notice_and_without(seed: int) -> None:
    found = others_jobs(seconds=45, seed=seed)

    later = [stay for stay in found if stay.start_s > 0]
    assert {stay.submit_s < stay.start_s for stay in later} == {True, False}
    assert sum(stay.start_s == 0 for stay in found) == 4
    assert max(stay.start_s for stay in found) < 45


@given(lengths, seeds)
def test_the_same_seed_gives_the_same_jobs(seconds: float, seed: int) -> None:
    once, again = (others_jobs(seconds=seconds, seed=seed) for _ in range(2))

    assert as_jobs(once, begin_s=1e9) == as_jobs(again, begin_s=1e9)


def test_jobs_come_when_their_stays_do() -> None:
    (first, *_) = others_jobs(seconds=45, seed=1)

    job = as_jobs((first,), begin_s=1e9)[0]

    assert (job.submit_s, job.due_s) == (1e9 + first.submit_s, 1e9 + first.start_s)
    assert job.wanted == list(first.nodes)
    assert job.user == "others"
    assert not job.script


def test_digits_are_the_same_for_the_same_seed_and_all_ten_are_there() -> None:
    images, labels = draw(500, seed=3)
    again, _ = draw(500, seed=3)
    others, _ = draw(500, seed=4)

    assert images.shape == (500, PIXELS)
    assert (images == again).all()
    assert not (images == others).all()
    assert set(labels) == set(range(10))
