"""A drill notes what files show, in whatever order, and judges by it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from freetrain.cli.drill import Drill, DrillMark, choose, problems_of
from freetrain.client.status import read_trainer_status
from freetrain.config.job import NodeSettings
from freetrain.errors import TryLaterError, UsageError
from freetrain.state.files import AgentState, Ended, Heartbeat, write_heartbeat
from freetrain.state.tables import TrainerState
from tests.client.client_states import (
    NOW_S,
    a_job,
    a_state,
    assign,
    end,
    put_state,
    rows,
    submitted,
)

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.state.files import StateDir


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    made = a_state(tmp_path)
    submitted(made, a_job(tmp_path))
    return made


def tell(state: StateDir, generation: int, step: int, **more: Any) -> None:  # noqa: ANN401
    """Let the program write a progress line."""
    run = state.trainer("digits").run
    run.control.mkdir(parents=True, exist_ok=True)
    told = {"t": NOW_S + step, "step": step, "samples": step, "generation": generation}
    with run.progress.open("a") as file:
        file.write(json.dumps(told | more) + "\n")


def drill(state: StateDir, *, lease: str = "") -> Drill:
    standing = read_trainer_status(state, rows(state)["digits"])
    return choose(state, standing, lease=lease)


def training(state: StateDir, nodes: int = 3) -> Drill:
    assign(state, "digits", 1, nodes=nodes)
    tell(state, 1, 0)
    tell(state, 1, 40)
    return drill(state)


def obey(state: StateDir, one: Drill) -> None:
    """Do all that agents and program do when all is well, but for training on."""
    folder = state.trainer("digits")
    folder.notice(1, one.lease.key).touch()
    folder.run.stop_request(1).touch()
    end(state, "digits", 1, Ended.RESCALED, step=50, committed_step=50)
    lease = state.lease(one.lease.key)
    lease.create()
    write_heartbeat(
        lease.heartbeat,
        Heartbeat(beat=9, t=NOW_S, node="n", host="n", pid=1, state=AgentState.ENDED),
    )


def test_the_last_lease_is_taken_unless_one_is_named(state: StateDir) -> None:
    assert training(state).lease.node == "n3"
    assert drill(state, lease="n1").lease.node == "n1"
    assert drill(state, lease="u2-0").lease.node == "n2"
    with pytest.raises(UsageError, match=r"no lease .*it is on n1, n2, n3"):
        drill(state, lease="$(reboot)")


def test_only_what_trains_can_be_drilled(state: StateDir) -> None:
    with pytest.raises(TryLaterError, match="digits is waiting"):
        drill(state)


@pytest.mark.parametrize("became", ["finished", "failed", "cancelled"])
@pytest.mark.parametrize("leaves_a_world", [False, True])
def test_what_has_ended_is_not_worth_another_try(
    state: StateDir, became: str, *, leaves_a_world: bool
) -> None:
    if leaves_a_world:
        training(state)
    put_state(state, "digits", TrainerState(became))

    with pytest.raises(UsageError, match=r"Nothing was done\. Name one that trains"):
        drill(state)


def test_what_its_program_gave_up_is_not_either(state: StateDir) -> None:
    training(state)
    end(state, "digits", 1, Ended.DO_NOT_RESTART)

    with pytest.raises(UsageError, match="digits is failed"):
        drill(state)


def test_what_is_paused_may_train_again(state: StateDir) -> None:
    put_state(state, "digits", TrainerState.PAUSED)

    with pytest.raises(TryLaterError, match="digits is paused"):
        drill(state)


def test_a_drill_that_goes_well_sees_everything_and_loses_nothing(
    state: StateDir,
) -> None:
    watch = training(state)
    assert watch.poll(0.1) == ()

    obey(state, watch)
    assign(state, "digits", 2, nodes=2)
    seen = watch.poll(0.5)
    tell(state, 2, 50)
    tell(state, 2, 51, t=NOW_S + 42.0)
    seen += watch.poll(1.5)
    watch.note(DrillMark.GONE, 2.0)

    assert seen == (
        *(
            DrillMark.HEARD,
            DrillMark.RE_FORMED,
            DrillMark.ASKED,
            DrillMark.OVER,
            DrillMark.LEFT,
            DrillMark.BACK,
        ),
    )
    assert watch.is_complete
    assert (watch.seen_s[DrillMark.BACK], watch.pause_s) == (1.5, 2.0)
    assert (watch.lost_steps, problems_of(watch, patience_s=9.0)) == (0, [])


def test_steps_that_are_done_again_fail_it(state: StateDir) -> None:
    watch = training(state)
    obey(state, watch)
    assign(state, "digits", 2, nodes=2)
    tell(state, 2, 30)
    tell(state, 2, 31)
    watch.poll(1.0)
    watch.note(DrillMark.GONE, 2.0)

    (problem,) = problems_of(watch, patience_s=9.0)

    assert watch.lost_steps == 20
    assert problem.startswith("20 steps were done again")


def test_a_program_that_tells_no_start_loses_what_it_does_again(
    tmp_path: Path,
) -> None:
    state = a_state(tmp_path)
    submitted(state, a_job(tmp_path, elastic=False))
    assigned = assign(state, "digits", 1, nodes=2)
    job = a_job(tmp_path, elastic=False)
    watch = Drill(state, job, assigned, assigned.members[1])

    watch.last_step = 40
    watch.restored_step = 38

    assert watch.lost_steps == 2


def test_one_that_does_not_come_back_is_told_what_to_do(state: StateDir) -> None:
    watch = training(state)
    watch.poll(1.0)

    heard, back = problems_of(watch, patience_s=9.0)

    assert "the agent did not hear of it" in heard
    assert "did not train again within 9 s" in back


def test_at_its_smallest_size_it_needs_a_tick(tmp_path: Path) -> None:
    state = a_state(tmp_path)
    submitted(state, a_job(tmp_path, nodes=NodeSettings(min_nodes=3, max_nodes=8)))
    watch = training(state)
    obey(state, watch)
    watch.poll(1.0)
    watch.note(DrillMark.GONE, 2.0)

    (problem,) = problems_of(watch, patience_s=9.0)

    assert watch.nodes_left == 0
    assert "do ticks run" in problem


def test_a_lease_that_stays_fails_it(state: StateDir) -> None:
    watch = training(state)
    obey(state, watch)
    tell(state, 2, 50)
    tell(state, 2, 51)
    watch.poll(1.0)

    (problem,) = problems_of(watch, patience_s=9.0)

    assert "the lease was not gone after 9 s" in problem
