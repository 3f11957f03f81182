"""Cancel, pause and resume are written down, and worlds are stopped at once."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from freetrain.client.trainers import Changed, Verb, change, leave
from freetrain.errors import TryLaterError, UsageError
from freetrain.state.files import (
    GO_ON,
    USER,
    AssignmentFile,
    EndingKind,
    StateDir,
    TrainerDir,
    create_assigned,
    generations,
    newest_assigned,
    read_assigned,
)
from freetrain.state.tables import TrainerState as State
from tests.client.client_states import NOW_S, UID, assign, end, put_state, rows

LATER_S = NOW_S + 100.0


def changed(state: StateDir, verb: Verb) -> Changed:
    (result,) = change(state, verb, ["digits"], now_s=LATER_S, uid=UID)
    return result


@pytest.fixture
def folder(digits: StateDir) -> TrainerDir:
    return digits.trainer("digits")


@pytest.mark.parametrize("before", [State.WANTED, State.CANCELLED])
@pytest.mark.parametrize(
    ("verb", "becomes"),
    [(Verb.CANCEL, State.CANCELLED), (Verb.PAUSE, State.PAUSED)],
)
def test_a_world_is_stopped_at_once_by_an_empty_generation(
    digits: StateDir, folder: TrainerDir, verb: Verb, before: State, becomes: State
) -> None:
    if before is not State.WANTED:  # a crash came between the row and the generation
        put_state(digits, "digits", becomes)
    assign(digits, "digits", 1, nodes=3)

    result = changed(digits, verb)

    newest = read_assigned(folder, 2)
    assert newest_assigned(folder) == newest
    assert (newest.members, newest.author, result.stopping_nodes) == ((), USER, 3)
    assert rows(digits)["digits"].state is becomes
    assert (result.row.changed_s == LATER_S) == (before is State.WANTED)


@pytest.mark.parametrize("verb", list(Verb))
def test_done_twice_it_is_done_once(
    digits: StateDir, folder: TrainerDir, verb: Verb
) -> None:
    assign(digits, "digits", 1, nodes=3)
    changed(digits, Verb.PAUSE)
    changed(digits, verb)
    before = rows(digits), generations(folder.assignments)

    assert not changed(digits, verb).is_change
    assert (rows(digits), generations(folder.assignments)) == before


def test_a_trainer_that_never_ran_gets_no_generation(
    digits: StateDir, folder: TrainerDir
) -> None:
    changed(digits, Verb.PAUSE)
    changed(digits, Verb.RESUME)

    assert generations(folder.assignments) == ()


@pytest.mark.parametrize("ended", [State.CANCELLED, State.FAILED, State.PAUSED])
def test_resuming_makes_older_endings_count_no_more(
    digits: StateDir, folder: TrainerDir, ended: State
) -> None:
    assign(digits, "digits", 1, nodes=3)
    assign(digits, "digits", 2, nodes=0, reason="failed too often")
    put_state(digits, "digits", ended)

    assert changed(digits, Verb.RESUME).row.state is State.WANTED
    newest = read_assigned(folder, 3)
    assert (newest.reason, newest.author) == (GO_ON, USER)


@pytest.mark.parametrize(
    ("verb", "ended"),
    [
        (Verb.PAUSE, State.FINISHED),
        (Verb.PAUSE, State.CANCELLED),
        (Verb.RESUME, State.FINISHED),
        (Verb.CANCEL, State.FINISHED),
        (Verb.CANCEL, State.FAILED),
    ],
)
def test_a_verb_that_makes_no_sense_changes_nothing_and_says_so(
    digits: StateDir, folder: TrainerDir, verb: Verb, ended: State
) -> None:
    assign(digits, "digits", 1, nodes=3)
    put_state(digits, "digits", ended)

    assert not changed(digits, verb).is_possible
    assert generations(folder.assignments) == (1,)
    assert rows(digits)["digits"].state is ended


@pytest.mark.parametrize("verb", list(Verb))
@pytest.mark.parametrize("before", [State.WANTED, State.PAUSED])
def test_a_trainer_whose_program_finished_stays_finished_before_a_tick_notes_it(
    digits: StateDir, folder: TrainerDir, verb: Verb, before: State
) -> None:
    put_state(digits, "digits", before)
    assign(digits, "digits", 1, nodes=3)
    end(digits, "digits", 1, EndingKind.FINISHED)

    result = changed(digits, verb)

    assert (result.is_possible, result.is_change) == (False, False)
    assert result.before is State.FINISHED
    assert generations(folder.assignments) == (1,)
    assert rows(digits)["digits"].state is before


def test_a_trainer_that_finished_and_was_let_go_on_can_be_paused(
    digits: StateDir, folder: TrainerDir
) -> None:
    assign(digits, "digits", 1, nodes=3)
    end(digits, "digits", 1, EndingKind.FINISHED)
    assign(digits, "digits", 2, nodes=0, reason=GO_ON)
    assign(digits, "digits", 3, nodes=3)

    assert changed(digits, Verb.PAUSE).row.state is State.PAUSED
    assert generations(folder.assignments) == (1, 2, 3, 4)


def test_a_damaged_ending_does_not_prevent_a_cancel(
    digits: StateDir, folder: TrainerDir
) -> None:
    assign(digits, "digits", 1, nodes=3)
    folder.ending(1).write_text("{")

    assert changed(digits, Verb.CANCEL).row.state is State.CANCELLED


def test_an_unknown_name_keeps_the_others_as_they_are(digits: StateDir) -> None:
    names = ["digits", "digit"]
    with pytest.raises(UsageError, match=r"no trainer .*Did you mean 'digits'"):
        change(digits, Verb.CANCEL, names, now_s=LATER_S, uid=UID)

    assert rows(digits)["digits"].state is State.WANTED


@dataclass(frozen=True)
class Contested(TrainerDir):
    """A trainer's folder where another process creates files first, *first* times."""

    first: list[AssignmentFile] = field(default_factory=list)

    def assignment(self, generation: int) -> Path:
        path = TrainerDir(self.path).assignment(generation)
        if self.first and not path.exists():  # it is about to be created
            theirs = replace(self.first.pop(), generation=generation)
            assert create_assigned(TrainerDir(self.path), theirs)
        return path


@pytest.mark.parametrize("lost", [1, 5])
def test_against_other_authors_the_last_generation_is_empty(
    digits: StateDir, folder: TrainerDir, lost: int
) -> None:
    newest = assign(digits, "digits", 1, nodes=3)

    ran = leave(Contested(folder.path, [newest] * lost), reason="x", now_s=LATER_S)

    last = newest_assigned(folder)
    assert ran is not None
    assert last is not None
    assert (last.members, last.generation) == ((), ran.generation + 1)
    assert last.generation > 2


def test_a_stop_that_others_keep_preventing_is_left_to_the_tick(
    digits: StateDir, folder: TrainerDir
) -> None:
    newest = assign(digits, "digits", 1, nodes=3)

    with pytest.raises(TryLaterError, match="the next tick will"):
        leave(Contested(folder.path, [newest] * 500), reason="x", now_s=LATER_S)
