"""Plans, holes, leases, preemption and dialects on a real cluster."""

import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import pytest

from slurm.backend import CommandLine
from slurm.batch import sbatch_argv
from slurm.errors import SlurmError
from slurm.holes import HoleEnd, Snapshot, carry_plans, is_torn, plans_of
from slurm.json import JSON
from slurm.records import JobRecord, JobState, expand
from slurm.runner import SubprocessRunner
from tests.cluster.cluster import Cluster, restart_controller
from tests.cluster.settings import NODES, Variant
from tests.cluster.site import LEASES, Site
from tests.cluster.waiting import wait_for

pytestmark = pytest.mark.slurm

SLEEP = "exec sleep 3600"
PLAN_SLACK_S = 60.0  # bf_resolution rounds a planned start up, twice at most
MARGIN_S = 20.0
HOSTILE = '\'; touch pwned; "$(touch pwned)" `touch pwned`\n|x|\t\\n %j é漢 --uid=0'


@pytest.fixture
def site_of(
    cluster_of: Callable[..., Cluster], tmp_path: Path
) -> Iterator[Callable[..., Site]]:
    """Return a function from a variant to a site on it, emptied afterwards."""
    used: list[Cluster] = []

    def make(*variants: Variant) -> Site:
        used.append(cluster_of(*variants))
        partition = "main" if Variant.SHARED in variants else "freetrain"
        return Site(used[-1], tmp_path, partition)

    yield make
    for cluster in used:
        cluster.clear()


@pytest.fixture
def site(site_of: Callable[..., Site]) -> Site:
    """Two partitions; leases are preempted."""
    return site_of()


@pytest.fixture
def shared_site(site_of: Callable[..., Site]) -> Site:
    """One partition for everybody; nobody is preempted."""
    return site_of(Variant.SHARED)


@pytest.fixture
def yielding_site(site_of: Callable[..., Site]) -> Site:
    """Backfill gives up its locks after every job it looks at."""
    return site_of(Variant.FORCED_YIELDS)


def test_a_job_that_waits_for_every_node_shows_when_and_where_it_will_start(
    site: Site,
) -> None:
    running = site.others_running_job(6, minutes=10)

    _, job = site.whole_look_with_plan(site.others_job(8, minutes=10))

    assert tuple(expand(job.planned_nodes or "")) == NODES
    assert running.end_s is not None
    assert job.start_s is not None
    assert 0 <= job.start_s - running.end_s <= PLAN_SLACK_S


def test_the_idle_nodes_before_a_planned_start_are_holes_that_it_ends(
    site: Site,
) -> None:
    running = site.others_running_job(6, minutes=10)

    look, job = site.whole_look_with_plan(site.others_job(8, minutes=10))
    holes = site.holes(look, margin_s=MARGIN_S)

    assert {hole.node for hole in holes} == set(NODES) - set(expand(running.nodes))
    assert {hole.ends_by for hole in holes} == {HoleEnd.PLANNED_JOB}
    assert {hole.blocker for hole in holes} == {str(job.job_id)}
    assert job.start_s is not None
    assert {hole.end_s for hole in holes} == {job.start_s - MARGIN_S}


def test_idle_nodes_for_which_no_job_waits_end_with_the_partitions_limit(
    site: Site,
) -> None:
    holes = site.holes(site.backend().snapshot())

    assert {hole.node for hole in holes} == set(NODES)
    assert {hole.ends_by for hole in holes} == {HoleEnd.PARTITION_LIMIT}


def test_leases_fill_the_hole_and_those_too_many_remove_themselves(site: Site) -> None:
    site.others_running_job(6, minutes=10)
    look, waiting = site.whole_look_with_plan(site.others_job(8, minutes=10))
    hole_nodes = {hole.node for hole in site.holes(look)}
    backend = site.backend()
    request = site.lease(site.script(SLEEP), tasks=4, minutes=2)

    backend.submit(replace(request, deadline_s=look.time_s + 150))
    wait_for("two leases to run", lambda: len(_running(site)) == 2)
    wait_for("two to give up", lambda: _states(site)[JobState.DEADLINE] == 2)

    assert {job.nodes for job in _running(site)} == hole_nodes
    _, still = site.whole_look_with_plan(waiting.job_id)
    assert still.start_s == waiting.start_s


def test_holes_stay_open_under_our_own_leases(site: Site) -> None:
    site.others_running_job(6, minutes=10)
    job_id = site.others_job(8, minutes=10)
    look, _ = site.whole_look_with_plan(job_id)
    before = {hole.node: hole.end_s for hole in site.holes(look)}
    site.backend().submit(site.lease(site.script(SLEEP), tasks=4))
    wait_for("two leases to run", lambda: len(_running(site)) == 2)

    look, _ = site.whole_look_with_plan(job_id)
    after = site.holes(look)

    assert {hole.node: hole.end_s for hole in after} == before
    held = {number for hole in after for number in hole.held_by}
    assert held == {job.job_id for job in _running(site)}


def test_a_snapshot_without_plans_is_torn_and_the_plans_before_repair_it(
    yielding_site: Site,
) -> None:
    """Backfill clears all plans, then sleeps 0.3 s before each of thirty jobs.

    Such a look alone shows holes that are not there.
    """
    site = yielding_site
    site.others_running_job(6, minutes=10)
    first = site.others_job(8, minutes=10)
    look, _ = site.whole_look_with_plan(first)
    plans = plans_of(look)
    for _ in range(30):
        site.others_job(8, minutes=10)
    phantoms, wholes = 0, 0
    backend = site.backend()

    def both_were_seen() -> bool:
        nonlocal phantoms, wholes, plans
        seen = backend.snapshot()
        repaired = carry_plans(plans, seen, max_age_s=600)
        ends = {(hole.ends_by, hole.blocker) for hole in site.holes(repaired)}
        assert ends == {(HoleEnd.PLANNED_JOB, str(first))}, seen
        is_phantom = {hole.blocker for hole in site.holes(seen)} != {str(first)}
        assert seen.is_torn or not is_phantom
        phantoms += is_phantom
        wholes += not seen.is_torn
        plans = plans_of(repaired)
        return phantoms >= 1 and wholes >= 1

    wait_for("a torn look and a whole one", both_were_seen, limit_s=120)


def test_hostile_names_and_comments_of_others_are_read_and_not_run(site: Site) -> None:
    job_id = site.others_job(8, 10, f"--job-name={HOSTILE}", f"--comment={HOSTILE}")
    site.others_job(8, 10, "--job-name=a,b|c", "--begin=now+1hour")

    jobs = {job.job_id: job for job in site.backend().snapshot().jobs}

    assert (jobs[job_id].name, jobs[job_id].comment) == (HOSTILE, HOSTILE)
    assert jobs[job_id + 1].name == "a,b|c"
    assert not list(site.folder.rglob("pwned"))


@pytest.mark.parametrize(("nice", "delays_others"), [(10_000, False), (0, True)])
def test_only_leases_without_nice_move_a_later_users_planned_start(
    shared_site: Site,
    nice: int,
    delays_others: bool,  # noqa: FBT001 -- a parameter of the test
) -> None:
    site = shared_site
    running = site.others_running_job(8, minutes=10)
    request = site.lease(site.script(SLEEP), tasks=4, minutes=5, nice=nice)
    site.backend().submit(request)

    _, job = site.whole_look_with_plan(site.others_job(8, minutes=10))

    assert running.end_s is not None
    assert job.start_s is not None
    is_late = job.start_s - running.end_s > PLAN_SLACK_S
    assert is_late == delays_others
    assert _states(site) == Counter({JobState.PENDING: 4})


def test_with_nice_a_user_gets_the_nodes_that_leases_give_back(
    shared_site: Site,
) -> None:
    """Leases that wait are ended first, then one that runs."""
    site, backend = shared_site, shared_site.backend()
    backend.submit(site.lease(site.script(SLEEP), tasks=12, minutes=30))
    wait_for("eight leases to run", lambda: len(_running(site)) == 8)
    job_id = site.others_job(1, minutes=10)

    found = backend.find_by_name(LEASES)
    backend.cancel([job.key for job in found if job.is_pending])
    backend.cancel([_running(site)[0].key])

    site.wait_for_running(job_id)
    assert len(_running(site)) == 7


def _running(site: Site) -> list[JobRecord]:
    found = site.backend().find_by_name(LEASES)
    return [job for job in found if job.states == {JobState.RUNNING}]


def _states(site: Site) -> Counter[JobState]:
    """Count leases by state; those of earlier tests have been cancelled."""
    found = site.backend().find_by_name(LEASES)
    counted = Counter(state for job in found for state in job.states)
    del counted[JobState.CANCELLED]
    return counted


# What a lease's job starts with.

LOGIN = "freetrain-login"


@pytest.fixture
def login() -> Iterator[Path]:
    """The home of a user of our own, whose shell reads the start-up files there."""
    home = Path(tempfile.mkdtemp(prefix=f"{LOGIN}-"))
    home.chmod(0o777)
    shell = ("--no-create-home", f"--home-dir={home}", "--shell=/bin/bash")
    run = partial(subprocess.run, check=True)
    run(["useradd", *shell, LOGIN])
    yield home
    run(["userdel", "--force", LOGIN])
    shutil.rmtree(home)


@pytest.mark.parametrize("startup", ["exec sleep 1000", "exit 3", "export MARK=1"])
def test_start_up_files_of_a_users_shell_neither_delay_nor_hold_a_lease(
    site: Site, login: Path, startup: str
) -> None:
    (login / ".bash_profile").write_text(f"{startup}\n")
    script, said = login / "script", login / "said"
    script.write_text("#!/bin/sh\n/usr/bin/env >>$1\necho whole >>$1\n")
    request = replace(site.lease(str(script)), arguments=(str(said),))
    program, *options = sbatch_argv(request)

    site.cluster.run(program, f"--uid={LOGIN}", "--chdir=/", *options)
    # Slurm gives such a shell 120 s.
    wait_for(
        lambda: f"the script's variables; {site.backend().jobs()}",
        lambda: said.exists() and "whole\n" in said.read_text(),
        limit_s=60,
    )

    names = {line.partition("=")[0] for line in said.read_text().splitlines()}
    assert {"SLURM_JOB_ID", "SLURM_CONF", "SLURMD_NODENAME"} <= names
    assert names.isdisjoint({"MARK", "SLURM_GET_USER_ENV", "PYTEST_CURRENT_TEST"})


# Preemption.

LISTENER = """
cd '{folder}'
cat >step <<'END'
trap '[ -e step-heard ] || touch step-heard' TERM
touch ready
while :; do sleep 0.1; done
END
trap 'touch batch-heard; exit 0' TERM
srun --overlap --ntasks=1 sh ./step &
while :; do sleep 0.1; done
"""

OBEDIENT = """
cd '{folder}'
cat >step <<'END'
trap 'scancel --signal=KILL $SLURM_JOB_ID; exit 0' TERM
touch ready
while :; do sleep 0.1; done
END
srun --overlap --ntasks=1 sh ./step &
wait
"""


def test_a_step_hears_of_preemption_first_and_the_batch_script_at_the_end_of_grace(
    site: Site,
) -> None:
    _start_lease(site, LISTENER)

    job_id = site.others_job(8, minutes=5)

    wait_for("the step to hear", (site.folder / "step-heard").exists)
    assert not (site.folder / "batch-heard").exists()
    wait_for("the batch script to hear", (site.folder / "batch-heard").exists)
    assert _heard_s(site, "step") < _heard_s(site, "batch")
    site.wait_for_running(job_id)
    assert _lease(site).states == {JobState.PREEMPTED}


def test_a_lease_that_ends_itself_on_notice_gives_its_node_up_within_the_grace_time(
    site: Site,
) -> None:
    _start_lease(site, OBEDIENT)

    job_id = site.others_job(8, minutes=5)
    job = site.wait_for_running(job_id)

    assert job.start_s is not None
    ended_s = _lease(site).end_s
    assert ended_s is not None
    assert ended_s <= job.start_s


def test_the_main_partition_takes_idle_nodes_before_it_preempts(site: Site) -> None:
    _start_lease(site, LISTENER)

    job_id = site.others_job(7, minutes=5)
    site.wait_for_running(job_id)

    assert _lease(site).states == {JobState.RUNNING}
    assert not (site.folder / "step-heard").exists()


def test_a_restarted_controller_knows_the_leases_and_tears_the_look(site: Site) -> None:
    _start_lease(site, LISTENER)
    before, lease = site.backend().snapshot(), _lease(site)

    restart_controller(site.cluster)
    after = wait_for("the controller to answer again", lambda: _look(site))

    assert is_torn(before.before, after.after)
    wait_for("the lease to be known", lambda: _lease(site).states == lease.states)
    assert _lease(site).key == lease.key


def _start_lease(site: Site, script: str) -> None:
    body = script.format(folder=site.folder)
    submitted = site.backend().submit(site.lease(site.script(body), minutes=30))
    assert submitted.job_id
    wait_for("the lease's step to run", (site.folder / "ready").exists)


def _lease(site: Site) -> JobRecord:
    """Return the lease submitted last."""
    return max(site.backend().find_by_name(LEASES), key=lambda job: job.job_id)


def _heard_s(site: Site, who: str) -> float:
    return (site.folder / f"{who}-heard").stat().st_mtime


def _look(site: Site) -> Snapshot | None:
    try:
        return site.backend().snapshot()
    except SlurmError:
        return None


# Text and JSON of one cluster, read into the same records.

TOLD_OTHERWISE = {"reason", "preempt_mode", "is_default", "oversubscribe"}
"""Reasons are codes in JSON, sentences in text; until 24.11 JSON tells nothing of the
others, and in 26.05 it says of preemption CLUSTER_GLOBAL where text says CANCEL."""
FIRST_WITH_JSON = (23, 2)
RESERVATION = "reservationname=kept users=root starttime=now+60minutes duration=30"


def test_both_dialects_tell_the_same_of_nodes_jobs_partitions_and_reservations(
    site: Site,
) -> None:
    text = site.backend()
    if text.release().series < FIRST_WITH_JSON:
        pytest.skip("scontrol knows no --json before 23.02; RELEASE=24.11 does")
    json = CommandLine(SubprocessRunner(site.cluster.environ), dialect=JSON)
    site.others_running_job(6, minutes=10)
    job_id = site.others_job(8, 10, "--comment=a remark", "--job-name=whole")
    site.backend().submit(site.lease(site.script("exec sleep 600"), tasks=4))
    nodes = f"nodes={','.join(NODES)}"
    site.cluster.run("scontrol", "create", "reservation", *RESERVATION.split(), nodes)
    try:
        site.whole_look_with_plan(job_id)
        # Slurm goes on meanwhile: sooner or later nothing happens between the two.
        wait_for("two looks alike", lambda: not differences(text, json), limit_s=15)
    except TimeoutError:
        assert differences(text, json) == []
    finally:
        site.cluster.run("scontrol", "delete", "reservation", "kept")


def differences(first: CommandLine, second: CommandLine) -> list[str]:
    """What two looks tell differently, field by field."""
    one, other = first.snapshot(), second.snapshot()
    return [
        word
        for kind in ("nodes", "jobs", "partitions", "reservations")
        for word in _unlike(
            kind,
            sorted(getattr(one, kind), key=str),
            sorted(getattr(other, kind), key=str),
        )
    ]


def _unlike(kind: str, ours: list[object], theirs: list[object]) -> list[str]:
    if len(ours) != len(theirs):
        return [f"{len(ours)} and {len(theirs)} {kind}"]
    return [
        f"{kind}: {name}: {getattr(a, name)!r} and {getattr(b, name)!r}"
        for a, b in zip(ours, theirs, strict=True)
        for name in (field.name for field in fields(a))  # type: ignore[arg-type]
        if name not in TOLD_OTHERWISE and getattr(a, name) != getattr(b, name)
    ]
