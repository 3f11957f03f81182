"""Heartbeats of others, by one's own clock."""

from __future__ import annotations

from freetrain.agent.observation import HeartbeatWatch, Patience
from freetrain.state.files import AgentState, Heartbeat

PATIENCE = Patience(silent_s=10.0, ready_patience_s=20.0)


def beat(number: int, *, state: AgentState = AgentState.IDLE) -> Heartbeat:
    return Heartbeat(beat=number, t=0.0, node="n", host="h", pid=1, state=state)


def looked(*times_s: float, number: int | None = 1) -> HeartbeatWatch:
    pulse = HeartbeatWatch(now_s=0.0)
    for now_s in times_s:
        pulse.look(None if number is None else beat(number), now_s=now_s)
    return pulse


def test_a_heartbeat_that_changes_is_alive() -> None:
    pulse = HeartbeatWatch(now_s=0.0)
    for number in range(30):
        pulse.look(beat(number), now_s=float(number))

    assert pulse.peer.has_beaten
    assert pulse.peer.silent_s == 0.0


def test_a_file_of_a_dead_agent_is_no_sign_of_life() -> None:
    assert not looked(1.0, 2.0).peer.has_beaten


def test_one_that_does_not_change_for_long_is_lost() -> None:
    assert not looked(*range(1, 11)).peer.is_lost(PATIENCE)
    assert looked(*range(1, 12)).peer.is_lost(PATIENCE)


def test_one_that_never_came_gets_more_time() -> None:
    assert not looked(*range(1, 20), number=None).peer.is_lost(PATIENCE)
    assert looked(*range(1, 21), number=None).peer.is_lost(PATIENCE)


def test_who_was_frozen_itself_takes_nobody_for_dead() -> None:
    assert not looked(1.0, 2.0, 500.0).peer.is_lost(PATIENCE)


def test_time_without_a_look_does_not_count() -> None:
    pulse = looked(1.0)
    for now_s in range(2, 100):
        pulse.skip(now_s=float(now_s))

    assert pulse.peer.silent_s == 0.0


def test_one_that_said_goodbye_has_left_and_is_not_lost() -> None:
    pulse = HeartbeatWatch(now_s=0.0)
    for now_s in range(50):
        pulse.look(beat(1, state=AgentState.ENDED), now_s=float(now_s))

    assert pulse.peer.has_left
    assert not pulse.peer.is_lost(PATIENCE)
