"""What trainers' losses say, for programs: what ``freetrain curves --json`` shows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from freetrain.client.status import Aim, Curves


_AHEAD = 1.1
"""Times the work done at which a forecast is given in short."""


def curves_record(found: Iterable[Curves]) -> list[dict[str, Any]]:
    """Return an object for each trainer; what nobody knows is null."""
    return [_record(one) for one in found]


def outlook_record(one: Curves) -> dict[str, Any]:
    """Return what *one* showed and what is expected, without the values told."""
    expected = None
    if one.outlook is not None:
        then = one.outlook.expected(_AHEAD * one.outlook.points[-1].samples)
        expected = {"value": then.value, "low": then.low, "high": then.high}
    return {
        "name": one.name,
        "metric": one.metric,
        "better": str(one.better),
        "unit": one.unit,
        "work": one.work,
        "total": one.total,
        "per_s": one.per_s,
        "speeds": {str(nodes): speed for nodes, speed in one.speeds},
        "is_diverging": one.is_diverging,
        "family": one.outlook.family if one.outlook else None,
        "expected": expected,
        "aims": [_aim(aim) for aim in one.aims],
        "bad_lines": one.bad_lines,
    }


def _record(one: Curves) -> dict[str, Any]:
    forecast = one.forecast
    return outlook_record(one) | {
        "points": [
            {"t_s": p.t_s, "work": p.samples, "value": value_of(p.value)}
            for p in one.told
        ],
        "forecast": None
        if forecast is None
        else [
            {"work": work, "value": value, "low": number(low), "high": number(high)}
            for work, value, low, high in zip(
                forecast.work, forecast.values, forecast.low, forecast.high, strict=True
            )
        ],
    }


def _aim(aim: Aim) -> dict[str, Any]:
    return {
        "tier": aim.tier,
        "value": aim.value,
        "work": number(aim.work),
        "in_s": None if aim.in_s is None else number(aim.in_s),
        "is_expected": math.isfinite(aim.work),
    }


def number(value: float) -> float | None:
    """Return *value* as JSON has it; what is not finite is null."""
    return value if math.isfinite(value) else None


def value_of(value: float) -> float | str:
    """Return a value that was told; what is not finite as a word."""
    return value if math.isfinite(value) else str(value)
