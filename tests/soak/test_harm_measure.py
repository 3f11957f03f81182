"""The measure of harm, on records whose answer is known, and on real harm."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from tests.cluster.settings import Variant
from tests.e2e.others import live_through
from tests.e2e.record import JobSeen, Run
from tests.e2e.workload import Submission
from tests.soak.harm import Delay, Spread, delays, met_request, spread

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cluster.cluster import Cluster


def other(name: str, at_s: float, start_s: float | None, node: str = "n1") -> JobSeen:
    return JobSeen(f"other-{name}", frozenset({node}), at_s, start_s, None)


def lease(node: str, start_s: float, end_s: float | None) -> JobSeen:
    return JobSeen("freetrain-x", frozenset({node}), start_s, start_s, end_s)


def test_a_delay_is_counted_from_the_beginning_of_each_run() -> None:
    without = Run(100.0, 200.0, (other("0", 100, 101), other("1", 110, 111)))
    run = Run(5_000.0, 5_100.0, (other("1", 5_010, 5_010.5), other("0", 5_000, 5_004)))

    assert delays(without, run) == (
        Delay("other-0", 3.0, met_lease=False, kept_s=4.0),
        Delay("other-1", -0.5, met_lease=False, kept_s=0.5),
    )


@pytest.mark.parametrize(
    ("held", "met"),
    [
        (lease("n1", 0, 12), True),  # evicted while the job waited
        (lease("n1", 0, None), True),
        (lease("n2", 0, 12), False),  # on a node that the job did not get
        (lease("n1", 0, 5), False),  # over long before
        (lease("n1", 20, 30), False),  # came after
        (lease("n1", 0, 9), True),  # touches, within Slurm's whole seconds
    ],
)
def test_a_job_met_a_lease_that_held_its_node_while_it_waited(
    held: JobSeen,
    met: bool,  # noqa: FBT001 -- a parameter of the test
) -> None:
    job = other("0", 10, 14)

    (delay,) = delays(Run(0, 99, (job,)), Run(0, 99, (job,), (held,)))

    assert delay == Delay("other-0", 0.0, met_lease=met, kept_s=4.0)


@pytest.mark.parametrize(
    ("request_", "met"),
    [
        (JobSeen("freetrain-x", frozenset(), 5, None, None), True),  # waits for ever
        (JobSeen("freetrain-x", frozenset(), 5, None, 12), True),  # withdrawn meanwhile
        (JobSeen("freetrain-x", frozenset(), 5, None, 9), False),  # withdrawn before
        (JobSeen("freetrain-x", frozenset({"n1"}), 5, 9, 30), False),  # held a node
        (JobSeen("freetrain-x", frozenset(), 15, None, None), False),  # came after
    ],
)
def test_a_job_met_a_request_that_waited_while_it_did(
    request_: JobSeen,
    met: bool,  # noqa: FBT001 -- a parameter of the test
) -> None:
    assert met_request(other("0", 10, 14), (request_,)) is met


@pytest.mark.parametrize(
    ("before", "kept_s"),
    [
        (JobSeen("other-1", frozenset({"n1", "n2"}), 0, 0, 13), 1.0),  # held its node
        (JobSeen("other-1", frozenset({"n2"}), 0, 0, 13), 4.0),  # held another
        (JobSeen("other-1", frozenset({"n1"}), 0, 0, 5), 4.0),  # was long over
        (JobSeen("other-1", frozenset({"n1"}), 11, 20, 30), 4.0),  # came after it
    ],
)
def test_time_behind_others_on_its_nodes_is_nothing_that_leases_kept_a_job(
    before: JobSeen, kept_s: float
) -> None:
    job = other("0", 10, 14)

    run = Run(0, 99, (job, before))

    assert delays(run, run)[0].kept_s == kept_s


def test_runs_of_different_jobs_are_not_compared() -> None:
    with pytest.raises(ValueError, match="other-1"):
        delays(Run(0, 9, (other("0", 1, 2),)), Run(0, 9, (other("1", 1, 2),)))


def test_a_job_that_never_started_is_no_delay_of_none() -> None:
    with pytest.raises(ValueError, match="never started"):
        delays(Run(0, 9, (other("0", 1, None),)), Run(0, 9, (other("0", 1, 2),)))


def test_a_spread_tells_the_middle_the_high_and_the_most() -> None:
    assert spread([float(n) for n in range(100, 0, -1)]) == Spread(100, 50, 95, 100)
    assert spread([]).count == 0
    assert math.isnan(spread([]).most_s)


@pytest.mark.slurm
def test_leases_that_sit_in_the_way_are_seen_as_harm(
    cluster_of: Callable[..., Cluster], tmp_path: Path
) -> None:
    """In one partition, without preemption, and nobody gives them up."""
    cluster = cluster_of(Variant.SHARED)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)  # somebody else's jobs write their times below it
    workload = (Submission(2.0, 8, 1.0, 1),)
    runs = []
    for name in ("without", "with"):
        (tmp_path / name).mkdir()
        if name == "with":
            hold = ("sbatch", "--job-name=freetrain-bad", "--nodes=3", "--time=1")
            cluster.run(*hold, "--output=/dev/null", "--wrap=sleep 12")
        runs.append(live_through(cluster, workload, tmp_path / name))
        cluster.clear()

    (delay,) = delays(*runs)

    assert delay.met_lease
    assert delay.delay_s > 6
