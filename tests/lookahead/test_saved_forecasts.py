"""A saved forecast with one spoilt place is refused, or its answers are possible."""

import copy
import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import astuple
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from freetrain.lookahead.affinity import Affinity, LeafAffinity
from freetrain.lookahead.base import (
    LEAST,
    MOST,
    Forecaster,
    amount,
    amounts,
    amounts_above_0,
    check_shares,
    members,
    probability,
    table,
    whole,
)
from freetrain.lookahead.experience import Experience
from freetrain.lookahead.live import IdleSnapshot, LiveForecast
from freetrain.lookahead.promises import Promise, Promises
from milp.window import WindowClass
from tests.lookahead.forecasters import EVERY, made

HORIZON_S = 500.0
NAMES = tuple(f"n{k}" for k in range(12))
RACKS = {
    "racks": {name: f"s{k // 4}" for k, name in enumerate(NAMES)},
    "no racks": {},
}
"""The leaf of each node where such are known, and where none are."""

EVERY_S, SNAPSHOTS = 60.0, 120
START_S = 1.7e9
LAST_S = START_S + SNAPSHOTS * EVERY_S

REFUSED = (ValueError, KeyError, TypeError)

INSTEAD: tuple[object, ...] = (
    *(math.nan, math.inf, -math.inf, 1e308, -1e308, 1e-300, 5e-324, 10**400, 10**30),
    *(2.0 * START_S, -1, 0, 0.5, 99_999, True, None, "x", [], {}, [[]], "0"),
)
"""Values that a place may hold instead."""

_COLUMNS = 6
"""Longer lists hold values of one kind."""

Path: TypeAlias = tuple[str | int, ...]
Json: TypeAlias = Any
Change: TypeAlias = "Callable[[Json, str | int], None]"


class Saved(NamedTuple):
    """The state of a forecast after two hours, and the nodes that were idle then."""

    state: str
    names: tuple[str, ...]
    idle: frozenset[str]


def snapshot(idle: frozenset[str], now_s: float) -> IdleSnapshot:
    """Return one in which half of the idle nodes have a trainer."""
    ordered = sorted(idle)
    soon = {name: Promise(now_s + 200.0, "job") for name in ordered[:2]}
    held = {"a": frozenset(ordered[:4]), "b": frozenset(ordered[4:6])}
    return IdleSnapshot(idle, frozenset(), soon, held)


@cache
def saved(name: str, racks: str) -> Saved:
    """Return the state of the forecaster called *name*, with no part of it empty."""
    dice = random.Random(1)  # noqa: S311  a pool, not a secret
    forecast = LiveForecast(HORIZON_S, leaf_of=RACKS[racks], forecaster=name)
    idle = frozenset(NAMES[:8])
    for turn in range(1, SNAPSHOTS + 1):
        now_s = START_S + turn * EVERY_S
        for first in range(0, len(NAMES), 4):
            if dice.random() < 0.1:
                idle ^= frozenset(NAMES[first : first + 4])
        if dice.random() < 0.2:
            idle ^= {dice.choice(NAMES)}
        seen = snapshot(idle, now_s)
        more = {
            node: Promise(now_s + dice.choice((90.0, 900.0, 5_000.0)), "other")
            for node in sorted(idle)
            if dice.random() < 0.3
        }
        promised = {**more, **seen.promised}
        forecast.look(now_s, IdleSnapshot(idle, frozenset(), promised, seen.held))
    state = json.dumps(forecast.to_state(), allow_nan=False)
    return Saved(state, tuple(forecast.names), idle)


def loaded(name: str, racks: str, state: dict[str, Any]) -> LiveForecast:
    return LiveForecast(
        HORIZON_S,
        names=saved(name, racks).names,
        state=state,
        leaf_of=RACKS[racks],
        forecaster=name,
    )


# Ways to spoil a state


def places(state: Json, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of all values, containers included."""
    if path:
        yield path
    if isinstance(state, dict):
        for key, value in state.items():
            yield from places(value, (*path, key))
    elif isinstance(state, list):
        for place, value in enumerate(state):
            yield from places(value, (*path, place))


def kinds(state: str) -> list[list[Path]]:
    """Return the places of *state* by kind: rows of a table are alike, columns not."""
    found: dict[Path, list[Path]] = {}
    whole = json.loads(state)
    for path in places(whole):
        inside, kind = whole, []
        for key in path:
            is_row = isinstance(inside, list) and len(inside) > _COLUMNS
            kind.append("#" if is_row else key)
            inside = inside[key]
        found.setdefault(tuple(kind), []).append(path)
    return list(found.values())


def put(inside: Json, key: str | int, *, value: object) -> None:
    inside[key] = copy.deepcopy(value)


def drop(inside: Json, key: str | int) -> None:
    del inside[key]


def double(inside: Json, key: str | int) -> None:
    """Let a list have an element twice; elsewhere make a list of two of it."""
    if isinstance(inside, list):
        inside.insert(int(key), copy.deepcopy(inside[int(key)]))
    else:
        inside[key] = [inside[key], inside[key]]


CHANGES: list[Change] = [drop, double, *(partial(put, value=v) for v in INSTEAD)]


def spoilt(state: str, path: Path, change: Change) -> dict[str, Any]:
    whole: dict[str, Any] = json.loads(state)
    inside: Json = whole
    for key in path[:-1]:
        inside = inside[key]
    change(inside, path[-1])
    return whole


def check_answers(forecast: LiveForecast, idle: frozenset[str]) -> None:
    for node in sorted(idle):
        forecast.group(node)
        for usable_s in (math.inf, 100.0):
            life_s, hit, share = forecast.prospect(node, usable_s)
            assert 0.0 <= life_s <= HORIZON_S
            assert 0.0 <= hit <= 1.0
            assert 0.0 < share <= 1.0
            hits = WindowClass(4, life_s, hit, share).hits()
            assert hits == sorted(hits)
        expected = forecast.expected(node)
        assert expected is not None
        assert 0.0 <= expected.leaves <= 1.0
        assert 0.0 <= expected.even_s < math.inf
        assert expected.run >= 1
        assert 0.0 < expected.times_in_line < math.inf
    assert 0.0 <= forecast.hit_weight <= 1.0
    assert 1.0 - 1e-9 <= forecast.change_weight < math.inf
    assert forecast.leaf_rate is None or 0.0 <= forecast.leaf_rate <= 1.0
    delays = [n for interval in forecast.intervals() for n in astuple(interval)]
    assert all(map(math.isfinite, delays))


def is_taken(name: str, racks: str, path: Path, change: Change) -> bool:
    """Return whether the spoilt state is loaded; then check its answers."""
    before = saved(name, racks)
    try:
        forecast = loaded(name, racks, spoilt(before.state, path, change))
    except REFUSED:
        return False

    idle = before.idle
    for turn in range(1, 6):
        now_s = LAST_S + turn * EVERY_S
        idle ^= {NAMES[turn], NAMES[2 * turn]}
        forecast.look(now_s, snapshot(idle, now_s))
        check_answers(forecast, idle)
        json.dumps(forecast.to_state(), allow_nan=False)
    return True


BOTH = pytest.mark.parametrize("racks", RACKS)


@EVERY
@BOTH
@settings(max_examples=100, deadline=None)
@given(chosen=st.data())
def test_a_state_spoilt_anywhere_is_refused_or_answers_within_its_contract(
    name: str, racks: str, chosen: st.DataObject
) -> None:
    paths = st.sampled_from(kinds(saved(name, racks).state)).flatmap(st.sampled_from)
    path, change = chosen.draw(st.tuples(paths, st.sampled_from(CHANGES)))

    event("taken" if is_taken(name, racks, path, change) else "refused")


@EVERY
@BOTH
def test_each_kind_of_place_spoilt_in_each_way_is_refused_or_does_no_harm(
    name: str, racks: str
) -> None:
    for paths in kinds(saved(name, racks).state):
        for change in CHANGES:
            is_taken(name, racks, paths[len(paths) // 2], change)

    assert is_taken(name, racks, ("watched_s",), partial(put, value=0))
    assert not is_taken(name, racks, ("watched_s",), partial(put, value=-1))


@EVERY
@BOTH
def test_a_sound_state_is_loaded_whole(name: str, racks: str) -> None:
    state = json.loads(saved(name, racks).state)

    forecast = loaded(name, racks, state)

    assert forecast.to_state() == state
    assert state["promises"]["told"]
    assert sum(map(sum, state["promises"]["delays"])) > 0
    assert state["experience"]["held"]["a"]
    assert not forecast.is_learning


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("learned", ("experience", "hits"), [9.0, 8.0]),
        ("learned", ("experience", "hits"), [0.0, 0.0]),
        ("learned", ("experience", "at_s"), 2.0 * LAST_S),
        ("learned", ("learned", "calibration", "said"), [1e9] * 29),
        ("learned", ("learned", "calibration", "came"), [1e9] * 29),
        ("learned", ("learned", "hazard", "share"), [1e9] * 7),
        ("learned", ("learned", "hazard", "shares"), [1e15] * 7),
        ("learned", ("learned", "check_s"), 2.0 * LAST_S),
        ("learned", ("learned", "said", 0, 0), 2.0 * LAST_S),
        ("learned", ("learned", "clusters", 0, 1), 2.0 * LAST_S),
        ("learned", ("learned", "clusters", 0, 2), LAST_S),
        ("learned", ("learned", "clusters", 0, 3), []),
        ("learned", ("learned", "clusters", 0, 3), [0, 0]),
        ("learned", ("learned", "now_s"), math.nan),
        ("life-table", ("learned", "idle", 0, 2), 2.0 * LAST_S),
        ("life-table", ("learned", "idle", 0, 2), math.nan),
        ("life-table", ("learned", "now_s"), math.inf),
    ],
)
def test_a_part_that_contradicts_the_rest_is_refused(
    name: str, path: Path, value: object
) -> None:
    state = spoilt(saved(name, "no racks").state, path, partial(put, value=value))

    with pytest.raises(ValueError):  # noqa: PT011 - any reason
        loaded(name, "no racks", state)


def seen(name: str, state: dict[str, Any] | None = None) -> Forecaster:
    """Return the forecaster of *state*, or one that saw two of eight nodes leave."""
    forecaster = made(name, state=state)
    if state is None:
        forecaster.see(0.0, joined=range(8), left=())
        forecaster.see(900.0, joined=(), left=(1, 2))
    return forecaster


def leaves(state: dict[str, float] | None = None) -> LeafAffinity:
    return LeafAffinity(Affinity(), str, state=state)


def calibration(sums: list[float], fresh: float = 1.0) -> dict[str, object]:
    return {"calibration": {"said": sums, "came": sums, "count": sums, "fresh": fresh}}


IMPOSSIBLE: dict[str, tuple[Callable[..., Any], list[dict[str, Any]]]] = {
    "learned": (
        partial(seen, "learned"),
        [
            {"hazard": {}},
            {"hazard": {"hits": [], "exposure": [], "share": [], "shares": []}},
            *(calibration([1.0]), calibration([0.0] * 29)),
            calibration([1.0] * 29, fresh=0.0),
            {"clusters": [[0, 0.0, 0.0, [1]], [1, 0.0, 0.0, [1]]], "numbers": 9},
            {"clusters": [[5, 0.0, 0.0, [1]]], "numbers": 5},
            *({"said": [[1.0]]}, {"now_s": None}),
        ],
    ),
    "life-table": (
        partial(seen, "life-table"),
        [
            *({"departures": [1.0]}, {"exposure": [-1.0] * 22}),
            *({"idle": [[1, 0, 0.0], [n, n % 2, 0.0]]} for n in (1, 2)),
            {"idle": [[1, 5, 0.0]], "numbers": 5},
            *({"idle": [[1]]}, {"now_s": None}),
        ],
    ),
    "promises": (
        Promises,
        [
            *({"hits": [[1.0]]}, {"hits": [[-1.0] * 9] * 6}),
            *({"delays": []}, {"delays": [[1]] * 6}),
            *({"told": [[5.0, 4.0, 0, 1, [1], 0.0]]}, {"told": [[1, 2]]}),
        ],
    ),
    "experience": (
        Experience,
        [
            *({"hits": [1.0, 0.0]}, {"hits": [math.nan, 1.0]}),
            *({"changes": [0.0, 1.0]}, {"changes": [1.0]}, {"at_s": "soon"}),
            *({"held": {"a": ["x"]}}, {"held": {"a": 7}}),
        ],
    ),
    "leaves": (leaves, [{"together": -1.0, "either": 1.0}, {"either": "x"}]),
}


@pytest.mark.parametrize(
    ("part", "broken"),
    [(part, own) for part, (_, rows) in IMPOSSIBLE.items() for own in rows],
)
def test_an_impossible_state_is_refused(part: str, broken: dict[str, Any]) -> None:
    maker, _ = IMPOSSIBLE[part]
    state = maker().to_state()
    maker(state)

    with pytest.raises(REFUSED):
        maker(state | broken)


@pytest.mark.parametrize("state", [{}, {"together": 1.0}])
def test_a_state_of_leaves_without_a_part_is_refused(state: dict[str, float]) -> None:
    with pytest.raises(KeyError):
        leaves(state)


# Checks of numbers


def test_possible_numbers_are_taken() -> None:
    assert amounts([0, 1.5], 2) == [0.0, 1.5]
    assert amounts_above_0([0.5], 1) == [0.5]
    assert table([[0.0], [1.0]], 2, 1) == [[0.0], [1.0]]
    assert [amount(0), amount(MOST)] == [0.0, MOST]
    assert whole(7) == 7
    assert members([3, 1]) == {1, 3}
    assert [probability(0), probability(1.0)] == [0.0, 1.0]
    check_shares([0.1 + 0.2], [0.3])  # rounded


@pytest.mark.parametrize(
    "wrong", ["1", True, None, [], -1, 2 * MOST, 10**400, math.nan, math.inf]
)
def test_impossible_numbers_are_refused(wrong: object) -> None:
    for check in (amount, whole, probability):
        with pytest.raises(ValueError, match=r"no( whole)? number|not a number"):
            check(wrong)
    with pytest.raises(ValueError, match=r"no number|not a number from 0"):
        amounts([1.0, wrong], 2)


@pytest.mark.parametrize(
    ("check", "wrong", "message"),
    [
        (whole, 1.0, "no whole number"),
        (whole, 0.5, "no whole number"),
        (probability, 1.01, "above 1"),
        (members, [1, 2, 1], "twice"),
        (partial(amounts, count=2), [1.0], "2 numbers of 0"),
        (partial(amounts_above_0, count=2), [1.0, 0.0], "above 0"),
        (partial(amounts_above_0, count=2), [1.0, LEAST / 2.0], "above 0"),
        (partial(check_shares, wholes=[1.0, 1.9]), [1.0, 2.0], "no parts"),
        (partial(table, count=1, width=1), [[1.0, 1.0]], "1 numbers"),
        (partial(table, count=1, width=1), [[1.0], [1.0]], "expected 1"),
        (partial(table, count=1, width=1), [], "expected 1"),
    ],
)
def test_numbers_of_another_kind_are_refused(
    check: Callable[[object], object], wrong: object, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        check(wrong)
