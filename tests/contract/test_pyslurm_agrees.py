"""pyslurm and Slurm's programs tell the same of one real cluster."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from slurm.batch import LeaseRequest
from slurm.holes import find_holes
from slurm.records import JobRecord, JobState, Requirement
from tests.cluster.site import whole_look
from tests.cluster.waiting import wait_for
from tests.contract.conftest import PyslurmWorld

pytestmark = pytest.mark.slurm
LEASES = Requirement(partition="freetrain")


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "job"
    path.write_text('#!/bin/sh\necho "$0: $1 $2 ${PATH_OF_CALLER-none}"\nsleep 600\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def busy(pyslurm_world: PyslurmWorld, script: str) -> Iterator[PyslurmWorld]:
    """Six nodes taken, a job that waits for all eight, an array in the hole."""
    run = pyslurm_world.cluster.run
    options = ("--output=/dev/null", "--partition=main", "--exclusive")
    run("sbatch", *options, "--nodes=6", "--time=60", "--comment=c; 'd'", script)
    run("sbatch", *options, "--nodes=8", "--time=10", "--constraint=cpu", script)
    low = ("--output=/dev/null", "--partition=freetrain", "--exclusive", "--mem=0")
    run("sbatch", *low, "--array=0-4", "--time=5", "--nice=10000", script)
    run("sbatch", *low, "--hold", "--time=5", "--dependency=singleton", script)
    wait_for("a plan, and leases beside it", lambda: is_settled(pyslurm_world))
    yield pyslurm_world
    pyslurm_world.cluster.clear()


def is_settled(world: PyslurmWorld) -> bool:
    jobs = world.programs.snapshot().jobs
    tasks = [job for job in jobs if job.array_job_id and job.holds_nodes]
    return any(job.is_planned for job in jobs) and len(tasks) == 2


def comparable(job: JobRecord) -> JobRecord:
    """Return *job* without what the two tell in different ways."""
    told = replace(job, dependency="", start_s=None, end_s=None, reason="")
    return replace(told, least_cpus=0)  # pyslurm has CPUs per task alone


def test_nodes_jobs_and_partitions_are_the_same_records(busy: PyslurmWorld) -> None:
    by_programs = whole_look(busy.programs)
    by_pyslurm = whole_look(busy.connect(None))

    assert by_pyslurm.nodes == by_programs.nodes
    assert by_pyslurm.partitions == by_programs.partitions
    assert by_pyslurm.reservations == by_programs.reservations
    jobs = sorted(map(comparable, by_programs.jobs), key=lambda job: job.job_id)
    found = sorted(map(comparable, by_pyslurm.jobs), key=lambda job: job.job_id)
    assert found == jobs


def test_the_holes_are_the_same(busy: PyslurmWorld) -> None:
    looks = [whole_look(busy.programs), whole_look(busy.connect(None))]

    by_programs, by_pyslurm = (
        find_holes(look, LEASES, is_ours=lambda j: bool(j.array_job_id), margin_s=30)
        for look in looks
    )

    assert len(by_programs) == 2
    told = [(hole.node, hole.ends_by, hole.blocker) for hole in by_programs]
    assert [(h.node, h.ends_by, h.blocker) for h in by_pyslurm] == told


def test_waiting_tasks_are_listed_one_by_one_as_squeue_does(busy: PyslurmWorld) -> None:
    name = next(j.name for j in busy.programs.snapshot().jobs if j.array_job_id)

    by_programs = busy.programs.find_by_name(name)
    by_pyslurm = busy.connect(None).find_by_name(name)

    assert len(by_pyslurm) == len(by_programs)
    ids = sorted(job.display_id for job in by_programs)
    assert sorted(job.display_id for job in by_pyslurm) == ids


def test_a_lease_that_shares_its_node_is_submitted_by_pyslurm_itself(
    pyslurm_world: PyslurmWorld, script: str, tmp_path: Path
) -> None:
    backend = pyslurm_world.connect(None)
    output = tmp_path / "out"
    request = LeaseRequest(
        name="ft-shared",
        comment="c; $(touch pwned) 'd'",
        partition="freetrain",
        limit_min=5,
        nice=10_000,
        script=script,
        arguments=("a b", "$(touch pwned)"),
        output=str(output),
        exclusive=False,
        cpus=1,
        deadline_s=2_000_000_000.0,
    )

    submitted = backend.submit(request)

    assert backend.requests == 1
    (job,) = wait_for("it runs", lambda: running(pyslurm_world, "ft-shared"))
    assert (job.job_id, job.comment) == (submitted.job_id, request.comment)
    assert (job.nice, job.limit_s, job.cpu_count) == (10_000, 300, 1)
    said = wait_for("it speaks", lambda: content(output))
    assert "a b $(touch pwned) none" in said
    pyslurm_world.cluster.clear()


def running(world: PyslurmWorld, name: str) -> tuple[JobRecord, ...]:
    jobs = world.programs.find_by_name(name)
    return jobs if any(JobState.RUNNING in job.states for job in jobs) else ()


def content(path: Path) -> str:
    return path.read_text() if path.exists() else ""
