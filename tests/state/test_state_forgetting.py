"""What is kept of trainers that are long over goes, unless somebody may use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.state.database import transaction
from freetrain.state.tables import (
    MOST_OTHERS,
    HistoryRow,
    LossForecastRow,
    TrainerRow,
    TrainerState,
    forget_histories,
    has_old_histories,
    history_of,
    loss_forecast_of,
    put_histories,
    put_loss_forecasts,
    put_trainers,
)
from tests.state.test_state_tables import new_state

if TYPE_CHECKING:
    import sqlite3

LONG_AGO_S, LATELY_S = 100.0, 900.0
BEFORE_S = 500.0


def told(state: sqlite3.Connection, name: str, *, submitted_s: float = 1.0) -> None:
    with transaction(state):
        put_histories(state, [HistoryRow(name, submitted_s, {}, {}, {})])
        put_loss_forecasts(state, [LossForecastRow(name, "x", {})])


def became(
    state: sqlite3.Connection, name: str, end: TrainerState, changed_s: float
) -> None:
    row = TrainerRow(name, "", "/run", end, 1.0, changed_s)
    with transaction(state):
        put_trainers(state, [row])


def latest(state: sqlite3.Connection, count: int) -> None:
    """Let *count* trainers be younger than all others."""
    for number in range(count):
        told(state, f"young{number}", submitted_s=1_000.0)


def kept(state: sqlite3.Connection, name: str) -> tuple[bool, bool]:
    """Tell whether past and outlook of *name* are there."""
    past = history_of(state, name, submitted_s=1.0)
    return past is not None, loss_forecast_of(state, name, fitted_to="x") is not None


def forget(state: sqlite3.Connection) -> None:
    with transaction(state):
        forget_histories(state, before_s=BEFORE_S)


def test_only_what_ended_long_ago_is_forgotten() -> None:
    ends = {
        "done": (TrainerState.FINISHED, LONG_AGO_S),
        "failed": (TrainerState.FAILED, LONG_AGO_S),
        "lately": (TrainerState.FINISHED, LATELY_S),
        "wanted": (TrainerState.WANTED, LONG_AGO_S),
        "paused": (TrainerState.PAUSED, LONG_AGO_S),
    }
    with new_state() as state:
        latest(state, MOST_OTHERS)
        for name, end in ends.items():
            told(state, name)
            became(state, name, *end)
        told(state, "removed")
        forget(state)

        left = {name for name in (*ends, "removed") if any(kept(state, name))}
        assert left == {"lately", "wanted", "paused"}
        assert all(all(kept(state, name)) for name in left)


def test_what_the_latest_showed_of_their_speed_stays_for_new_ones() -> None:
    with new_state() as state:
        latest(state, MOST_OTHERS - 1)
        told(state, "done")
        became(state, "done", TrainerState.FINISHED, LONG_AGO_S)
        forget(state)

        assert kept(state, "done") == (True, False)


def test_there_is_something_to_forget_until_it_is_forgotten() -> None:
    with new_state() as state:
        before = has_old_histories(state, before_s=BEFORE_S)
        told(state, "done")
        became(state, "done", TrainerState.FINISHED, LONG_AGO_S)
        then = has_old_histories(state, before_s=BEFORE_S)
        forget(state)

        assert (before, then) == (False, True)
        assert not has_old_histories(state, before_s=BEFORE_S)
