"""Classes that other packages add to FreeTrain, by entry points.

An entry point's name is what users write (a launcher, a priority); its value is
``module:attribute``. Nothing is imported before it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class UnusablePluginError(ValueError):
    """A package adds something of this name, and it cannot be used."""


def added_names(group: str) -> tuple[str, ...]:
    """Return the names that other packages add to *group*, sorted."""
    return tuple(sorted({entry.name for entry in _entry_points(group)}))


def find_added(group: str, name: str) -> Any:  # noqa: ANN401 -- what the entry names
    """Return what another package adds to *group* as *name*.

    Raises:
        LookupError: No package adds this name.
        UnusablePluginError: It cannot be imported.
    """
    for entry in _entry_points(group):
        if entry.name == name:
            try:
                return load(entry.value)
            except (ImportError, AttributeError, ValueError) as error:
                raise UnusablePluginError(
                    f"{entry.value} of the entry point {name} cannot be imported: "
                    f"{error}"
                ) from error
    raise LookupError(name)


def load(place: str) -> Any:  # noqa: ANN401 -- as above
    """Import and return ``module:attribute``."""
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


def _entry_points(group: str) -> Any:  # noqa: ANN401 -- importlib.metadata.EntryPoints
    # Imported here: it takes 12 ms, and what is built in does without.
    from importlib.metadata import entry_points  # noqa: PLC0415

    return entry_points(group=group)
