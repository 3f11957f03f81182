"""``freetrain drill``: one lease is told through Slurm; then files are watched."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from msgspec import structs

from freetrain.broker.lease import LeaseKey, job_name
from freetrain.cli.drill import Drill, DrillMark, choose, problems_of
from freetrain.client.status import read_trainer_status
from freetrain.config.job import ProgressFormat, ProgressSettings
from freetrain.errors import TryLaterError, UsageError
from freetrain.state.files import AgentState, EndingKind, StateDir, create_assigned
from freetrain.state.tables import TrainerState
from slurm.backend import CommandLine
from slurm.batch import LeaseRequest
from slurm.records import JobRecord
from slurm.runner import SubprocessRunner
from tests.cli.commands import JOB, Ran, at_home, run
from tests.client.client_states import (
    NOW_S,
    assign,
    assignment,
    beat,
    end,
    put_state,
    report,
    rows,
)
from tests.fakes.slurm.installing import FakeSlurm, install


def chosen(state: StateDir, *, lease: str = "") -> Drill:
    status = read_trainer_status(state, rows(state)["digits"], now_s=NOW_S)
    return choose(state, status, lease=lease)


def training(state: StateDir) -> Drill:
    assign(state, "digits", 1, nodes=3)
    report(state, 1, 0)
    report(state, 1, 40)
    return chosen(state)


def obey(state: StateDir, drill: Drill) -> None:
    """Do all that agents and program do when all is well, but for training on."""
    folder = state.trainer("digits")
    folder.notice(1, drill.lease.key).touch()
    folder.run.stop_request(1).touch()
    end(state, "digits", 1, EndingKind.RESCALED, step=50, committed_step=50)
    beat(state, drill.lease.key, AgentState.ENDED)


def test_the_last_lease_is_taken_unless_one_is_named(digits: StateDir) -> None:
    assert training(digits).lease.node == "n3"
    assert chosen(digits, lease="n1").lease.node == "n1"
    assert chosen(digits, lease="u2-0").lease.node == "n2"
    with pytest.raises(UsageError, match=r"no lease .*it is on n1, n2, n3"):
        chosen(digits, lease="$(reboot)")


@pytest.mark.parametrize("now", [TrainerState.WANTED, TrainerState.PAUSED])
def test_a_trainer_that_may_train_later_can_be_drilled_then(
    digits: StateDir, now: TrainerState
) -> None:
    put_state(digits, "digits", now)

    with pytest.raises(TryLaterError, match=r"digits is (waiting|paused)"):
        chosen(digits)


@pytest.mark.parametrize("became", ["finished", "failed", "cancelled", "given up"])
@pytest.mark.parametrize("leaves_a_world", [False, True])
def test_a_trainer_that_has_ended_is_not_worth_another_try(
    digits: StateDir, became: str, *, leaves_a_world: bool
) -> None:
    if leaves_a_world or became == "given up":
        training(digits)
    if became == "given up":  # by its program; no tick has written it down
        end(digits, "digits", 1, EndingKind.DO_NOT_RESTART)
    else:
        put_state(digits, "digits", TrainerState(became))

    with pytest.raises(UsageError, match=r"Nothing was done\. Name one that trains"):
        chosen(digits)


def test_a_drill_that_goes_well_sees_everything_and_loses_nothing(
    digits: StateDir,
) -> None:
    drill = training(digits)
    assert drill.poll(0.1) == ()

    obey(digits, drill)
    assign(digits, "digits", 2, nodes=2)
    seen = drill.poll(0.5)
    report(digits, 2, 50)
    report(digits, 2, 51, t=NOW_S + 42.0)
    seen += drill.poll(1.5)
    assert not drill.is_complete
    drill.note(DrillMark.GONE, 2.0)

    assert seen == tuple(
        mark for mark in DrillMark if mark not in {DrillMark.NOTIFIED, DrillMark.GONE}
    )
    assert drill.is_complete
    assert (drill.seen_s[DrillMark.BACK], drill.pause_s) == (1.5, 2.0)
    assert (drill.lost_steps, problems_of(drill, patience_s=9.0)) == (0, [])


def test_steps_that_are_done_again_fail_it(digits: StateDir) -> None:
    drill = training(digits)
    obey(digits, drill)
    assign(digits, "digits", 2, nodes=2)
    report(digits, 2, 30)
    report(digits, 2, 31)
    drill.poll(1.0)
    drill.note(DrillMark.GONE, 2.0)

    (problem,) = problems_of(drill, patience_s=9.0)

    assert drill.lost_steps == 20
    assert problem.startswith("20 steps were done again")


def test_steps_before_the_end_of_the_generation_is_known_count(
    digits: StateDir,
) -> None:
    drill = training(digits)
    report(digits, 2, 38)
    drill.poll(1.0)

    assert (drill.restored_step, drill.lost_steps) == (38, 2)


def test_a_program_that_only_prints_its_steps_began_before_the_first(
    digits: StateDir,
) -> None:
    drill, logs = training(digits), digits.trainer("digits").logs
    prints = ProgressSettings(form=ProgressFormat.PATTERN, pattern=r"(?P<step>\d+)")
    job = structs.replace(drill.job, elastic=False, progress=prints)
    drill = Drill(digits, job, drill.assigned, drill.lease)
    for generation, step in ((1, 40), (2, 41)):
        (logs / f"{generation:010d}.log").write_text(f"{step}\n")

    assert DrillMark.BACK in drill.poll(1.0)
    assert (drill.restored_step, drill.lost_steps) == (40, 0)


def test_a_trainer_that_does_not_come_back_is_a_problem_with_advice(
    digits: StateDir,
) -> None:
    drill = training(digits)
    drill.poll(1.0)

    heard, back = problems_of(drill, patience_s=9.0)

    assert "the agent did not hear of it" in heard
    assert "did not train again within 9 s" in back


def test_at_its_smallest_size_it_needs_a_tick() -> None:
    state = at_home(JOB.replace("max = 8", "min = 3\nmax = 8"))
    run("submit", "job.toml")
    drill = training(state)
    obey(state, drill)
    drill.poll(1.0)
    drill.note(DrillMark.GONE, 2.0)

    (problem,) = problems_of(drill, patience_s=9.0)

    assert drill.nodes_left == 0
    assert "do ticks run" in problem


def test_a_lease_that_stays_fails_it(digits: StateDir) -> None:
    drill = training(digits)
    obey(digits, drill)
    report(digits, 2, 50)
    report(digits, 2, 51)
    drill.poll(1.0)

    (problem,) = problems_of(drill, patience_s=9.0)

    assert "the lease was not gone after 9 s" in problem


@dataclass(frozen=True, slots=True)
class Stage:
    """A trainer that trains in one lease of a fake Slurm."""

    folder: Path
    state: StateDir
    fake: FakeSlurm
    backend: CommandLine

    def drill(self, *words: str, sleep: Callable[[float], None]) -> Ran:
        environ = self.fake.environ | {"HOME": str(self.folder)}
        return run("drill", "digits", *words, environ=environ, sleep=sleep)

    def obey(self) -> None:
        """Do what agents and program do when all is well."""
        self.state.trainer("digits").notice(1, LeaseKey("u1", 0)).touch()
        end(self.state, "digits", 1, EndingKind.RESCALED, step=50, committed_step=50)
        assign(self.state, "digits", 2, nodes=1)
        report(self.state, 2, 50)
        report(self.state, 2, 51)
        self.backend.cancel([job.key for job in self.jobs()])

    def jobs(self) -> list[JobRecord]:
        return list(self.backend.find_by_name(job_name("u1")))

    def notices(self) -> int:
        return sum("--signal=TERM" in call for call in self.fake.calls("scancel"))


@pytest.fixture
def stage(tmp_path: Path, digits: StateDir) -> Stage:
    folder = tmp_path / "fake-slurm"
    folder.mkdir()
    fake = install(folder)
    backend = CommandLine(SubprocessRunner(fake.environ))
    script = tmp_path / "lease.sh"
    script.write_text("#!/bin/sh\nsleep 600\n")
    request = LeaseRequest(
        name=job_name("u1"),
        comment="",
        partition="freetrain",
        limit_min=5,
        nice=10_000,
        script=str(script),
    )
    number = backend.submit(request).job_id
    first = assignment("digits", 1, nodes=1)
    lease = replace(first.members[0], job_id=number, display_id=str(number))
    first = replace(first, members=(lease,))
    assert create_assigned(digits.trainer("digits"), first)
    report(digits, 1, 0)
    report(digits, 1, 40)
    return Stage(tmp_path, digits, fake, backend)


def test_a_drill_that_goes_well_exits_with_0(stage: Stage) -> None:
    acts = iter([stage.obey])

    ran = stage.drill(sleep=lambda _: next(acts, lambda: None)())

    assert ran.code == 0, ran.stderr
    assert "told to leave" in ran.stdout
    assert "the world was over: rescaled, step 50, committed 50" in ran.stdout
    assert "it trained again, from step 50 on" in ran.stdout
    assert ran.stdout.endswith("No work was lost.\n")
    assert stage.notices() == 1


def test_a_drill_that_fails_exits_with_1_and_says_what_to_do(stage: Stage) -> None:
    ran = stage.drill("--patience", "20", "--json", sleep=lambda _: None)

    shown = json.loads(ran.stdout)
    assert ran.code == 1
    assert shown["seen_s"]["back"] is None
    assert "did not train again within 20 s" in shown["problems"][-1]


def test_a_lease_that_slurm_does_not_show_is_left_alone(stage: Stage) -> None:
    stage.backend.cancel([job.key for job in stage.jobs()])

    ran = stage.drill(sleep=lambda _: None)

    assert ran.code == 75
    assert "Nothing was done." in ran.stderr
    assert stage.notices() == 0
