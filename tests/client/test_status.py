"""What a trainer does is read from its files, whatever state they are in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from freetrain.client.status import (
    LONG_S,
    SILENT_S,
    Doing,
    TrainerStatus,
    overview,
    read_trainer_status,
)
from freetrain.client.trainers import Verb, change
from freetrain.errors import UsageError
from freetrain.state.database import StoreMissingError
from freetrain.state.files import USER, AgentState, Ended, Heartbeat, write_heartbeat
from freetrain.state.tables import TrainerState
from tests.client.client_states import (
    NOW_S,
    UID,
    a_job,
    a_page,
    a_state,
    assign,
    end,
    leave_checkpoint,
    put_page,
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


def status(state: StateDir) -> TrainerStatus:
    return read_trainer_status(state, rows(state)["digits"])


def tell(state: StateDir, generation: int, **fields: float) -> None:
    """Let the program of *generation* write a progress line."""
    run = state.trainer("digits").run
    run.path.mkdir(exist_ok=True)
    line = {"t": NOW_S, "step": 1, "samples": 32, "generation": generation, **fields}
    with run.progress.open("a") as file:
        file.write(json.dumps(line) + "\n")


def test_a_trainer_that_never_ran_waits(state: StateDir) -> None:
    assert (status(state).doing, status(state).nodes) == (Doing.WAITING, 0)


def test_it_trains_once_its_newest_generation_tells_of_progress(
    state: StateDir,
) -> None:
    assign(state, "digits", 1, nodes=2)
    assert status(state).doing is Doing.STARTING

    tell(state, 1)

    assert status(state).doing is Doing.TRAINING


def test_the_next_world_is_a_rescale_until_the_last_one_is_over(
    state: StateDir,
) -> None:
    assign(state, "digits", 1, nodes=2)
    tell(state, 1)
    assign(state, "digits", 2, nodes=3)
    assert (status(state).doing, status(state).nodes) == (Doing.RESCALING, 3)

    end(state, "digits", 1, Ended.RESCALED)
    assert status(state).doing is Doing.STARTING

    tell(state, 2)
    assert status(state).doing is Doing.TRAINING


@pytest.mark.parametrize(
    ("verb", "rests"), [(Verb.PAUSE, Doing.PAUSED), (Verb.CANCEL, Doing.CANCELLED)]
)
def test_a_trainer_that_is_to_stop_is_stopping_until_it_is_over(
    state: StateDir, verb: Verb, rests: Doing
) -> None:
    assign(state, "digits", 1, nodes=2)
    tell(state, 1)
    change(state, verb, ["digits"], now_s=NOW_S + 9.0, uid=UID)
    assert (status(state).doing, status(state).nodes) == (Doing.STOPPING, 0)

    end(state, "digits", 1, Ended.RESCALED)

    assert status(state).doing is rests
    assert status(state).since_s == NOW_S + 9.0


@pytest.mark.parametrize(
    ("ended", "doing"),
    [(Ended.FINISHED, Doing.FINISHED), (Ended.DO_NOT_RESTART, Doing.FAILED)],
)
def test_a_program_that_ended_its_training_is_believed_before_the_next_tick(
    state: StateDir, ended: Ended, doing: Doing
) -> None:
    assign(state, "digits", 1, nodes=2)
    tell(state, 1)
    end(state, "digits", 1, ended)
    assert status(state).doing is doing

    assign(state, "digits", 2, nodes=0)

    assert status(state).doing is doing
    put_state(state, "digits", TrainerState.CANCELLED)
    assert status(state).doing is Doing.CANCELLED


def test_a_trainer_that_its_user_resumed_waits_though_its_program_had_finished(
    state: StateDir,
) -> None:
    assign(state, "digits", 1, nodes=2)
    end(state, "digits", 1, Ended.FINISHED)

    assign(state, "digits", 2, nodes=0, author=USER)

    assert status(state).doing is Doing.WAITING


def test_a_program_that_reports_nothing_trains_when_its_agent_says_so(
    tmp_path: Path,
) -> None:
    state = a_state(tmp_path)
    submitted(state, a_job(tmp_path, elastic=False))
    head = assign(state, "digits", 1, nodes=2).members[0]
    lease = state.lease(head.key)
    lease.create()
    beat = Heartbeat(
        beat=1,
        t=NOW_S,
        node="n1",
        host="n1",
        pid=1,
        state=AgentState.TRAINING,
        trainer="digits",
        generation=1,
    )
    assert status(state).doing is Doing.STARTING

    write_heartbeat(lease.heartbeat, beat)

    assert status(state).doing is Doing.TRAINING


def test_speed_is_the_present_one_and_none_for_a_trainer_that_does_not_train(
    state: StateDir,
) -> None:
    assign(state, "digits", 1, nodes=2)
    tell(state, 1)
    tell(state, 1, t=NOW_S + 10.0, samples=1032)
    assert status(state).samples_per_s == pytest.approx(100.0)

    put_state(state, "digits", TrainerState.PAUSED)

    assert status(state).samples_per_s is None


def test_the_newest_checkpoint_tells_what_is_committed(state: StateDir) -> None:
    leave_checkpoint(state.trainer("digits").run.path, generation=2, step=70)

    assert status(state).committed_step == 70


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"members": 3}', b"\xff"])
def test_a_damaged_file_is_named_and_hides_no_other_trainer(
    state: StateDir, tmp_path: Path, content: bytes
) -> None:
    submitted(state, a_job(tmp_path, name="other"))
    path = state.trainer("digits").assignment(1)
    path.write_bytes(content)

    seen = overview(state, name=None, uid=UID, now_s=NOW_S)

    one, other = seen.standings
    assert (one.doing, other.doing) == (Doing.UNREADABLE, Doing.WAITING)
    assert str(path) in one.problem


def test_without_a_state_there_is_nothing_to_see(tmp_path: Path) -> None:
    with pytest.raises(StoreMissingError, match="Submit a trainer first"):
        overview(a_state(tmp_path), name=None, uid=UID, now_s=NOW_S)
    assert not a_state(tmp_path).path.exists()


def test_an_unknown_name_is_refused(state: StateDir) -> None:
    with pytest.raises(UsageError, match="Did you mean 'digits'"):
        overview(state, name="digit", uid=UID, now_s=NOW_S)


def test_a_trainer_that_ended_long_ago_is_left_out_unless_asked_for(
    state: StateDir, tmp_path: Path
) -> None:
    submitted(state, a_job(tmp_path, name="live"))
    put_state(state, "digits", TrainerState.FINISHED)
    later_s = NOW_S + LONG_S + 1.0

    seen = overview(state, name=None, uid=UID, now_s=later_s, ended=False)
    every = overview(state, name=None, uid=UID, now_s=later_s)

    assert [one.row.name for one in seen.standings] == ["live"]
    assert (seen.left_out, len(every.standings), every.left_out) == (1, 2, 0)


@pytest.mark.parametrize(
    ("age_s", "missing"), [(1.0, False), (SILENT_S + 1.0, True), (None, True)]
)
def test_ticks_that_stopped_are_noticed(
    state: StateDir, age_s: float | None, *, missing: bool
) -> None:
    if age_s is not None:
        put_page(state, a_page(at_s=NOW_S - age_s))

    assert overview(state, name=None, uid=UID, now_s=NOW_S).is_tick_missing is missing


@pytest.mark.parametrize("page", ["", "[1", "[]", '{"at_s": "soon", "version": 99}'])
def test_a_page_that_cannot_be_read_hides_no_trainer(
    state: StateDir, page: str
) -> None:
    state.page.write_text(page)

    seen = overview(state, name=None, uid=UID, now_s=NOW_S)

    assert [one.row.name for one in seen.standings] == ["digits"]
    assert str(state.page) in seen.problem
