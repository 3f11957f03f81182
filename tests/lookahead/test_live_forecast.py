"""Forecasts of nodes by name, from snapshots of the pool."""

import json
import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.lookahead.affinity import RecentAffinity
from freetrain.lookahead.base import LEAST_WATCHED_S, Departure, NodeForecast
from freetrain.lookahead.live import LONGEST_GAP_S, IdleSnapshot, LiveForecast
from freetrain.lookahead.promises import Promise

HORIZON_S = 400.0
START_S = 1.9e9
NAMES = tuple(f"n{k}" for k in range(6))
LINE = tuple(f"n{k}" for k in range(1, 17))


def snapshot(
    idle: Iterable[str] = NAMES,
    unclear: Iterable[str] = (),
    promised: dict[str, Promise] | None = None,
) -> IdleSnapshot:
    return IdleSnapshot(frozenset(idle), frozenset(unclear), promised or {})


def shown(
    *snapshots: IdleSnapshot, leaf_of: dict[str, str] | None = None
) -> LiveForecast:
    """Return a forecast that saw *snapshots*, one every 300 s."""
    forecast = LiveForecast(HORIZON_S, leaf_of=leaf_of)
    for turn, own in enumerate(snapshots):
        forecast.look(START_S + turn * 300.0, own)
    return forecast


def expected(forecast: LiveForecast, node: str) -> NodeForecast:
    found = forecast.expected(node)
    assert found is not None
    return found


def test_nodes_that_left_together_twice_are_one_group_the_third_time() -> None:
    odd = {"n1", "n3", "n5"}
    rest = snapshot(set(NAMES) - odd)

    strangers = shown(snapshot())
    twice = shown(snapshot(), rest, snapshot(), rest, snapshot())

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
    pools = [*[LINE[8:], LINE] * 40, (), ("n9",), ("n9", "n10")]
    forecast = shown(*map(snapshot, pools), leaf_of=leaves)

    assert (forecast.group("n9") == forecast.group("n10")) == (not leaves)


def test_people_see_the_effect_of_the_place_in_line_unless_a_promise_is_near() -> None:
    pools = [snapshot(idle) for idle in [LINE[8:], LINE] * 40]
    forecast = shown(*pools)
    first, last = expected(forecast, LINE[0]), expected(forecast, LINE[-1])
    now_s = START_S + 79 * 300.0
    promise = {name: Promise(now_s + 600.0, "7") for name in LINE[:2]}
    forecast.look(now_s, snapshot(LINE, promised=promise))
    promised, other = expected(forecast, LINE[0]), expected(forecast, LINE[2])

    assert first.run == last.run == 2
    assert first.times_in_line > 1.0 > last.times_in_line
    assert (promised.run, promised.times_in_line) == (1, 1.0)
    assert (other.run, other.times_in_line) != (1, 1.0)


def test_a_node_of_unclear_state_stays_idle_or_unknown() -> None:
    hazy = shown(snapshot(), snapshot(NAMES[1:], unclear=["n0"]), snapshot())
    unknown = shown(snapshot(NAMES[1:]), snapshot(NAMES[1:], unclear=["n0"]))

    assert hazy.expected("n0") is not None
    clear = shown(*[snapshot()] * 3).to_state()["learned"]["clusters"]
    assert hazy.to_state()["learned"]["clusters"] == clear
    assert unknown.expected("n0") is None


@pytest.mark.parametrize(
    "after_s",
    [
        pytest.param(300.0 + LONGEST_GAP_S + 1.0, id="a long gap"),
        pytest.param(-9_000.0, id="a clock that goes back"),
    ],
)
def test_after_a_gap_the_pool_is_new_and_nothing_is_learned_of_the_gap(
    after_s: float,
) -> None:
    forecast = shown(snapshot(), snapshot())
    before = forecast.to_state()

    forecast.look(START_S + after_s, snapshot(NAMES[:2]))

    after = forecast.to_state()
    assert after["learned"]["hazard"] == before["learned"]["hazard"]
    assert after["watched_s"] == before["watched_s"] == 300.0
    assert [row[2] for row in after["learned"]["clusters"]] == [0.0, 0.0]


def test_nodes_promised_to_one_job_are_a_group_until_that_is_far_off() -> None:
    soon, late = Promise(START_S + 600.0, "7"), Promise(START_S + 9e4, "8")

    forecast = shown(
        snapshot(promised={"n0": soon, "n1": soon, "n2": late, "n3": late})
    )

    assert forecast.group("n0") == forecast.group("n1") == "promised to 7"
    assert forecast.group("n2") != forecast.group("n3")
    assert (forecast.size("n1"), forecast.size("n2")) == (2, 1)
    found = expected(forecast, "n0")
    assert (found.together, found.promised_s) == (2, soon.end_s)
    assert forecast.prospect("n0", 200.0).hit == 1.0
    assert forecast.prospect("n2", math.inf).hit == 0.0


def test_for_an_hour_only_promises_and_known_ends_shorten_lives() -> None:
    count = int(LEAST_WATCHED_S / 300.0)
    early, late = shown(*[snapshot()] * count), shown(*[snapshot()] * (count + 1))

    assert early.is_learning
    assert early.prospect("n0", math.inf).life_s == HORIZON_S
    assert early.prospect("n0", 100.0).life_s == 100.0
    assert not late.is_learning
    assert late.prospect("n0", math.inf).life_s < HORIZON_S


def test_the_median_life_is_a_power_of_two_in_minutes() -> None:
    forecast = shown(snapshot(promised={"n0": Promise(START_S + 300.0, "7")}))

    assert expected(forecast, "n0").even_s == 240.0
    assert expected(forecast, "n1").even_s == 960.0, "the prior median is 1,040 s"


def test_departures_are_counted_against_promises() -> None:
    promised = {"n0": Promise(START_S + 900.0, "7")}
    forecast = shown(snapshot(promised=promised), snapshot(NAMES[1:]))

    (interval,) = forecast.intervals()

    assert (interval.nodes, interval.early) == (1, 1.0)


SNAPSHOTS = st.lists(
    st.tuples(
        st.sampled_from([60.0, 300.0, 800.0, 5_000.0]),
        st.sets(st.sampled_from(NAMES)),
        st.sets(st.sampled_from(NAMES)),
        st.dictionaries(st.sampled_from(NAMES), st.floats(-100.0, 5_000.0)),
    ),
    max_size=10,
)


@given(SNAPSHOTS)
def test_saved_after_every_snapshot_it_answers_as_if_it_had_not_been(
    snapshots: list[tuple[float, set[str], set[str], dict[str, float]]],
) -> None:
    straight, kept = LiveForecast(HORIZON_S), LiveForecast(HORIZON_S)
    departures: list[Departure] = []
    now_s, state = START_S, None
    for passed_s, idle, unclear, leads_s in snapshots:
        now_s += passed_s
        promised = {n: Promise(now_s + lead_s, "7") for n, lead_s in leads_s.items()}
        seen = snapshot(idle, unclear - idle, promised)
        straight.look(now_s, seen)
        pairs = RecentAffinity(departures.copy)
        kept = LiveForecast(HORIZON_S, names=kept.names, pairs=pairs, state=state)
        kept.look(now_s, seen)
        state = json.loads(json.dumps(kept.to_state()))
        departures += pairs.fresh

        for name in NAMES:
            assert kept.expected(name) == straight.expected(name)
        assert [kept.group(n) for n in idle] == [straight.group(n) for n in idle]


def test_the_saved_state_of_ten_thousand_nodes_is_small() -> None:
    names = [f"node{k:05}" for k in range(10_000)]
    pairs = RecentAffinity()
    forecast = LiveForecast(HORIZON_S, pairs=pairs)
    forecast.look(START_S, snapshot(names))
    forecast.look(START_S + 300.0, snapshot(names[::10]))
    forecast.look(START_S + 600.0, snapshot(names[::10]))

    (departure,) = pairs.fresh

    assert len(departure.left) + len(departure.idle) <= 2_500
    assert len(json.dumps(forecast.to_state())) < 1_000_000


@pytest.mark.parametrize(
    ("spoilt", "names", "forecaster", "message"),
    [
        ({"version": 0}, NAMES, "learned", "version 0, expected"),
        ({"watched_s": "long"}, NAMES, "learned", "'long' is no number"),
        ({}, NAMES[:2], "learned", "without a name"),
        ({}, NAMES, "life-table", "of forecaster 'learned', not 'life-t"),
    ],
)
def test_a_state_of_another_kind_is_refused(
    spoilt: dict[str, object], names: tuple[str, ...], forecaster: str, message: str
) -> None:
    state = shown(snapshot()).to_state() | spoilt

    with pytest.raises(ValueError, match=message):
        LiveForecast(HORIZON_S, names=names, state=state, forecaster=forecaster)
