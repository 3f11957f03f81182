"""Priorities by name: each is one class in one module, and one line here.

``[planner] priority`` and ``--priority`` give the name. Other packages
add priorities by an entry point of the group ``freetrain.priorities``: a class whose
constructor takes its settings, numbers by keyword, and that keeps the contract of
``freetrain.priority.base.Priority``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from inspect import signature
from types import MappingProxyType
from typing import TYPE_CHECKING

from freetrain.errors import UsageError
from freetrain.plugins import UnusablePluginError, added_names, find_added
from freetrain.priority.base import Basis, CurveCache, RatingResult
from freetrain.priority.deadline import Deadline
from freetrain.priority.fair import Fair
from freetrain.priority.flowcon import FlowCon
from freetrain.priority.slaq import Slaq, SlaqMin
from freetrain.priority.specon import SpeCon
from freetrain.priority.speed import Price, SpeedUp, Throughput, Weight
from freetrain.priority.tradl import Tradl
from freetrain.text import closest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from freetrain.priority.base import (
        Contender,
        Memory,
        Priority,
        Rating,
        RatingInputs,
    )

    Maker = Callable[..., Priority]

GROUP = "freetrain.priorities"
"""The group of entry points by which other packages add priorities."""

DEFAULT_GAIN = 0.05
"""As in AdaptDL: jobs that change for less spend more on changing than they gain."""

HYSTERESIS = "hysteresis"
"""The setting that every priority has: the least gain of a change; 0 for any gain."""

WITHOUT_HYSTERESIS = frozenset({"throughput", "speedup", "price", "weight"})
"""Their default is no hysteresis: published comparisons rest on them as they are."""

PRIORITIES: Mapping[str, Maker] = MappingProxyType(
    {
        "throughput": Throughput,
        "speedup": SpeedUp,
        "price": Price,
        "weight": Weight,
        "fair": Fair,
        "deadline": Deadline,
        "slaq": Slaq,
        "slaq-min": SlaqMin,
        "specon": SpeCon,
        "tradl": Tradl,
        "flowcon": FlowCon,
    }
)
"""How each priority is made; the keywords a maker takes are its settings, numbers."""


def priority_named(
    name: str, settings: Mapping[str, float] = MappingProxyType({})
) -> Priority:
    """Return the priority called *name*.

    Args:
        name: A name in ``PRIORITIES``, or one that another package adds.
        settings: Its settings by keyword, and ``hysteresis``; others have defaults.

    Raises:
        UsageError: There is no such priority or setting, or a value is out of range.
    """
    check_settings((name,), settings)
    own = {key: value for key, value in settings.items() if key != HYSTERESIS}
    priority = _maker(name)(**own)
    gain = settings.get(HYSTERESIS, _default_hysteresis(name))
    return WithHysteresis(priority, gain) if gain != 0 else priority


def check_settings(names: Collection[str], settings: Collection[str]) -> None:
    """Refuse a setting that none of the priorities *names* has.

    Raises:
        UsageError: There is one, or no priority of one of the names.
    """
    known = dict.fromkeys(key for name in names for key in settings_of(name))
    for setting in sorted(set(settings) - known.keys()):
        owners = [name for name in PRIORITIES if setting in settings_of(name)]
        whose = f" It is one of {', '.join(owners)}." if owners else ""
        who, has = ("It", "has") if len(names) == 1 else ("They", "have")
        which = "priority" if len(names) == 1 else "priorities"
        raise UsageError(
            f"{which} {', '.join(names)} {has} no setting {setting!r}. {who} {has} "
            f"{', '.join(known)}.{whose or closest(setting, known)}"
        )


def settings_of(name: str) -> tuple[str, ...]:
    """Return the names of the settings of the priority *name*.

    Raises:
        UsageError: There is no such priority.
    """
    return (*signature(_maker(name)).parameters, HYSTERESIS)


def priority_names() -> tuple[str, ...]:
    """Return the names of all priorities, those of other packages last."""
    return tuple(dict.fromkeys((*PRIORITIES, *added_names(GROUP))))


def _maker(name: str) -> Maker:
    if name in PRIORITIES:
        return PRIORITIES[name]
    try:
        found: Maker = find_added(GROUP, name)
    except LookupError:
        known = ", ".join(priority_names())
        raise UsageError(f"no priority {name!r}. Choose one of {known}.") from None
    except UnusablePluginError as error:
        raise UsageError(f"the priority {name!r} cannot be used: {error}.") from error
    if not (isinstance(found, type) and {"name", "basis", "rate"} <= set(dir(found))):
        raise UsageError(
            f"the priority {name!r} cannot be used: {found!r} is no class with name, "
            f"basis and rate."
        )
    return found


def _default_hysteresis(name: str) -> float:
    return 0.0 if name in WITHOUT_HYSTERESIS else DEFAULT_GAIN


class WithHysteresis:
    """A priority whose ratings are raised at the nodes that a trainer holds.

    The worth of the held count h is raised: O'(h) = (1 + gain) O(h). A plan that
    changes some trainers must then gain *gain* times their present worth. The costs of
    a rescale are counted in the present worth, and so raised by as much.

    Args:
        priority: The priority that rates.
        gain: The least gain of a change, as a share of the present worth.

    Raises:
        UsageError: *gain* is not above 0, or not finite.
    """

    def __init__(self, priority: Priority, gain: float = DEFAULT_GAIN) -> None:
        if not 0 < gain < math.inf:
            raise UsageError(
                f"hysteresis {gain:g} is not above 0. Give the least gain of a change, "
                f"such as 0.05 for 5 %."
            )
        self.name = priority.name
        depends = priority.basis
        self.basis: Basis = Basis.MOMENT if depends is Basis.TRAINER else depends
        self._priority = priority
        self._gain = gain
        self._curves = CurveCache()

    def rate(self, inputs: RatingInputs, memory: Memory, /) -> RatingResult:
        """Return the ratings with a bonus on the nodes held."""
        rated = self._priority.rate(inputs, memory)
        pairs = zip(rated.ratings, inputs.contenders, strict=True)
        return RatingResult(
            tuple([self._raised(*pair) for pair in pairs]), rated.memory
        )

    def _raised(self, rating: Rating, contender: Contender) -> Rating:
        held = contender.held
        worth = rating.curve.value_per_s
        if held not in rating.curve.sizes or worth[held] <= 0:
            return rating
        raised = worth.copy()
        raised[held] *= 1 + self._gain
        return replace(rating, curve=self._curves.custom(raised, rating.curve.sizes))
