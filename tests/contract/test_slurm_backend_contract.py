"""What every Slurm back end does, on fake programs and on a real cluster alike."""

from dataclasses import replace

import pytest

from slurm.backend import SNAPSHOT_REQUESTS, SlurmBackend
from slurm.errors import RequestsSpentError, SlurmRefusedError
from slurm.holes import find_holes
from slurm.records import (
    JobKey,
    JobRecord,
    JobState,
    NodeState,
    Requirement,
    leaf_by_node,
    must_have_leaves,
)
from tests.cluster.waiting import wait_for
from tests.contract.conftest import ACCOUNT_LIMIT, World

RUNNING, WAITING, CANCELLED = "RUNNING", "PENDING", "CANCELLED"
HOSTILE = "; touch pwned $(touch pwned) `touch pwned` 'a\" |&<>\\n %j * ~ é 漢 --x=y"


@pytest.fixture
def backend(world: World) -> SlurmBackend:
    return world.connect(None)


def test_a_snapshot_has_nodes_partitions_and_statistics(backend: SlurmBackend) -> None:
    look = backend.snapshot()

    assert [node.name for node in look.nodes] == [f"n{n}" for n in range(1, 9)]
    assert {"main", "freetrain"} <= {part.name for part in look.partitions}
    assert all(NodeState.IDLE in node.states for node in look.nodes)
    assert look.time_s >= look.before.taken_s > 0


def test_a_snapshot_takes_six_requests_and_each_is_counted(
    world: World, backend: SlurmBackend
) -> None:
    backend.snapshot()
    quiet = backend.requests
    assert quiet == 6 <= SNAPSHOT_REQUESTS

    backend.submit(world.lease(world.new_name()))
    backend.find_by_name(world.new_name())
    assert backend.requests == quiet + 2


def test_a_snapshot_tells_which_nodes_a_waiting_job_excludes(
    world: World, backend: SlurmBackend
) -> None:
    name = world.new_name()
    request = replace(world.lease(name, tasks=8), excluded="n8")
    backend.submit(request)

    def waits() -> list[JobRecord]:
        jobs = [job for job in backend.snapshot().jobs if job.name == name]
        running = [job for job in jobs if job.holds_nodes]
        return [job for job in jobs if job.is_pending and len(running) == 7]

    (job,) = wait_for("a lease that waits for a node", waits)
    assert job.excluded_nodes == "n8"
    assert job.oversubscribe in {"OK", "NO", ""}
    assert (job.least_cpus, job.task_count, job.het_job_id) == (1, 1, 0)

    fresh = world.connect(None)
    fresh.snapshot()
    assert fresh.requests == SNAPSHOT_REQUESTS


def test_what_goes_beyond_the_allowed_requests_is_not_sent(world: World) -> None:
    capped, free, name = world.connect(1), world.connect(None), world.new_name()
    capped.release()

    with pytest.raises(RequestsSpentError, match="was not run"):
        capped.submit(world.lease(name))

    assert capped.requests == 1
    assert free.find_by_name(name) == ()


def test_release_and_configuration_agree(backend: SlurmBackend) -> None:
    assert backend.release().series == backend.config().release.series


def test_leaf_switches_come_with_the_nodes_below_them(racked_world: World) -> None:
    backend = racked_world.connect(None)

    leaves = backend.topology()

    assert must_have_leaves(backend.config())
    assert [leaf.name for leaf in leaves] == ["rack1", "rack2"]
    assert leaf_by_node(leaves) == {
        f"n{n}": "rack1" if n <= 4 else "rack2" for n in range(1, 9)
    }
    assert backend.requests == 2


def test_without_switches_the_topology_is_empty(backend: SlurmBackend) -> None:
    assert backend.topology() == ()
    assert not must_have_leaves(backend.config())


def test_limits_come_with_the_tree_of_accounts_and_our_own_account(
    limited_world: World,
) -> None:
    backend = limited_world.connect(None)
    config = backend.config()
    before = backend.requests

    limits = backend.limits(limited_world.user, cluster=config.cluster)

    accounts = {each.account: each for each in limits.associations if not each.user}
    ours = [each for each in limits.associations if each.user and each.is_default]
    assert config.enforces_limits
    assert accounts["science"].limits == {"GrpTRES=node": ACCOUNT_LIMIT}
    assert accounts["physics"].parent == accounts["chemistry"].parent == "science"
    assert [(each.account, each.default_qos) for each in ours] == [
        ("physics", "normal")
    ]
    assert "normal" in {qos.name for qos in limits.qos}
    assert backend.requests - before == 3


def test_operators_and_administrators_see_all_jobs_and_coordinators_do_not(
    limited_world: World,
) -> None:
    backend = limited_world.connect(None)
    assert limited_world.promote is not None

    for level in ("Operator", "Coordinator", "Administrator", "None"):
        user = limited_world.promote(level)
        expected = level in {"Operator", "Administrator"}
        wait_for(
            f"what it means to be {level}",
            lambda: backend.sees_all_jobs(user) is expected,  # noqa: B023 -- waited for
        )

    assert not backend.sees_all_jobs("no-such-user")
    assert backend.config().slurm_uid == 0


def test_without_accounting_no_limit_counts(backend: SlurmBackend) -> None:
    assert not backend.config().enforces_limits


def test_others_may_be_asked_for_alone_with_one_request(
    world: World, backend: SlurmBackend
) -> None:
    name = world.new_name()
    backend.submit(world.lease(name))
    world.wait_for_states(backend, name, [RUNNING])
    before = backend.requests

    jobs = backend.jobs()

    assert backend.requests - before == 1
    assert [job.name for job in jobs if job.holds_nodes] == [name]
    assert {job.key for job in jobs} == {job.key for job in backend.snapshot().jobs}


def test_a_name_that_no_job_has_is_found_nowhere(
    world: World, backend: SlurmBackend
) -> None:
    assert backend.find_by_name(world.new_name()) == ()


def test_jobs_of_several_names_are_found_with_one_request(
    world: World, backend: SlurmBackend
) -> None:
    names = [world.new_name() for _ in range(3)]
    for name in names:
        backend.submit(world.lease(name))
    before = backend.requests

    found = backend.find_by_name(*names[:2])

    assert backend.requests - before == 1
    assert sorted(job.name for job in found) == sorted(names[:2])
    with pytest.raises(ValueError, match="no name"):
        backend.find_by_name()


def test_a_submitted_job_is_found_by_its_name_with_its_comment(
    world: World, backend: SlurmBackend
) -> None:
    name = world.new_name()

    submitted = backend.submit(world.lease(name, comment="uuid 0b5e"))

    (job,) = world.wait_for_states(backend, name, [RUNNING])
    assert (job.job_id, job.display_id) == (submitted.job_id, str(submitted.job_id))
    assert (job.name, job.comment, job.user) == (name, "uuid 0b5e", world.user)
    assert (job.partitions, job.nice) == (("freetrain",), 10_000)
    assert job.limit_s == 300


def test_a_running_lease_leaves_its_hole_open_and_closes_it_to_others(
    world: World, backend: SlurmBackend
) -> None:
    name = world.new_name()
    backend.submit(world.lease(name))
    (job,) = world.wait_for_states(backend, name, [RUNNING])
    leases = Requirement(partition="freetrain")

    look = backend.snapshot()
    ours = find_holes(look, leases, is_ours=lambda j: j.name == name, margin_s=0)
    others = find_holes(look, leases, is_ours=lambda _: False, margin_s=0)

    assert [hole.node for hole in ours if hole.held_by == (job.job_id,)] == [job.nodes]
    assert {h.node for h in ours} - {h.node for h in others} == {job.nodes}


def test_each_task_of_an_array_has_ids_of_its_own_and_one_has_the_arrays(
    world: World, backend: SlurmBackend
) -> None:
    name = world.new_name()

    array = backend.submit(world.lease(name, tasks=3)).job_id

    jobs = world.wait_for_states(backend, name, [RUNNING] * 3)
    assert [job.display_id for job in jobs] == [f"{array}_{n}" for n in range(3)]
    assert len({job.job_id for job in jobs}) == 3
    assert [job.array_task_id for job in jobs if job.job_id == array] == [2]


@pytest.mark.parametrize("task", [0, 2])
def test_ending_one_task_leaves_the_others_alone_whatever_its_number(
    world: World, backend: SlurmBackend, task: int
) -> None:
    """Task 2 has the array's raw number; cancelling by that would end all."""
    name = world.new_name()
    backend.submit(world.lease(name, tasks=3))
    jobs = world.wait_for_states(backend, name, [RUNNING] * 3)

    backend.cancel([jobs[task].key])

    expected = [CANCELLED if n == task else RUNNING for n in range(3)]
    world.wait_for_states(backend, name, expected)


def test_an_array_ends_by_its_number_and_no_other_job_does(
    world: World, backend: SlurmBackend
) -> None:
    names = [world.new_name(), world.new_name()]
    array, _ = [backend.submit(world.lease(name, tasks=2)).job_id for name in names]
    for name in names:
        world.wait_for_states(backend, name, [RUNNING] * 2)

    backend.cancel([JobKey(array, str(array))])

    for name, state in zip(names, (CANCELLED, RUNNING), strict=True):
        world.wait_for_states(backend, name, [state] * 2)


def test_ending_one_waiting_task_leaves_the_waiting_others_alone(
    world: World, backend: SlurmBackend
) -> None:
    name = world.new_name()
    backend.submit(world.lease(name, tasks=11))
    started = [RUNNING] * 8
    jobs = world.wait_for_states(backend, name, [*started, *[WAITING] * 3])

    backend.cancel([jobs[9].key])

    found = {job.array_task_id: job.states for job in backend.find_by_name(name)}
    assert {JobState.PENDING} == found[8] == found[10]
    assert found.get(9, {JobState.CANCELLED}) == {JobState.CANCELLED}


def test_ending_every_waiting_task_spares_those_that_run(
    world: World, backend: SlurmBackend
) -> None:
    name = world.new_name()
    backend.submit(world.lease(name, tasks=11))
    jobs = world.wait_for_states(backend, name, [*[RUNNING] * 8, *[WAITING] * 3])

    backend.cancel([job.key for job in jobs[8:]])

    found = backend.find_by_name(name)
    running = {job.array_task_id for job in found if JobState.RUNNING in job.states}
    assert running == set(range(8))
    # Slurm shows the rest of the array as one ended job without a task.
    others = [job for job in found if JobState.RUNNING not in job.states]
    assert all(job.has_ended and job.array_task_id != 0 for job in others)


def test_ending_a_job_twice_is_no_error(world: World, backend: SlurmBackend) -> None:
    name = world.new_name()
    backend.submit(world.lease(name))
    (job,) = world.wait_for_states(backend, name, [RUNNING])
    backend.cancel([job.key])
    world.wait_for_states(backend, name, [CANCELLED])

    backend.cancel([job.key])
    backend.signal([job.key], "TERM")


def test_several_jobs_of_several_names_end_together(
    world: World, backend: SlurmBackend
) -> None:
    names = [world.new_name(), world.new_name()]
    keys = []
    for name in names:
        backend.submit(world.lease(name))
        keys.append(world.wait_for_states(backend, name, [RUNNING])[0].key)

    backend.cancel(keys)

    for name in names:
        world.wait_for_states(backend, name, [CANCELLED])


def test_a_signal_that_nothing_heeds_ends_nothing(
    world: World, backend: SlurmBackend
) -> None:
    name = world.new_name()
    backend.submit(world.lease(name, tasks=2))
    jobs = world.wait_for_states(backend, name, [RUNNING] * 2)

    backend.signal([jobs[0].key], "CONT")

    # Slurm shows SIGNALING beside RUNNING for a moment
    world.wait_for_states(backend, name, [RUNNING] * 2)


def test_no_job_and_several_tasks_under_one_id_are_refused(
    backend: SlurmBackend,
) -> None:
    before = backend.requests

    with pytest.raises(ValueError, match="no job named"):
        backend.cancel([])
    with pytest.raises(ValueError, match="no job named"):
        backend.signal([], "TERM")
    with pytest.raises(ValueError, match="not a usable job id"):
        backend.cancel([JobKey(1, "1"), JobKey(18, "18_[1-3]")])
    with pytest.raises(ValueError, match="no signal named"):
        backend.signal([JobKey(1, "1")], "")

    assert backend.requests == before


def test_a_partition_that_is_not_there_is_refused_and_nothing_is_submitted(
    world: World, backend: SlurmBackend
) -> None:
    name = world.new_name()

    with pytest.raises(SlurmRefusedError, match="partition"):
        backend.submit(replace(world.lease(name), partition="nowhere"))

    assert backend.find_by_name(name) == ()


def test_one_request_changes_the_comment_of_all_tasks_of_an_array(
    world: World, backend: SlurmBackend
) -> None:
    names = [world.new_name(), world.new_name()]
    arrays = [
        backend.submit(world.lease(name, tasks=2, comment="before")).job_id
        for name in names
    ]
    for name in names:
        world.wait_for_states(backend, name, [RUNNING] * 2)
    before = backend.requests

    backend.set_comment(arrays[0], f"after {HOSTILE}")

    assert backend.requests == before + 1
    comments = {job.name: set[str]() for job in backend.jobs()}
    for job in backend.jobs():
        comments[job.name].add(job.comment)
    assert comments == {names[0]: {f"after {HOSTILE}"}, names[1]: {"before"}}


def test_a_job_outside_of_arrays_gets_a_comment_until_it_has_ended(
    world: World, backend: SlurmBackend
) -> None:
    name = world.new_name()
    job_id = backend.submit(world.lease(name)).job_id
    (job,) = world.wait_for_states(backend, name, [RUNNING])

    backend.set_comment(job_id, "new")

    assert [job.comment for job in backend.find_by_name(name)] == ["new"]
    backend.cancel([job.key])
    world.wait_for_states(backend, name, [CANCELLED])
    backend.set_comment(job_id, "too late")


def test_running_jobs_of_ours_can_be_made_to_end_sooner_and_never_later(
    world: World, backend: SlurmBackend
) -> None:
    array, single = world.new_name(), world.new_name()
    backend.submit(world.lease(array, tasks=2))
    backend.submit(world.lease(single))
    world.wait_for_states(backend, array, [RUNNING] * 2)
    world.wait_for_states(backend, single, [RUNNING])

    def of(*names: str) -> list[JobRecord]:
        jobs = (job for name in names for job in backend.find_by_name(name))
        return sorted(jobs, key=lambda job: (job.name, job.array_task_id or 0))

    (first, other), (alone,) = of(array), of(single)
    before_s = [job.end_s for job in (first, other)]
    end_s = (other.start_s or 0.0) + 177.0
    backend.end_by([first.key, alone.key], end_s)
    if world.user != "root":  # administrators may let jobs run for longer, too
        with pytest.raises(SlurmRefusedError, match="denied"):
            backend.end_by([alone.key], end_s + 1.0)
    with pytest.raises(SlurmRefusedError, match="Invalid"):
        backend.end_by([alone.key], (alone.start_s or 0.0) - 60.0)

    assert [job.end_s for job in of(array)] == [end_s, before_s[1]]
    assert [job.end_s for job in of(single)] == [end_s]
    backend.cancel([alone.key])
    world.wait_for_states(backend, single, [CANCELLED])
    backend.end_by([alone.key, other.key], end_s + 13.5)
    assert [job.end_s for job in of(array)] == [end_s, end_s + 13.0]


def test_ends_that_would_be_misread_are_refused_before_slurm_is_asked(
    backend: SlurmBackend,
) -> None:
    before = backend.requests
    for display_ids, end_s in (([], 1.0), (["7"], 0.0), (["7_[1-3]"], 1.0)):
        jobs = [JobKey(7, display_id) for display_id in display_ids]
        with pytest.raises(ValueError, match=r"not a usable|no job"):
            backend.end_by(jobs, end_s)
    assert backend.requests == before


def test_a_comment_that_breaks_a_table_is_refused_before_slurm_is_asked(
    backend: SlurmBackend,
) -> None:
    before = backend.requests
    for job_id, comment in ((1, "two\nlines"), (1, "x" * 1_001), (0, "fine")):
        with pytest.raises(ValueError, match="not a usable"):
            backend.set_comment(job_id, comment)
    assert backend.requests == before


def test_a_hostile_comment_survives_the_round_trip(
    world: World, backend: SlurmBackend
) -> None:
    name = world.new_name()

    backend.submit(world.lease(name, comment=HOSTILE))

    (job,) = world.wait_for_states(backend, name, [RUNNING])
    assert job.comment == HOSTILE
    assert [j.comment for j in backend.snapshot().jobs if j.name == name] == [HOSTILE]
