"""``freetrain drill``: one lease is told through Slurm, then it is only watched."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from freetrain.broker.lease import LeaseKey, job_name
from freetrain.state.files import Assigned, AssignedLease, Ended, create_assigned
from slurm.backend import CommandLine
from slurm.batch import LeaseRequest
from slurm.runner import SubprocessRunner
from tests.cli.commands import Ran, run
from tests.client.client_states import NOW_S, assign, end
from tests.client.test_drill import tell
from tests.fakes.slurm.installing import USER, FakeSlurm, install

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from freetrain.state.files import StateDir
    from slurm.records import JobRecord


@dataclass(frozen=True, slots=True)
class Stage:
    """A trainer that trains in one lease of a fake Slurm."""

    folder: Path
    state: StateDir
    fake: FakeSlurm
    backend: CommandLine

    def drill(self, *words: str, sleep: Callable[[float], None]) -> Ran:
        environ = self.fake.environ | {"HOME": str(self.folder)}
        return run(
            "drill", "digits", *words, cwd=self.folder, environ=environ, sleep=sleep
        )

    def obey(self) -> None:
        """Do what agents and program do when all is well."""
        self.state.trainer("digits").notice(1, LeaseKey("u1", 0)).touch()
        end(self.state, "digits", 1, Ended.RESCALED, step=50, committed_step=50)
        assign(self.state, "digits", 2, nodes=1)
        tell(self.state, 2, 50)
        tell(self.state, 2, 51)
        self.backend.cancel([one.key for one in self.jobs()])

    def jobs(self) -> list[JobRecord]:
        return list(self.backend.find_by_name(job_name("u1")))


@pytest.fixture
def stage(tmp_path: Path, digits: StateDir) -> Stage:
    folder = tmp_path / "fake-slurm"
    folder.mkdir()
    fake = install(folder)
    backend = CommandLine(SubprocessRunner(fake.environ), user=USER)
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
    member = AssignedLease(
        key=LeaseKey("u1", 0), job_id=number, display_id=str(number), node="n1"
    )
    first = Assigned(
        trainer="digits",
        generation=1,
        members=(member,),
        created_s=NOW_S,
        author="broker",
        reason="grow",
    )
    assert create_assigned(digits.trainer("digits"), first)
    tell(digits, 1, 0)
    tell(digits, 1, 40)
    return Stage(tmp_path, digits, fake, backend)


def test_a_drill_that_goes_well_exits_with_0(stage: Stage) -> None:
    acts = iter([stage.obey])

    ran = stage.drill(sleep=lambda _: next(acts, lambda: None)())

    assert ran.code == 0, ran.stderr
    assert "told to leave" in ran.stdout
    assert "the world was over: rescaled, step 50, committed 50" in ran.stdout
    assert "it trained again, from step 50 on" in ran.stdout
    assert ran.stdout.endswith("No work was lost.\n")
    signalled = [
        call for call in stage.fake.calls("scancel") if "--signal=TERM" in call
    ]
    assert len(signalled) == 1


def test_a_drill_that_fails_exits_with_1_and_says_what_to_do(stage: Stage) -> None:
    ran = stage.drill("--patience", "20", "--json", sleep=lambda _: None)

    shown = json.loads(ran.stdout)
    assert ran.code == 1
    assert shown["seen_s"]["back"] is None
    assert "did not train again within 20 s" in shown["problems"][-1]


def test_a_lease_that_slurm_does_not_show_is_left_alone(stage: Stage) -> None:
    stage.backend.cancel([one.key for one in stage.jobs()])

    ran = stage.drill(sleep=lambda _: None)

    assert ran.code == 75
    assert "Nothing was done." in ran.stderr
    assert not [call for call in stage.fake.calls("scancel") if "--signal=TERM" in call]
