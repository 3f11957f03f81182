"""Priorities by name: each is one class in one module, and one line here.

``[planner] priority`` and ``--priority`` give the name. Other packages
add priorities by an entry point of the group ``freetrain.priorities``: a class whose
constructor takes its settings, numbers by keyword, and that keeps the contract of
``freetrain.priority.base.Priority``.
"""

from __future__ import annotations

from inspect import signature
from types import MappingProxyType
from typing import TYPE_CHECKING

from freetrain.errors import UsageError
from freetrain.plugins import UnusablePluginError, added_names, find_added
from freetrain.priority.base import DEFAULT_GAIN, WithHysteresis
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

    from freetrain.priority.base import Priority

    Maker = Callable[..., Priority]

GROUP = "freetrain.priorities"
"""The group of entry points by which other packages add priorities."""

HYSTERESIS = "hysteresis"
"""The setting that every priority has: the least gain of a change; 0 for any."""

WITHOUT_HYSTERESIS = frozenset({"throughput", "speedup", "price", "weight"})
"""Published comparisons rest on these as they are; it can be asked for."""

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
        settings: Its own by keyword, and ``hysteresis``; what is left out has its
            default.

    Raises:
        UsageError: There is no such priority or setting, or a value is out of range.
    """
    check_settings((name,), settings)
    own = {key: value for key, value in settings.items() if key != HYSTERESIS}
    priority = _maker(name)(**own)
    gain = settings.get(HYSTERESIS, _usual_hysteresis(name))
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


def _usual_hysteresis(name: str) -> float:
    return 0.0 if name in WITHOUT_HYSTERESIS else DEFAULT_GAIN
