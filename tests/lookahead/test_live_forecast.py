"""Forecasts of nodes by name, from one look after another."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.lookahead.affinity import RecentAffinity
from freetrain.lookahead.base import LEAST_WATCHED_S
from freetrain.lookahead.live import LONGEST_GAP_S, LiveForecast, PoolSnapshot
from freetrain.lookahead.promises import Promise

if TYPE_CHECKING:
    from collections.abc import Iterable

    from freetrain.lookahead.base import Departure

HORIZON_S = 400.0
START_S = 1.9e9
NAMES = tuple(f"n{k}" for k in range(6))
LINE = tuple(f"n{k}" for k in range(1, 17))


def sight(
    idle: Iterable[str] = NAMES,
    unclear: Iterable[str] = (),
    promised: dict[str, Promise] | None = None,
) -> PoolSnapshot:
    return PoolSnapshot(frozenset(idle), frozenset(unclear), promised or {})


def shown(*sights: PoolSnapshot, every_s: float = 300.0) -> LiveForecast:
    forecast = LiveForecast(HORIZON_S)
    for turn, one in enumerate(sights):
        forecast.look(START_S + turn * every_s, one)
    return forecast


def test_nodes_that_left_together_twice_are_one_group_the_third_time() -> None:
    odd = {"n1", "n3", "n5"}
    rest = sight(set(NAMES) - odd)

    strangers = shown(sight())
    twice = shown(sight(), rest, sight(), rest, sight())

    assert len({strangers.group(name) for name in odd}) == 3
    assert len({twice.group(name) for name in odd}) == 1
    assert twice.group("n0") not in {twice.group(name) for name in odd}
    assert [twice.size(name) for name in sorted(odd)] == [3, 3, 3]
    assert strangers.size("n1") == strangers.size("unknown") == 1


@pytest.mark.parametrize("leaves", [{}, dict.fromkeys(LINE, "one leaf")])
def test_nodes_stand_in_line_by_name_where_no_topology_is_known(
    leaves: dict[str, str],
) -> None:
    """The lower half leaves again and again; then all, and two come after each other.

    The first of them has the name that would be the last in the order of letters.
    """
    forecast = LiveForecast(HORIZON_S, leaf_of=leaves)
    upper, now_s = set(LINE[8:]), START_S
    for idle in [*[upper, set(LINE)] * 40, set(), {"n9"}, {"n9", "n10"}]:
        forecast.look(now_s := now_s + 300.0, sight(idle))

    assert (forecast.group("n9") == forecast.group("n10")) == (not leaves)


def test_people_are_told_who_goes_first_for_its_place_in_line() -> None:
    forecast, upper, now_s = LiveForecast(HORIZON_S), set(LINE[8:]), START_S
    for idle in [upper, set(LINE)] * 40:
        forecast.look(now_s := now_s + 300.0, sight(idle))
    first, last = (forecast.expected(name) for name in (LINE[0], LINE[-1]))
    promise = {name: Promise(now_s + 600.0, "7") for name in LINE[:2]}
    forecast.look(now_s, sight(LINE, promised=promise))
    promised, other = (forecast.expected(name) for name in (LINE[0], LINE[2]))

    assert first is not None
    assert last is not None
    assert first.run == last.run == 2
    assert first.times_in_line > 1.0 > last.times_in_line
    assert promised is not None
    assert other is not None
    assert (promised.run, promised.times_in_line) == (1, 1.0)
    assert (other.run, other.times_in_line) != (1, 1.0)


def test_a_node_of_which_it_cannot_be_told_stays_what_it_was() -> None:
    hazy = shown(sight(), sight(NAMES[1:], unclear=["n0"]), sight())
    unknown = shown(sight(NAMES[1:]), sight(NAMES[1:], unclear=["n0"]))

    assert hazy.expected("n0") is not None
    assert (
        hazy.to_state()["learned"]["clusters"]
        == (shown(sight(), sight(), sight()).to_state()["learned"]["clusters"])
    )
    assert unknown.expected("n0") is None


def test_after_a_long_gap_the_pool_is_a_new_one_and_nothing_was_learned_of_it() -> None:
    forecast = shown(sight(), sight())
    before = forecast.to_state()

    forecast.look(START_S + 300.0 + LONGEST_GAP_S + 1.0, sight(NAMES[:2]))

    after = forecast.to_state()
    assert after["learned"]["hazard"] == before["learned"]["hazard"]
    assert after["watched_s"] == before["watched_s"] == 300.0
    assert [row[2] for row in after["learned"]["clusters"]] == [0.0, 0.0]


def test_a_clock_that_goes_back_is_a_gap_too() -> None:
    forecast = shown(sight(), sight())

    forecast.look(START_S - 9_000.0, sight())

    assert all(row[2] == 0.0 for row in forecast.to_state()["learned"]["clusters"])


def test_nodes_promised_to_one_job_are_a_group_until_that_is_far_off() -> None:
    soon, late = Promise(START_S + 600.0, "7"), Promise(START_S + 9e4, "8")

    forecast = shown(sight(promised={"n0": soon, "n1": soon, "n2": late, "n3": late}))

    assert forecast.group("n0") == forecast.group("n1") == "promised to 7"
    assert forecast.group("n2") != forecast.group("n3")
    assert (forecast.size("n1"), forecast.size("n2")) == (2, 1)
    expected = forecast.expected("n0")
    assert expected is not None
    assert (expected.together, expected.promised_s) == (2, soon.end_s)
    assert forecast.prospect("n0", 200.0).hit == 1.0
    assert forecast.prospect("n2", math.inf).hit == 0.0


def test_for_an_hour_only_promises_and_known_ends_shorten_lives() -> None:
    looks = int(LEAST_WATCHED_S / 300.0)
    early, late = shown(*[sight()] * looks), shown(*[sight()] * (looks + 1))

    assert early.is_learning
    assert early.prospect("n0", math.inf).life_s == HORIZON_S
    assert early.prospect("n0", 100.0).life_s == 100.0
    assert not late.is_learning
    assert late.prospect("n0", math.inf).life_s < HORIZON_S


def test_how_long_a_node_stays_is_told_in_steps_of_twice_as_long() -> None:
    going = sight(promised={"n0": Promise(START_S + 300.0, "7")})

    soon, staying = (shown(going).expected(name) for name in ("n0", "n1"))

    assert soon is not None
    assert staying is not None
    assert soon.even_s == 240.0
    assert staying.even_s == 960.0, "half of all leave in 1,040 s, it is believed"


def test_what_came_of_promises_is_told() -> None:
    promised = {"n0": Promise(START_S + 900.0, "7")}
    forecast = shown(sight(promised=promised), sight(NAMES[1:]))

    (interval,) = forecast.intervals()

    assert (interval.nodes, interval.early) == (1, 1.0)


LOOKS = st.lists(
    st.tuples(
        st.sampled_from([60.0, 300.0, 800.0, 5_000.0]),
        st.sets(st.sampled_from(NAMES)),
        st.sets(st.sampled_from(NAMES)),
        st.dictionaries(st.sampled_from(NAMES), st.floats(-100.0, 5_000.0)),
    ),
    max_size=10,
)


@given(LOOKS)
def test_put_away_after_every_look_it_says_what_it_would_have_said(
    looks: list[tuple[float, set[str], set[str], dict[str, float]]],
) -> None:
    straight, kept = LiveForecast(HORIZON_S), LiveForecast(HORIZON_S)
    departures: list[Departure] = []
    now_s, state = START_S, None
    for passed_s, idle, unclear, leads_s in looks:
        now_s += passed_s
        promised = {n: Promise(now_s + lead_s, "7") for n, lead_s in leads_s.items()}
        seen = sight(idle, unclear - idle, promised)
        straight.look(now_s, seen)
        pairs = RecentAffinity(departures.copy)
        kept = LiveForecast(
            HORIZON_S,
            names=kept.names,
            pairs=pairs,
            state=state,
        )
        kept.look(now_s, seen)
        state = json.loads(json.dumps(kept.to_state()))
        departures += pairs.fresh

        for name in NAMES:
            assert kept.expected(name) == straight.expected(name)
        assert [kept.group(n) for n in idle] == [straight.group(n) for n in idle]


def test_what_a_tick_keeps_of_ten_thousand_nodes_is_small() -> None:
    names = [f"node{k:05}" for k in range(10_000)]
    pairs = RecentAffinity()
    forecast = LiveForecast(HORIZON_S, pairs=pairs)
    forecast.look(START_S, sight(names))
    forecast.look(START_S + 300.0, sight(names[::10]))
    forecast.look(START_S + 600.0, sight(names[::10]))

    (departure,) = pairs.fresh

    assert len(departure.left) + len(departure.idle) <= 2_500
    assert len(json.dumps(forecast.to_state())) < 1_000_000


@pytest.mark.parametrize("spoilt", [{"version": 0}, {"watched_s": "long"}])
def test_a_state_of_another_kind_is_refused(spoilt: dict[str, object]) -> None:
    state = shown(sight()).to_state() | spoilt

    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        LiveForecast(HORIZON_S, names=NAMES, state=state)


def test_a_state_of_nodes_without_names_is_refused() -> None:
    with pytest.raises(ValueError, match="without a name"):
        LiveForecast(HORIZON_S, names=NAMES[:2], state=shown(sight()).to_state())


def test_what_another_forecaster_learned_is_refused() -> None:
    state = shown(sight()).to_state()

    with pytest.raises(ValueError, match="of forecaster 'learned', not 'life-t"):
        LiveForecast(HORIZON_S, names=NAMES, state=state, forecaster="life-table")
