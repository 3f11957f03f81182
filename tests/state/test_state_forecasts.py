"""What was learned of nodes goes into the state and comes out of it."""

from __future__ import annotations

from dataclasses import replace

from freetrain.lookahead.base import Departure
from freetrain.state.database import transaction
from freetrain.state.tables import (
    LeaseForecast,
    add_departures,
    add_node_names,
    departures,
    drop_lease_forecasts,
    ended_lease_forecasts,
    forecast_state,
    forget_forecasts,
    node_names,
    pending_lease_forecasts,
    put_forecast,
    put_lease_forecasts,
)
from tests.state.test_state_tables import new_state

ONE = LeaseForecast("u", 0, "n1", 100.0, 400.0, 0.25, 1_200.0, promised_s=5_000.0)


def test_the_last_state_and_all_names_are_kept_in_order() -> None:
    with new_state() as state, transaction(state):
        put_forecast(state, '{"a":1}')
        put_forecast(state, '{"a":2}')
        add_node_names(state, ["n1", "n0"], known=0)
        add_node_names(state, ["n1", "n0", "n7"], known=2)

        assert forecast_state(state) == '{"a":2}'
        assert node_names(state) == ("n1", "n0", "n7")


def test_only_the_latest_departures_are_kept_the_oldest_first() -> None:
    with new_state() as state, transaction(state):
        for k in range(5):
            add_departures(state, [Departure(bytes([k]), b"\xff")], keep=3)
        add_departures(state, [], keep=1)

        assert [one.left[0] for one in departures(state)] == [2, 3, 4]


def test_what_was_learned_can_be_dropped_and_what_was_expected_stays() -> None:
    with new_state() as state, transaction(state):
        put_forecast(state, "{}")
        add_node_names(state, ["n1"], known=0)
        add_departures(state, [Departure(b"\x80", b"\x80")], keep=3)
        put_lease_forecasts(state, [ONE])
        forget_forecasts(state)

        assert forecast_state(state) is None
        assert node_names(state) == ()
        assert departures(state) == ()
        assert pending_lease_forecasts(state) == (ONE,)


def test_what_was_expected_of_leases_is_kept_until_long_after_they_ended() -> None:
    ended = replace(ONE, task=1, ended_s=300.0, outcome="preempted")
    with new_state() as state, transaction(state):
        put_lease_forecasts(state, [ONE, replace(ended, ended_s=None, outcome="")])
        put_lease_forecasts(state, [ended])

        assert pending_lease_forecasts(state) == (ONE,)
        assert ended_lease_forecasts(state, most=2) == (ended,)
        drop_lease_forecasts(state, before_s=100.5)
        assert (
            pending_lease_forecasts(state) == ended_lease_forecasts(state, most=2) == ()
        )


def test_those_that_ended_last_come_first_and_no_more_than_asked_for() -> None:
    ends_s = (300.0, 500.0, 400.0, 500.0)
    every = [replace(ONE, task=k, ended_s=end_s) for k, end_s in enumerate(ends_s)]
    with new_state() as state, transaction(state):
        put_lease_forecasts(state, [*every, replace(ONE, task=9)])

        tasks = [one.task for one in ended_lease_forecasts(state, most=3)]

    assert tasks == [1, 3, 2]
