"""The one-step run, on a stand-in whose jobs really run, and on a real cluster."""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from freetrain.demo.fake_slurm.processes import FakeSlurmFolder, at_work, install
from freetrain.doctor.checks import examine, look_at_limits, observe
from freetrain.doctor.findings import Finding, Subject
from freetrain.doctor.one_step_run import run_one_step
from slurm.batch import LeaseRequest, SubmittedJob
from slurm.errors import SlurmRefusedError, SlurmUnavailableError
from slurm.records import JobKey
from tests.cli.commands import run
from tests.cluster.cluster import Cluster
from tests.doctor.subjects import a_subject, by_name


@pytest.fixture
def standin(tmp_path: Path) -> Iterator[FakeSlurmFolder]:
    folder = tmp_path / "stand-in"
    folder.mkdir()
    now_s = time.time()  # noqa: TID251 -- its programs go by the machine's clock
    with at_work(install(folder, now_s=now_s)) as standin:
        yield standin


def subject_on(
    standin: FakeSlurmFolder,
    tmp_path: Path,
    *,
    real_time: bool = True,
    may_run: bool = True,
) -> Subject:
    path = f"{standin.path}{os.pathsep}{os.defpath}"
    environ = {"PATH": path, "LC_ALL": "C", "TZ": "UTC"}
    # where tests run as root, Open MPI wants to be told that this is meant
    environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return a_subject(tmp_path, environ, real_time=real_time, may_run=may_run)


def is_clean(subject: Subject) -> bool:
    jobs = subject.backend.snapshot().jobs
    left = list(subject.site.state_directory.iterdir())
    return not left and not any(job.is_pending for job in jobs)


def test_a_job_runs_reports_and_leaves_nothing(
    standin: FakeSlurmFolder, tmp_path: Path
) -> None:
    subject = subject_on(standin, tmp_path)
    subject.site.state_directory.mkdir(mode=0o700)

    found = by_name(list(run_one_step(subject, observe(subject))))

    assert found["one-step run"].verdict == "ok", found
    assert found["versions there"].verdict == "ok"
    assert found["state directory there"].verdict == "ok"
    assert found["launch agent"].verdict != "bad", found["launch agent"]
    assert is_clean(subject)


def test_asked_for_no_run_there_is_none(
    standin: FakeSlurmFolder, tmp_path: Path
) -> None:
    subject = subject_on(standin, tmp_path, may_run=False)

    (found,) = run_one_step(subject, observe(subject))

    assert found.verdict == "skipped"
    assert "--no-run" in found.seen
    assert standin.look().jobs == []


def test_without_an_idle_node_there_is_none(
    standin: FakeSlurmFolder, tmp_path: Path
) -> None:
    subject = subject_on(standin, tmp_path)
    seen = observe(subject)
    busy = replace(seen, snapshot=replace(seen.snapshot, nodes=()))

    (found,) = run_one_step(subject, busy)

    assert found.verdict == "skipped"
    assert "is idle for a minute" in found.seen


def test_a_job_that_cannot_see_our_python_is_told_and_removed(
    standin: FakeSlurmFolder, tmp_path: Path
) -> None:
    subject = replace(
        subject_on(standin, tmp_path, real_time=False),
        python=tmp_path / "not there" / "python",
        sleep=lambda _: time.sleep(0.02),
    )
    subject.site.state_directory.mkdir(mode=0o700)

    (found,) = run_one_step(subject, observe(subject))

    assert found.name == "one-step run"
    assert found.verdict == "bad"
    assert "FAILED" in found.seen
    assert is_clean(subject)


def test_a_limit_that_allows_fewer_leases_than_the_cap_is_named(
    standin: FakeSlurmFolder, tmp_path: Path
) -> None:
    subject = subject_on(standin, tmp_path)

    def limits() -> Finding:
        return look_at_limits(subject, observe(subject))

    assert limits().seen == "Slurm enforces none (AccountingStorageEnforce)"
    standin.limit(nodes=6, account="science")
    warned = limits()
    assert warned.verdict == "warn"
    assert warned.seen.startswith("GrpTRES=node=6 of account science: below the cap")
    standin.limit(nodes=600, account="science")
    assert limits().verdict == "ok"
    standin.limit(nodes=6, account="chemistry")
    assert limits().verdict == "ok"
    standin.limit(nodes=6, are_shown=False)
    assert "neither slurmctld nor sacctmgr tells" in limits().seen


class Refusing:
    """A back end that does not submit; all else is as before."""

    def __init__(self, subject: Subject, error: Exception) -> None:
        self._inner = subject.backend
        self._error = error
        self.looked_for: list[str] = []

    def submit(self, request: LeaseRequest) -> SubmittedJob:
        del request
        raise self._error

    def find_by_name(self, *names: str) -> Sequence[object]:
        self.looked_for.extend(names)
        return ()

    def cancel(self, jobs: Sequence[JobKey]) -> None:
        raise AssertionError(jobs)


@pytest.mark.parametrize("error", [SlurmRefusedError("no"), SlurmUnavailableError("?")])
def test_a_submission_without_an_answer_is_looked_for_and_the_folder_removed(
    standin: FakeSlurmFolder, tmp_path: Path, error: Exception
) -> None:
    subject = subject_on(standin, tmp_path)
    subject.site.state_directory.mkdir(mode=0o700)
    seen = observe(subject)
    refusing = Refusing(subject, error)
    refused = replace(subject, backend=refusing)  # type: ignore[arg-type] # a part of it

    with pytest.raises(type(error)):
        list(run_one_step(refused, seen))

    assert refusing.looked_for == [f"freetrain-doctor-{subject.new_uuid()}"]
    assert list(subject.site.state_directory.iterdir()) == []


def test_without_slurm_the_rest_is_looked_at_and_the_code_is_69(tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path), "HOME": str(tmp_path)}

    shown = run("doctor", cwd=tmp_path, environ=environ)
    told = run("doctor", "--json", cwd=tmp_path, environ=environ)

    assert (shown.code, told.code) == (69, 69)
    assert "not on the PATH: sbatch" in shown.stdout
    verdicts = {one["name"]: one["verdict"] for one in json.loads(told.stdout)}
    assert verdicts["link(2)"] == "ok"
    assert verdicts["cluster"] == "skipped"


def test_a_whole_examination_on_the_stand_in_names_each_thing_once(
    standin: FakeSlurmFolder, tmp_path: Path
) -> None:
    found = by_name(list(examine(subject_on(standin, tmp_path, may_run=False))))

    assert found["mode"].verdict == "ok"
    assert found["right to submit"].verdict == "ok", found["right to submit"]
    assert found["one-step run"].verdict == "skipped"
    assert found["topology"].seen.startswith("no leaf switches")


def test_leaf_switches_are_told_with_the_nodes_below_them(
    standin: FakeSlurmFolder, tmp_path: Path
) -> None:
    standin.wire({"rack1": ["n1", "n2"], "rack2": ["n3"]})

    found = by_name(list(examine(subject_on(standin, tmp_path, may_run=False))))

    assert found["topology"].verdict == "ok"
    assert "2 leaf switches or blocks, of 3 nodes" in found["topology"].seen


@pytest.mark.slurm
def test_on_a_real_cluster_all_is_proven_and_nothing_is_left(
    cluster_of: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = cluster_of()
    environ = dict(cluster.environ)
    environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    subject = a_subject(tmp_path, environ, real_time=True)

    found = by_name(list(examine(subject)))

    assert found["one-step run"].verdict == "ok", found
    assert found["launch agent"].verdict == "ok", found["launch agent"]
    assert found["MPI there"].verdict != "bad", found["MPI there"].seen
    assert found["right to submit"].verdict == "ok"
    assert list(subject.site.state_directory.iterdir()) == []
    cluster.clear()
