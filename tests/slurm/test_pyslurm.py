"""pyslurm's objects as our records, and the choice of the back end: without pyslurm."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.backend import CommandLine, connect
from slurm.batch import LeaseRequest, SubmittedJob
from slurm.errors import (
    RequestsSpentError,
    SlurmRefusedError,
    SlurmUnavailableError,
    UnreadableOutputError,
)
from slurm.pyslurm import (
    Pyslurm,
    can_express,
    description,
    each_task,
    find_pyslurm,
    fits,
    read_job,
    read_node,
    read_partition,
)
from slurm.records import Gres, JobKey, JobRecord, JobState, NodeState, Release

BOOKWORM = Release(22, 5, "8")


def a_job(**told: object) -> Any:  # noqa: ANN401 -- stands for an untyped object
    """Return what passes for a ``pyslurm.Job``; what is not *told* is None."""
    known = {"id": 7, "state": "PENDING", "array_id": None, "array_tasks_waiting": None}
    names = (
        *("array_task_id", "user_id", "user_name", "name", "comment", "partition"),
        *("state_reason", "priority", "nice", "submit_time", "eligible_time"),
        *("start_time", "end_time", "time_limit", "scheduled_nodes", "qos"),
        *("allocated_nodes", "required_nodes", "num_nodes", "cpus", "constraints"),
        *("gres_per_node", "dependencies", "reservation", "excluded_nodes", "account"),
        *("ntasks", "cpus_per_task", "memory_per_node", "memory_per_cpu"),
        *("heterogeneous_id", "resource_sharing"),
    )
    return SimpleNamespace(**(dict.fromkeys(names) | known | told))


def read(**told: object) -> JobRecord:
    return read_job(a_job(**told), user_of=lambda job: job.user_name or "?")


def test_a_job_without_any_value_is_a_record_all_the_same() -> None:
    job = read()

    assert (job.job_id, job.display_id, job.nice, job.limit_s) == (7, "7", 0, None)
    assert job.is_pending
    assert not job.is_planned
    assert read(state="DREAMING").unknown_states == {"DREAMING"}
    assert read(state="RUNNING").states == {JobState.RUNNING}


def test_a_planned_job_has_start_and_nodes() -> None:
    job = read(start_time=1000, scheduled_nodes="n[1-8]", time_limit="UNLIMITED")

    assert job.is_planned
    assert (job.planned_nodes, job.limit_s) == ("n[1-8]", math.inf)


def test_none_is_task_0_unless_the_array_was_cancelled() -> None:
    task = read(id=11, array_id=10, state="RUNNING")
    first = read(id=10, array_id=10, state="RUNNING")
    ended = read(id=10, array_id=10, state="CANCELLED")

    assert (task.array_task_id, task.key) == (0, JobKey(11, "10_0"))
    assert (first.array_task_id, first.display_id) == (0, "10_0")
    assert (ended.array_task_id, ended.display_id) == (None, "10")
    assert read(id=11, array_id=10, state="CANCELLED").array_task_id == 0


def test_tasks_that_wait_together_are_listed_one_by_one() -> None:
    job = read(id=10, array_id=10, array_tasks_waiting="2-3,7,10-20:5")

    tasks = list(each_task(job))

    assert (job.display_id, job.array_task_id) == ("10_[2-3,7,10-20:5]", None)
    assert [task.array_task_id for task in tasks] == [2, 3, 7, 10, 15, 20]
    assert tasks[0].display_id == "10_2"
    assert list(each_task(tasks[0])) == [tasks[0]]


@pytest.mark.parametrize("tasks", ["a", "3-1", "0-4000000000", "1;2", "-"])
def test_tasks_in_no_known_form_are_refused(tasks: str) -> None:
    with pytest.raises(UnreadableOutputError, match="array tasks"):
        list(each_task(read(array_id=7, array_tasks_waiting=tasks)))


def test_what_a_job_asks_for_is_written_as_slurm_does() -> None:
    job = read(
        constraints=["ib&cpu"],
        gres_per_node={"gpu:a100": 2},
        dependencies={"afterok": [1], "after": [], "singleton": False},
        required_nodes=["n1", "n2"],
        partition="main,freetrain",
    )

    assert (job.features, job.gres_per_node) == ("ib&cpu", "gres:gpu:a100:2")
    assert (job.dependency, job.requested_nodes) == ("afterok:[1]", "n1,n2")
    assert job.partitions == ("main", "freetrain")


def test_a_node_has_its_flags_resources_and_remarks() -> None:
    told = SimpleNamespace(
        name="n1",
        state="IDLE+PLANNED",
        active_features=["ib"],
        configured_gres={"gpu:a100": 4, "nvme": 1},
        total_cpus=16,
        effective_cpus=14,
        sockets=2,
        cores_per_socket=4,
        real_memory=2000,
        memory_reserved_for_system=None,
        owner=None,
        mcs_label=None,
        partitions=["main"],
        reason=None,
        comment="a remark ",
        allocated_cpus=6,
        allocated_memory=1500,
    )

    node = read_node(told)

    assert node.states == {NodeState.IDLE, NodeState.PLANNED}
    assert node.gres == (Gres("gpu", "a100", 4), Gres("nvme", "", 1))
    assert (node.comment, node.allocated_cpus) == ("a remark", 6)
    assert node.allocated_gres == node.gres  # as it does not tell
    idle = read_node(SimpleNamespace(**(vars(told) | {"allocated_cpus": None})))
    assert (idle.allocated_cpus, idle.allocated_gres) == (0, ())
    assert (node.cpus, node.cpus_per_core, node.cpus_per_socket) == (14, 2, 8)
    assert (node.memory_mib, node.allocated_memory_mib, node.owner) == (2000, 1500, "")


def test_a_partition_counts_in_seconds() -> None:
    nothing = dict.fromkeys(
        ("name", "nodes", "priority_tier", "preempt_mode", "over_time_limit", "qos")
    )
    known = nothing | {"is_default": False, "is_hidden": False, "oversubscribe": "NO"}
    known |= {"state": "UP", "max_time": 240, "preemption_grace_time": 10}
    known |= {"max_cpus_per_node": "UNLIMITED", "max_cpus_per_socket": None}

    part = read_partition(SimpleNamespace(**known))
    open_part = read_partition(SimpleNamespace(**(known | {"max_time": "UNLIMITED"})))

    assert (part.max_time_s, part.grace_time_s) == (14_400.0, 10.0)
    assert part.over_time_limit_s is None
    assert math.isinf(open_part.max_time_s)


def lease(**changes: object) -> LeaseRequest:
    told: dict[str, Any] = {
        "name": "ft-1",
        "comment": "c",
        "partition": "freetrain",
        "limit_min": 5,
        "nice": 100,
        "script": "/s",
        "exclusive": False,
    }
    return LeaseRequest(**(told | changes))


@pytest.mark.parametrize(
    "changes",
    [
        *({"exclusive": True}, {"comment": "é"}, {"arguments": ("漢",)}),
        *({"excluded": "n1"}, {"gres": "gpu"}, {"gres": "a:b:c:1"}),
    ],
)
def test_what_pyslurm_would_say_otherwise_than_sbatch_it_does_not_say(
    changes: dict[str, object],
) -> None:
    assert not can_express(lease(**changes))
    assert can_express(lease(gres="gpu:a100:2,nvme:1"))


@given(st.builds(lease, tasks=st.integers(1, 50), cpus=st.integers(0, 9)))
def test_only_what_was_asked_for_is_named(request: LeaseRequest) -> None:
    told = description(request)

    assert ("array" in told) == (request.tasks > 1)
    assert ("cpus_per_task" in told) == (request.cpus > 0)
    assert all(told.values()) or told["is_requeueable"] is False
    assert set(told) & {"resource_sharing", "memory_per_cpu"} == set()


class FakeRPCError(Exception):
    def __init__(self, errno: int) -> None:
        super().__init__("said")
        self.errno = errno


@dataclass(slots=True)
class FakeJob:
    id: int
    errno: int = 0

    def send_signal(self, signal: str, *, steps: str) -> None:
        assert (signal, steps) == ("SIGTERM", "children")
        if self.errno:
            raise FakeRPCError(self.errno)


def a_submission(**said: object) -> SimpleNamespace:
    assert said["name"] == "ft-1"
    return SimpleNamespace(submit=lambda: 8)


class NoPrograms:
    def __init__(self) -> None:
        self.ran: list[Sequence[str]] = []

    def run(self, argv: Sequence[str], *, timeout_s: float) -> str:
        del timeout_s
        self.ran.append(argv)
        return "9\n" if argv[0] == "sbatch" else ""


def a_backend(errno: int = 0, most: int | None = None) -> tuple[Pyslurm, NoPrograms]:
    module = ModuleType("pyslurm")
    module.RPCError = FakeRPCError  # type: ignore[attr-defined] # made up here

    def load() -> dict[int, object]:
        if errno:
            raise FakeRPCError(errno)
        return {7: a_job(name="ft-1", user_id=0, user_name="root")}

    module.Jobs = SimpleNamespace(load=load)  # type: ignore[attr-defined] # the same
    module.JobSubmitDescription = a_submission  # type: ignore[attr-defined]
    module.Job = lambda number: FakeJob(number, errno)  # type: ignore[attr-defined]
    programs = NoPrograms()
    command_line = CommandLine(programs, max_requests=most)
    return Pyslurm(module, command_line), programs


@pytest.mark.parametrize(
    ("errno", "kind"),
    [(2000, SlurmRefusedError), (1800, SlurmUnavailableError), (111, Exception)],
)
def test_a_refusal_of_slurm_is_not_taken_for_no_answer(
    errno: int, kind: type[Exception]
) -> None:
    backend, _ = a_backend(errno)

    with pytest.raises(kind, match=f"said .{errno}."):
        backend.find_by_name("ft-1")


def test_requests_of_both_ways_count_against_one_allowance() -> None:
    backend, programs = a_backend(most=2)
    backend.find_by_name("ft-1")
    backend.cancel([JobKey(7, "7")])

    with pytest.raises(RequestsSpentError, match="was not run"):
        backend.find_by_name("ft-1")
    with pytest.raises(RequestsSpentError, match="was not run"):
        backend.cancel([JobKey(7, "7")])

    assert (backend.requests, len(programs.ran)) == (2, 1)


def test_tasks_of_arrays_are_signalled_by_their_own_ids_only() -> None:
    backend, programs = a_backend()

    backend.signal([JobKey(7, "7"), JobKey(10, "10_2")], "TERM")

    assert programs.ran == [["scancel", "--signal=TERM", "10_2"]]


def test_a_signal_to_a_job_that_has_ended_is_no_error() -> None:
    for errno in (2017, 2021):
        a_backend(errno)[0].signal([JobKey(7, "7")], "TERM")
    with pytest.raises(SlurmRefusedError):
        a_backend(2002)[0].signal([JobKey(7, "7")], "TERM")


def test_a_job_is_submitted_through_sbatch_only_where_it_must() -> None:
    backend, programs = a_backend()

    assert backend.submit(lease()) == SubmittedJob(job_id=8, cluster="")
    assert programs.ran == []
    assert backend.submit(lease(exclusive=True)) == SubmittedJob(job_id=9, cluster="")
    assert [argv[0] for argv in programs.ran] == ["sbatch"]


@pytest.mark.parametrize(
    ("version", "is_chosen"),
    [
        *((version, True) for version in ("22.5.2", "22.5.3")),
        *((other, False) for other in ("22.5.1", "23.2.0", "25.11.2", "", "None")),
    ],
)
def test_only_a_pyslurm_of_the_same_series_is_chosen(
    version: str, *, is_chosen: bool
) -> None:
    is_fit, reason = fits(version, BOOKWORM)

    assert is_fit == is_chosen
    assert ("matches" in reason) == is_chosen


def test_switched_off_nothing_is_even_looked_for() -> None:
    found = find_pyslurm(BOOKWORM, is_allowed=False)

    assert found == (None, "pyslurm is switched off")


def test_every_field_of_a_job_is_read_but_those_that_pyslurm_lacks() -> None:
    numbers = (
        *("array_id", "array_task_id", "user_id", "priority", "nice", "submit_time"),
        *("eligible_time", "start_time", "end_time", "time_limit", "num_nodes", "cpus"),
        *("ntasks", "cpus_per_task", "memory_per_cpu", "heterogeneous_id"),
    )
    texts = (
        *("name", "comment", "qos", "reservation", "user_name", "state_reason"),
        *("partition", "allocated_nodes", "scheduled_nodes", "required_nodes"),
        *("excluded_nodes", "account", "resource_sharing"),
    )
    job = read(
        **dict.fromkeys(numbers, 1),
        **dict.fromkeys(texts, "x"),
        constraints=["f"],
        gres_per_node={"gpu": 1},
        dependencies={"after": [1]},
    )

    empty = {one.name for one in fields(job) if not getattr(job, one.name)}
    assert empty == {
        *("gres_per_job", "gres_per_task", "gres_per_socket", "cut"),
        *("unknown_states", "array_tasks"),
    }


def test_without_pyslurm_connecting_asks_nothing() -> None:
    programs = NoPrograms()

    backend = connect(programs, allow_pyslurm=False)

    assert (backend.name, backend.requests, programs.ran) == ("command line", 0, [])
