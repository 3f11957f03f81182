"""What a back end makes of a Slurm that misbehaves: fake programs, one act a call."""

from uuid import uuid4

import pytest

from freetrain.demo.fake_slurm.commands import iso
from slurm.backend import CommandLine
from slurm.batch import LeaseRequest
from slurm.errors import SlurmRefusedError, SlurmUnavailableError, UnreadableOutputError
from slurm.holes import HoleEnd, carry_plans, find_holes, plans_of
from slurm.records import JobKey, Requirement
from slurm.runner import SubprocessRunner
from tests.fakes.slurm.installing import FakeSlurm
from tests.fakes.slurm.state import Act

pytestmark = pytest.mark.long

_READERS = ("sdiag", "scontrol", "squeue")
_SOON_S = 1.0
_ENOUGH_S = 10.0


@pytest.fixture
def name() -> str:
    return f"ft-{uuid4()}"


@pytest.fixture
def backend(fake_slurm: FakeSlurm) -> CommandLine:
    return CommandLine(SubprocessRunner(fake_slurm.environ))


def impatient(fake_slurm: FakeSlurm, timeout_s: float) -> CommandLine:
    runner = SubprocessRunner(fake_slurm.environ)
    return CommandLine(runner, timeout_s=timeout_s)


def lease(name: str, *, tasks: int = 1) -> LeaseRequest:
    return LeaseRequest(
        name=name,
        comment="",
        partition="freetrain",
        limit_min=5,
        nice=10_000,
        script="/bin/true",
        tasks=tasks,
    )


@pytest.mark.parametrize("program", _READERS)
@pytest.mark.parametrize("act", [Act.EMPTY, Act.HALF, Act.GARBAGE, Act.LOSE])
def test_no_spoilt_answer_is_taken_for_a_look(
    fake_slurm: FakeSlurm, backend: CommandLine, program: str, act: Act
) -> None:
    fake_slurm.script(program, act)

    with pytest.raises(UnreadableOutputError, match=program):
        backend.snapshot()

    assert len(backend.snapshot().nodes) == 8


def test_half_of_a_queue_is_no_queue(
    fake_slurm: FakeSlurm, backend: CommandLine, name: str
) -> None:
    backend.submit(lease(name, tasks=8))
    fake_slurm.script("squeue", Act.HALF)

    with pytest.raises(UnreadableOutputError, match="squeue"):
        backend.find_by_name(name)


@pytest.mark.parametrize("act", [Act.UNREACHABLE, Act.HANG])
def test_a_controller_that_is_away_is_tried_again_later(
    fake_slurm: FakeSlurm, act: Act
) -> None:
    fake_slurm.script("squeue", act)

    with pytest.raises(SlurmUnavailableError, match="Try again later"):
        impatient(fake_slurm, _SOON_S).snapshot()


@pytest.mark.parametrize("act", [Act.HANG_AFTER, Act.EMPTY, Act.HALF, Act.GARBAGE])
def test_a_submission_whose_answer_was_lost_is_found_by_name(
    fake_slurm: FakeSlurm, backend: CommandLine, name: str, act: Act
) -> None:
    fake_slurm.script("sbatch", act)

    with pytest.raises((SlurmUnavailableError, UnreadableOutputError)):
        impatient(fake_slurm, _ENOUGH_S).submit(lease(name, tasks=2))

    assert len(backend.find_by_name(name)) == 2
    assert len(fake_slurm.calls("sbatch")) == 1


@pytest.mark.parametrize("act", [Act.HANG, Act.UNREACHABLE, Act.REFUSE])
def test_a_submission_that_did_not_happen_is_not_found(
    fake_slurm: FakeSlurm, backend: CommandLine, name: str, act: Act
) -> None:
    fake_slurm.script("sbatch", act)

    with pytest.raises((SlurmUnavailableError, SlurmRefusedError)):
        impatient(fake_slurm, _SOON_S).submit(lease(name))

    assert backend.find_by_name(name) == ()


def test_a_refusal_carries_the_words_of_slurm(
    fake_slurm: FakeSlurm, backend: CommandLine, name: str
) -> None:
    fake_slurm.script("sbatch", Act.REFUSE)

    with pytest.raises(SlurmRefusedError, match="permission denied") as caught:
        backend.submit(lease(name))

    assert "permission denied" in caught.value.said


@pytest.mark.parametrize("act", [Act.REFUSE, Act.UNREACHABLE])
def test_a_cancelling_that_was_refused_is_an_error(
    fake_slurm: FakeSlurm, backend: CommandLine, name: str, act: Act
) -> None:
    backend.submit(lease(name))
    (job,) = backend.find_by_name(name)
    fake_slurm.script("scancel", act)

    with pytest.raises((SlurmRefusedError, SlurmUnavailableError)):
        backend.cancel([job.key])


def test_a_cancelling_that_was_lost_shows_in_the_next_look(
    fake_slurm: FakeSlurm, backend: CommandLine, name: str
) -> None:
    backend.submit(lease(name))
    (job,) = backend.find_by_name(name)
    fake_slurm.script("scancel", Act.LOSE)

    backend.cancel([job.key])

    assert backend.find_by_name(name) == (job,)


def test_many_jobs_are_ended_a_hundred_at_a_time(
    fake_slurm: FakeSlurm, backend: CommandLine
) -> None:
    backend.cancel([JobKey(number, f"{number}") for number in range(1, 251)])

    calls = fake_slurm.calls("scancel")
    assert [len(call) for call in calls] == [100, 100, 50]
    assert [word for call in calls for word in call] == [
        str(number) for number in range(1, 251)
    ]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_snapshot_in_mid_backfill_is_torn_and_the_plan_before_counts(
    fake_slurm: FakeSlurm, backend: CommandLine, name: str, when: str
) -> None:
    job_id = _one_job_waits_for_the_eighth_node(fake_slurm, backend, name)
    leases = Requirement(partition="freetrain")
    whole = backend.snapshot()
    acts = [Act.MID_BACKFILL] if when == "before" else [Act.NORMAL, Act.MID_BACKFILL]
    fake_slurm.script("sdiag", *acts)
    fake_slurm.script("squeue", Act.MID_BACKFILL)

    torn = backend.snapshot()
    carried = carry_plans(plans_of(whole), torn, max_age_s=300)

    assert (whole.is_torn, torn.is_torn) == (False, True)
    assert plans_of(torn).starts == ()
    (hole,) = find_holes(carried, leases, is_ours=lambda _: False, margin_s=0)
    assert (hole.ends_by, hole.blocker) == (HoleEnd.PLANNED_JOB, str(job_id))


def _one_job_waits_for_the_eighth_node(
    fake_slurm: FakeSlurm, backend: CommandLine, name: str
) -> int:
    """Seven nodes are held; the eighth is planned for a job that waits."""
    backend.submit(lease(name, tasks=9))
    found = backend.find_by_name(name)
    held, waiting = found[0], next(job for job in found if job.is_pending)
    start_s = backend.snapshot().time_s + 3_600
    fake_slurm.plan(waiting.job_id, held.nodes, iso(start_s))
    backend.cancel([held.key])
    return waiting.job_id


def test_every_command_is_an_argument_list_of_its_own(
    fake_slurm: FakeSlurm, backend: CommandLine
) -> None:
    backend.snapshot()

    told = [word[-1] for word in fake_slurm.calls("scontrol")]
    assert told == ["nodes", "reservations", "partitions"]
    assert fake_slurm.calls("sdiag") == [[], []]
    assert len(fake_slurm.calls("squeue")) == 1
