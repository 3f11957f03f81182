"""The measures of GPU runs, by hand-computed values."""

from tests.e2e.others import JobSeen, Run
from tests.soak.gpus import asked_again, gpu_coverage, make_gpu_workload


def job(
    name: str, gpus: int, start_s: float, end_s: float, limit_s: float = 3_600.0
) -> JobSeen:
    nodes = frozenset({"n1"})
    return JobSeen(name, nodes, start_s, start_s, end_s, gpus=gpus, limit_s=limit_s)


def test_a_piece_is_as_long_as_so_many_gpus_are_free() -> None:
    run = Run(0.0, 1_000.0, (job("a", 1, 0, 400), job("b", 2, 600, 1_000)))
    found = gpu_coverage(run, {}, gpus={"n1": 2}, shortest_s=300.0)
    # One GPU or more is free until 600, two from 400 to 600: too short.
    assert (found.idle_s, found.trained_s) == (600.0, 0.0)


def test_what_trains_counts_for_the_longest_pieces_first() -> None:
    run = Run(0.0, 1_000.0, (job("a", 1, 500, 1_000),))
    spans = {"n1": [((100.0, 900.0), 1), ((200.0, 300.0), 1)]}
    found = gpu_coverage(run, spans, gpus={"n1": 2}, shortest_s=300.0)
    assert (found.idle_s, found.trained_s) == (1_500.0, 900.0)


def test_a_lease_for_a_piece_that_was_just_left_for_nobody_is_asked_again() -> None:
    leases = (job("l1", 1, 0, 100), job("l2", 1, 110, 500), job("l3", 1, 600, 900))
    (again,) = asked_again(Run(0.0, 1_000.0, (), leases))
    assert again.endswith("after one that left")
    over = (job("l1", 1, 0, 100, limit_s=120.0), *leases[1:])
    (again,) = asked_again(Run(0.0, 1_000.0, (), over))
    assert again.endswith("after one whose time was over")
    came = (job("a", 1, 100, 105),)
    assert not list(asked_again(Run(0.0, 1_000.0, came, leases)))


def test_the_workload_is_the_same_for_the_same_seed_and_has_all_sizes() -> None:
    jobs = make_gpu_workload(3, span_s=1_200.0)
    assert jobs == make_gpu_workload(3, span_s=1_200.0)
    asked = {job.options[0] for job in jobs}
    assert {"--gres=gpu:a100:1", "--gres=gpu:a100:2", "--gres=gpu:a100:4"} <= asked
