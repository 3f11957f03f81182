"""What is kept of a real forecast, and ways to spoil any one place of it."""

from __future__ import annotations

import copy
import json
import math
import random
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from hypothesis import strategies as st

from freetrain.lookahead.live import LiveForecast, PoolSnapshot
from freetrain.lookahead.promises import Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HORIZON_S = 500.0
NAMES = tuple(f"n{k}" for k in range(12))
RACKS = {
    "racks": {name: f"s{k // 4}" for k, name in enumerate(NAMES)},
    "no racks": {},
}
"""The leaf of each node where such are known, and where none are."""

LOOK_S, LOOKS = 60.0, 120
START_S = 1.7e9
LAST_S = START_S + LOOKS * LOOK_S

INSTEAD: tuple[object, ...] = (
    *(math.nan, math.inf, -math.inf, 1e308, -1e308, 1e-300, 5e-324, 10**400, 10**30),
    *(2.0 * START_S, -1, 0, 0.5, 99_999, True, None, "x", [], {}, [[]], "0"),
)
"""What a place may hold instead."""

_COLUMNS = 6
"""Longer lists hold what is all of one kind."""

Path: TypeAlias = tuple[str | int, ...]
Json: TypeAlias = Any


class Grown(NamedTuple):
    """What a forecast knew after two hours, and who was idle at the end."""

    state: str
    names: tuple[str, ...]
    idle: frozenset[str]


def sight(idle: frozenset[str], now_s: float) -> PoolSnapshot:
    """Return a look at which half of the idle nodes have a trainer."""
    ordered = sorted(idle)
    soon = {name: Promise(now_s + 200.0, "job") for name in ordered[:2]}
    held = {"a": frozenset(ordered[:4]), "b": frozenset(ordered[4:6])}
    return PoolSnapshot(idle, frozenset(), soon, held)


@cache
def grown(name: str, racks: str) -> Grown:
    """Return what the forecaster called *name* keeps, with something in every part."""
    dice = random.Random(1)  # noqa: S311  a pool, not a secret
    forecast = LiveForecast(HORIZON_S, leaf_of=RACKS[racks], forecaster=name)
    idle = frozenset(NAMES[:8])
    for look in range(1, LOOKS + 1):
        now_s = START_S + look * LOOK_S
        for first in range(0, len(NAMES), 4):
            if dice.random() < 0.1:
                idle ^= frozenset(NAMES[first : first + 4])
        if dice.random() < 0.2:
            idle ^= {dice.choice(NAMES)}
        told = sight(idle, now_s)
        more = {
            one: Promise(now_s + dice.choice((90.0, 900.0, 5_000.0)), "other")
            for one in sorted(idle)
            if dice.random() < 0.3
        }
        forecast.look(
            now_s,
            PoolSnapshot(idle, told.unclear, {**more, **told.promised}, told.held),
        )
    state = json.dumps(forecast.to_state(), allow_nan=False)
    return Grown(state, tuple(forecast.names), idle)


def places(state: Json, path: Path = ()) -> Iterator[Path]:
    """Yield where something is, containers and what is in them."""
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


def spoils(state: str) -> st.SearchStrategy[Spoil]:
    """Return ways to spoil *state* in one place; each kind of place is as likely."""
    paths = st.sampled_from(kinds(state)).flatmap(st.sampled_from)
    return st.builds(Spoil, paths, st.sampled_from(ways()))


def every_spoil(state: str) -> Iterator[Spoil]:
    """Yield each way to spoil one place of each kind."""
    for paths in kinds(state):
        for way in ways():
            yield Spoil(paths[len(paths) // 2], way)


def ways() -> list[Callable[[Json, str | int], None]]:
    """Return all that may become of a place."""
    return [drop, double, *map(Put, INSTEAD)]


class Spoil(NamedTuple):
    """Where a state is spoilt, and how."""

    path: Path
    way: Callable[[Json, str | int], None]

    def of(self, state: str) -> dict[str, Any]:
        """Return *state* with that place spoilt."""
        spoilt: dict[str, Any] = json.loads(state)
        inside: Json = spoilt
        for key in self.path[:-1]:
            inside = inside[key]
        self.way(inside, self.path[-1])
        return spoilt


@dataclass(frozen=True, slots=True)
class Put:
    """Puts a value into a place."""

    value: object

    def __call__(self, inside: Json, key: str | int) -> None:
        """Put it in."""
        inside[key] = copy.deepcopy(self.value)


def drop(inside: Json, key: str | int) -> None:
    """Leave a place out."""
    del inside[key]


def double(inside: Json, key: str | int) -> None:
    """Let a list have an element twice; elsewhere make a list of two of it."""
    if isinstance(inside, list):
        inside.insert(int(key), copy.deepcopy(inside[int(key)]))
    else:
        inside[key] = [inside[key], inside[key]]
