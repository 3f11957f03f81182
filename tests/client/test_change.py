"""What users want is written down, and their worlds are stopped at once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from freetrain.client.trainers import Changed, Verb, change, leave
from freetrain.errors import TryLaterError, UsageError
from freetrain.state.files import (
    GO_ON,
    USER,
    Assigned,
    TrainerDir,
    create_assigned,
    generations,
    newest_assigned,
    read_assigned,
)
from freetrain.state.tables import TrainerState
from tests.client.client_states import (
    NOW_S,
    UID,
    a_job,
    a_state,
    assign,
    put_state,
    rows,
    submitted,
)

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.state.files import StateDir

LATER_S = NOW_S + 100.0


def changed(state: StateDir, verb: Verb, *names: str) -> tuple[Changed, ...]:
    return change(state, verb, names, now_s=LATER_S, uid=UID)


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    made = a_state(tmp_path)
    submitted(made, a_job(tmp_path))
    return made


@pytest.fixture
def folder(state: StateDir) -> TrainerDir:
    return state.trainer("digits")


@pytest.mark.parametrize(
    ("verb", "becomes"),
    [
        (Verb.CANCEL, TrainerState.CANCELLED),
        (Verb.PAUSE, TrainerState.PAUSED),
    ],
)
def test_a_world_is_stopped_at_once_by_an_empty_generation(
    state: StateDir, folder: TrainerDir, verb: Verb, becomes: TrainerState
) -> None:
    assign(state, "digits", 1, nodes=3)

    (told,) = changed(state, verb, "digits")

    newest = newest_assigned(folder)
    assert newest is not None
    assert (newest.generation, newest.members, newest.author) == (2, (), USER)
    assert (told.stopping_nodes, told.row.changed_s) == (3, LATER_S)
    assert rows(state)["digits"].state is becomes


@pytest.mark.parametrize("verb", list(Verb))
def test_done_twice_it_is_done_once(
    state: StateDir, folder: TrainerDir, verb: Verb
) -> None:
    assign(state, "digits", 1, nodes=3)
    changed(state, Verb.PAUSE, "digits")
    changed(state, verb, "digits")
    before = rows(state), generations(folder.assignments)

    (told,) = changed(state, verb, "digits")

    assert not told.is_change
    assert (rows(state), generations(folder.assignments)) == before


def test_a_stop_that_a_crash_cut_off_is_finished_by_the_next_call(
    state: StateDir, folder: TrainerDir
) -> None:
    put_state(state, "digits", TrainerState.CANCELLED)
    assign(state, "digits", 1, nodes=3)

    (told,) = changed(state, Verb.CANCEL, "digits")

    newest = newest_assigned(folder)
    assert told.stopping_nodes == 3
    assert newest is not None
    assert not newest.members


def test_a_trainer_that_never_ran_gets_no_generation(
    state: StateDir, folder: TrainerDir
) -> None:
    changed(state, Verb.PAUSE, "digits")
    changed(state, Verb.RESUME, "digits")

    assert generations(folder.assignments) == ()


@pytest.mark.parametrize(
    "ended", [TrainerState.CANCELLED, TrainerState.FAILED, TrainerState.PAUSED]
)
def test_resuming_makes_older_endings_count_no_more(
    state: StateDir, folder: TrainerDir, ended: TrainerState
) -> None:
    assign(state, "digits", 1, nodes=3)
    assign(state, "digits", 2, nodes=0, reason="failed too often")
    put_state(state, "digits", ended)

    (told,) = changed(state, Verb.RESUME, "digits")

    assert told.row.state is TrainerState.WANTED
    assert read_assigned(folder, 3).reason == GO_ON
    assert read_assigned(folder, 3).author == USER


@pytest.mark.parametrize(
    ("verb", "ended"),
    [
        (Verb.PAUSE, TrainerState.FINISHED),
        (Verb.PAUSE, TrainerState.CANCELLED),
        (Verb.RESUME, TrainerState.FINISHED),
        (Verb.CANCEL, TrainerState.FINISHED),
        (Verb.CANCEL, TrainerState.FAILED),
    ],
)
def test_what_makes_no_sense_changes_nothing_and_says_so(
    state: StateDir, folder: TrainerDir, verb: Verb, ended: TrainerState
) -> None:
    assign(state, "digits", 1, nodes=3)
    put_state(state, "digits", ended)

    (told,) = changed(state, verb, "digits")

    assert not told.is_possible
    assert generations(folder.assignments) == (1,)
    assert rows(state)["digits"].state is ended


def test_an_unknown_name_keeps_the_others_as_they_are(state: StateDir) -> None:
    with pytest.raises(UsageError, match=r"no trainer .*Did you mean 'digits'"):
        changed(state, Verb.CANCEL, "digits", "digit")

    assert rows(state)["digits"].state is TrainerState.WANTED


@dataclass(frozen=True)
class Contested(TrainerDir):
    """A trainer's folder where another process creates files first, *first* times."""

    first: list[Assigned] = field(default_factory=list)

    def assignment(self, generation: int) -> Path:
        path = TrainerDir(self.path).assignment(generation)
        if self.first and not path.exists():  # it is about to be created
            theirs = replace(self.first.pop(), generation=generation)
            assert create_assigned(TrainerDir(self.path), theirs)
        return path


@pytest.mark.parametrize("lost", [1, 5])
def test_against_other_authors_the_last_generation_is_empty(
    state: StateDir, folder: TrainerDir, lost: int
) -> None:
    newest = assign(state, "digits", 1, nodes=3)
    contested = Contested(folder.path, [newest] * lost)

    told = leave(contested, reason="cancelled", now_s=LATER_S)

    last = newest_assigned(folder)
    assert told is not None
    assert last is not None
    assert (last.members, last.generation) == ((), told.generation + 1)
    assert last.generation > 2


def test_a_stop_that_others_keep_preventing_is_left_to_the_tick(
    state: StateDir, folder: TrainerDir
) -> None:
    newest = assign(state, "digits", 1, nodes=3)

    with pytest.raises(TryLaterError, match="the next tick will"):
        leave(Contested(folder.path, [newest] * 500), reason="x", now_s=LATER_S)
