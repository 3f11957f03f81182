"""Harm, coverage, fairness and pauses, on records of known answer and on real harm."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from freetrain.broker.lease import LeaseKey
from freetrain.elastic.files import RunDir
from freetrain.state.files import (
    EndingKind,
    TrainerDir,
    create_assigned,
    create_ending,
)
from tests.cluster.cluster import Cluster
from tests.cluster.settings import Variant
from tests.e2e.others import JobSeen, Run, Submission, live_through
from tests.soak.measures import (
    Coverage,
    Delay,
    Direction,
    GivenLease,
    Spread,
    coverage,
    delays,
    fairness,
    holes,
    made_room,
    met_request,
    pauses,
    read_worked,
    spread,
    trained,
)
from tests.state.endings import a_lease, an_assignment, an_ending

# Harm


def other(name: str, at_s: float, start_s: float | None) -> JobSeen:
    return JobSeen(f"other-{name}", frozenset({"n1"}), at_s, start_s, None)


def lease(node: str, start_s: float, end_s: float | None) -> JobSeen:
    return JobSeen("freetrain-x", frozenset({node}), start_s, start_s, end_s)


JOB = other("0", 10, 14)


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
        pytest.param(lease("n1", 0, 12), True, id="evicted while the job waited"),
        pytest.param(lease("n1", 0, None), True, id="still there"),
        pytest.param(lease("n2", 0, 12), False, id="on another node"),
        pytest.param(lease("n1", 0, 5), False, id="over long before"),
        pytest.param(lease("n1", 20, 30), False, id="came after"),
        pytest.param(lease("n1", 0, 9), True, id="touches, in whole seconds"),
    ],
)
def test_a_job_met_a_lease_that_held_its_node_while_it_waited(
    held: JobSeen,
    met: bool,  # noqa: FBT001 -- a parameter of the test
) -> None:
    (delay,) = delays(Run(0, 99, (JOB,)), Run(0, 99, (JOB,), (held,)))

    assert delay == Delay("other-0", 0.0, met_lease=met, kept_s=4.0)


@pytest.mark.parametrize(
    ("nodes", "times_s", "met"),
    [
        pytest.param((), (5, None, None), True, id="waits for ever"),
        pytest.param((), (5, None, 12), True, id="withdrawn meanwhile"),
        pytest.param((), (5, None, 9), False, id="withdrawn before"),
        pytest.param(("n1",), (5, 9, 30), False, id="held a node"),
        pytest.param((), (15, None, None), False, id="came after"),
    ],
)
def test_a_job_met_a_request_that_waited_while_it_did(
    nodes: tuple[str, ...],
    times_s: tuple[float, float | None, float | None],
    met: bool,  # noqa: FBT001 -- a parameter of the test
) -> None:
    assert met_request(JOB, (JobSeen("lease", frozenset(nodes), *times_s),)) is met


@pytest.mark.parametrize(
    ("nodes", "times_s", "kept_s"),
    [
        pytest.param(("n1", "n2"), (0, 0, 13), 1.0, id="held its node"),
        pytest.param(("n2",), (0, 0, 13), 4.0, id="held another"),
        pytest.param(("n1",), (0, 0, 5), 4.0, id="was long over"),
        pytest.param(("n1",), (11, 20, 30), 4.0, id="came after it"),
    ],
)
def test_leases_do_not_keep_a_job_while_others_hold_its_nodes(
    nodes: tuple[str, ...], times_s: tuple[float, float, float], kept_s: float
) -> None:
    run = Run(0, 99, (JOB, JobSeen("other-1", frozenset(nodes), *times_s)))

    assert delays(run, run)[0].kept_s == kept_s


def test_runs_of_different_jobs_or_with_jobs_that_never_started_are_refused() -> None:
    run = Run(0, 9, (other("0", 1, 2),))

    with pytest.raises(ValueError, match="other-1"):
        delays(run, Run(0, 9, (other("1", 1, 2),)))
    with pytest.raises(ValueError, match="never started"):
        delays(Run(0, 9, (other("0", 1, None),)), run)


def test_a_spread_has_the_median_the_95_percent_and_the_most() -> None:
    assert spread([float(n) for n in range(100, 0, -1)]) == Spread(100, 50, 95, 100)
    assert spread([]).jobs == 0
    assert math.isnan(spread([]).most_s)


@pytest.mark.slurm
def test_leases_that_never_yield_are_seen_as_harm(
    cluster_of: Callable[..., Cluster], tmp_path: Path
) -> None:
    """In one partition, without preemption, and without a tick."""
    cluster = cluster_of(Variant.SHARED)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)  # jobs of other users write their times below it
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


# Coverage


BUSY = JobSeen("other-0", frozenset({"n1"}), 90.0, 100.0, 200.0)


def test_time_without_jobs_of_others_is_a_hole_cut_off_at_both_ends() -> None:
    assert holes((BUSY,), "n1", within=(50, 500)) == [(50, 100), (200, 500)]
    assert holes((BUSY,), "n2", within=(50, 500)) == [(50, 500)]
    assert holes((BUSY,), "n1", within=(120, 180)) == []


def test_coverage_counts_training_within_long_holes_only() -> None:
    run = Run(50.0, 500.0, (BUSY,))
    spans = {"n1": [(50.0, 120.0), (300.0, 400.0), (390.0, 900.0)], "n2": [(0.0, 60.0)]}

    found = coverage(run, spans, nodes=("n1", "n2"), shortest_s=300)

    assert found == Coverage(idle_s=300.0 + 450.0, trained_s=200.0 + 10.0)
    assert found.share == pytest.approx(210 / 750)
    never_idle = coverage(Run(120, 180, (BUSY,)), {}, nodes=("n1",), shortest_s=1)
    assert never_idle.share == 0


# Many users


def test_users_are_compared_by_what_they_held_within_the_time() -> None:
    held = [
        replace(lease("n1", 0, 120), user="ann"),
        replace(lease("n2", 150, None), user="ben"),
        replace(lease("n3", 0, 900), user="somebody else"),
    ]

    found = fairness(held, ("ann", "ben"), within=(100.0, 200.0))

    assert found.held_s == {"ann": 20.0, "ben": 50.0}
    assert found.jain == pytest.approx(4_900 / 5_800)
    assert found.furthest == pytest.approx(3 / 7)


def test_a_lease_made_room_where_a_job_that_waited_was_next_on_its_node() -> None:
    job = other("0", 10, 14)
    leases = (
        lease("n1", 0, 12),  # what the job waited for
        lease("n2", 0, 12),  # given up in vain
        lease("n3", 0, None),
    )
    given = [GivenLease("freetrain-x", f"n{k}", 0.0) for k in (1, 2, 3)]
    assert made_room(Run(0, 99, (job,), leases), given) == {given[0]}
    late = other("1", 40, 41)
    assert not made_room(Run(0, 99, (late,), leases), given), "it came after the end"
    again = Run(0, 99, (job,), (*leases, lease("n1", 12.5, 13)))
    assert not made_room(again, given), "a lease was first"


# Pauses


def assign(folder: TrainerDir, generation: int, nodes: Sequence[str]) -> None:
    members = (a_lease(LeaseKey("u", n), node, n) for n, node in enumerate(nodes))
    create_assigned(folder, an_assignment(generation, *members))


def end(folder: TrainerDir, generation: int, ended: EndingKind) -> None:
    asked = {"was_asked": True, "started_s": None, "ended_s": 0.0, "author": "u-0"}
    create_ending(folder, an_ending(generation, ended, **asked))


def report(run: RunDir, generation: int, at_s: Sequence[float], **more: object) -> None:
    """Write progress lines: the start at the first time, steps at the others."""
    lines: list[Mapping[str, object]] = [
        {"event": "start", "generation": generation, "step": 0, "t": at_s[0]},
        *({"generation": generation, "step": 1, "t": t} for t in at_s[1:]),
    ]
    with run.progress.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    if more:
        path = run.outcome(generation)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(more), encoding="utf-8")


def test_pauses_have_a_direction_and_parts(tmp_path: Path) -> None:
    folder, run = TrainerDir(tmp_path), RunDir(tmp_path / "run")
    folder.create()
    run.path.mkdir()
    for generation, nodes in enumerate((["n1"], ["n1", "n2"], [], ["n2"], ["n3"]), 1):
        assign(folder, generation, nodes)
    report(run, 1, [10.0, 10.5, 20.0], t=20.25)
    end(folder, 1, EndingKind.RESCALED)
    report(run, 2, [21.0, 21.5, 40.0], t=40.5)
    end(folder, 2, EndingKind.RESCALED)
    report(run, 4, [70.0, 71.0, 75.0])  # generation 3 had no nodes: that is no pause
    end(folder, 4, EndingKind.KILLED)
    report(run, 5, [80.0, 81.0])

    worked = read_worked(folder, run)
    grown, moved = pauses(folder, worked)

    assert (grown.generation, grown.direction) == (2, Direction.GROW)
    assert grown.was_asked
    assert grown.total_s == 1.5
    assert (grown.commit_s, grown.launch_s, grown.step_s) == (0.25, 0.75, 0.5)
    assert (moved.generation, moved.direction) == (5, Direction.MOVE)
    assert not moved.was_asked
    assert (moved.total_s, moved.commit_s, moved.launch_s) == (6.0, None, None)
    assert trained(worked) == {
        "n1": [(10.0, 20.0), (21.0, 40.0)],
        "n2": [(21.0, 40.0), (70.0, 75.0)],
        "n3": [(80.0, 81.0)],
    }
