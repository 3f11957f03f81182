"""A trainer's activity is read from its files, whatever state they are in."""

from pathlib import Path

import pytest

from freetrain.client.status import (
    LONG_S,
    Doing,
    Overview,
    TrainerStatus,
    overview,
    read_trainer_status,
    reason_of,
)
from freetrain.client.trainers import Verb, change
from freetrain.state.files import USER, AgentState, EndingKind, StateDir
from freetrain.state.tables import TrainerState
from freetrain.tick.status_report import TICKS_SILENT_S
from tests.client.client_states import (
    NOW_S,
    UID,
    a_job,
    a_page,
    assign,
    beat,
    end,
    leave_checkpoint,
    put_page,
    put_state,
    report,
    rows,
    submitted,
)


def status(state: StateDir) -> TrainerStatus:
    return read_trainer_status(state, rows(state)["digits"], now_s=NOW_S)


def seen(state: StateDir, *, now_s: float = NOW_S, ended: bool = True) -> Overview:
    return overview(state, name=None, uid=UID, now_s=now_s, ended=ended)


def names(view: Overview) -> list[str]:
    return [status.row.name for status in view.standings]


def test_it_waits_starts_trains_and_rescales(digits: StateDir) -> None:
    assert (status(digits).doing, status(digits).nodes) == (Doing.WAITING, 0)

    assign(digits, "digits", 1, nodes=2)
    assert status(digits).doing is Doing.STARTING
    report(digits, 1, 1)
    assert status(digits).doing is Doing.TRAINING

    assign(digits, "digits", 2, nodes=3)
    assert (status(digits).doing, status(digits).nodes) == (Doing.RESCALING, 3)
    end(digits, "digits", 1, EndingKind.RESCALED)
    assert status(digits).doing is Doing.STARTING
    report(digits, 2, 2)
    assert status(digits).doing is Doing.TRAINING


@pytest.mark.parametrize(
    ("generation", "doing"), [(1, Doing.STALLED), (9, Doing.TRAINING)]
)
def test_it_has_stalled_where_the_agent_of_its_head_says_so(
    digits: StateDir, generation: int, doing: Doing
) -> None:
    head = assign(digits, "digits", 1, nodes=2).members[0].key
    report(digits, 1, 1)
    beat(digits, head, AgentState.TRAINING, generation=generation, is_stalled=True)

    assert status(digits).doing is doing


@pytest.mark.parametrize(
    ("verb", "rests"), [(Verb.PAUSE, Doing.PAUSED), (Verb.CANCEL, Doing.CANCELLED)]
)
def test_a_trainer_that_is_to_stop_is_stopping_until_it_is_over(
    digits: StateDir, verb: Verb, rests: Doing
) -> None:
    assign(digits, "digits", 1, nodes=2)
    report(digits, 1, 1)
    change(digits, verb, ["digits"], now_s=NOW_S + 9.0, uid=UID)
    assert (status(digits).doing, status(digits).nodes) == (Doing.STOPPING, 0)

    end(digits, "digits", 1, EndingKind.RESCALED)

    assert (status(digits).doing, status(digits).since_s) == (rests, NOW_S + 9.0)


@pytest.mark.parametrize(
    ("ended", "doing"),
    [(EndingKind.FINISHED, Doing.FINISHED), (EndingKind.DO_NOT_RESTART, Doing.FAILED)],
)
def test_a_program_that_ended_its_training_is_believed_before_the_next_tick(
    digits: StateDir, ended: EndingKind, doing: Doing
) -> None:
    assign(digits, "digits", 1, nodes=2)
    report(digits, 1, 1)
    end(digits, "digits", 1, ended)
    assert status(digits).doing is doing

    assign(digits, "digits", 2, nodes=0)

    assert status(digits).doing is doing
    put_state(digits, "digits", TrainerState.CANCELLED)
    assert status(digits).doing is Doing.CANCELLED


def test_a_trainer_that_its_user_resumed_waits_though_its_program_had_finished(
    digits: StateDir,
) -> None:
    assign(digits, "digits", 1, nodes=2)
    end(digits, "digits", 1, EndingKind.FINISHED)

    assign(digits, "digits", 2, nodes=0, author=USER)

    assert status(digits).doing is Doing.WAITING


def test_a_program_that_reports_nothing_trains_when_its_agent_says_so(
    state: StateDir, tmp_path: Path
) -> None:
    submitted(state, a_job(tmp_path, elastic=False))
    head = assign(state, "digits", 1, nodes=2).members[0].key
    assert status(state).doing is Doing.STARTING

    beat(state, head, AgentState.TRAINING, trainer="digits", generation=1)

    assert status(state).doing is Doing.TRAINING


@pytest.mark.parametrize("elastic", [False, True])
def test_a_program_that_failed_says_so_until_it_is_started_again(
    state: StateDir, tmp_path: Path, *, elastic: bool
) -> None:
    submitted(state, a_job(tmp_path, elastic=elastic))
    failed = {"message": "exit code 1", "step": 0, "committed_step": 0}
    for generation in (1, 2):
        head = assign(state, "digits", generation, nodes=2).members[0].key
        log(state, generation)
        end(state, "digits", generation, EndingKind.FAILED, **failed)
    between = status(state)
    assign(state, "digits", 3, nodes=2)
    beat(state, head, AgentState.TRAINING, trainer="digits", generation=3)

    waiting = status(state)
    early, late = seen(state, now_s=NOW_S + 90.0), seen(state, now_s=NOW_S + 150.0)
    said = "it failed 2 times in a row: exit code 1; it is started again"
    assert (between.doing, waiting.doing) == (Doing.STARTING, Doing.STARTING)
    assert between.retry == waiting.retry
    assert reason_of(waiting, early) == f"{said} in 30 s."
    assert reason_of(waiting, late) == f"{said} now."

    log(state, 3)

    started = status(state)
    assert started.retry is None
    assert started.doing is (Doing.STARTING if elastic else Doing.TRAINING)
    assert reason_of(started, early) == ""


def log(state: StateDir, generation: int) -> None:
    """Let the world of *generation* be launched: its log is made."""
    logs = state.trainer("digits").logs
    logs.mkdir(parents=True, exist_ok=True)
    (logs / f"{generation:010d}.log").touch()


@pytest.mark.parametrize("changes", [{"lost_lease": True}, {"was_asked": True}])
def test_what_is_no_failure_of_the_program_is_not_called_one(
    digits: StateDir, changes: dict[str, bool]
) -> None:
    assign(digits, "digits", 1, nodes=2)
    end(digits, "digits", 1, EndingKind.KILLED, **changes)
    assign(digits, "digits", 2, nodes=1)

    assert status(digits).retry is None


def test_speed_is_the_present_one_and_none_for_a_trainer_that_does_not_train(
    digits: StateDir,
) -> None:
    assign(digits, "digits", 1, nodes=2)
    report(digits, 1, 1)
    report(digits, 1, 1001, t=NOW_S + 11.0)
    assert status(digits).samples_per_s == pytest.approx(100.0)

    put_state(digits, "digits", TrainerState.PAUSED)

    assert status(digits).samples_per_s is None


def test_the_newest_checkpoint_says_how_much_is_committed(digits: StateDir) -> None:
    leave_checkpoint(digits.trainer("digits").run.path, generation=2, step=70)

    assert status(digits).committed_step == 70


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"members": 3}', b"\xff"])
def test_a_damaged_file_is_named_and_hides_no_other_trainer(
    digits: StateDir, tmp_path: Path, content: bytes
) -> None:
    submitted(digits, a_job(tmp_path, name="other"))
    path = digits.trainer("digits").assignment(1)
    path.write_bytes(content)

    damaged, other = seen(digits).standings

    assert (damaged.doing, other.doing) == (Doing.UNREADABLE, Doing.WAITING)
    assert str(path) in damaged.problem


def test_a_trainer_that_ended_long_ago_is_left_out_unless_asked_for(
    digits: StateDir, tmp_path: Path
) -> None:
    submitted(digits, a_job(tmp_path, name="live"))
    put_state(digits, "digits", TrainerState.FINISHED)
    later_s = NOW_S + LONG_S + 1.0

    few, every = seen(digits, now_s=later_s, ended=False), seen(digits, now_s=later_s)

    assert (names(few), few.left_out) == (["live"], 1)
    assert (len(every.standings), every.left_out) == (2, 0)


@pytest.mark.parametrize(
    ("age_s", "missing"), [(1.0, False), (TICKS_SILENT_S + 1.0, True), (None, True)]
)
def test_ticks_that_stopped_are_noticed(
    digits: StateDir, age_s: float | None, *, missing: bool
) -> None:
    if age_s is not None:
        put_page(digits, a_page(at_s=NOW_S - age_s))

    assert seen(digits).is_tick_missing is missing


@pytest.mark.parametrize("page", ["", "[1", "[]", '{"at_s": "soon", "version": 99}'])
def test_a_report_that_cannot_be_read_hides_no_trainer(
    digits: StateDir, page: str
) -> None:
    digits.status_report.write_text(page)

    view = seen(digits)

    assert names(view) == ["digits"]
    assert str(digits.status_report) in view.problem
