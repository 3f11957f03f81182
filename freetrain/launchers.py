"""Launchers by name: each is one class in one module, and one line here.

``[launch] launcher`` of a job file gives the name. Packages of other people add
launchers by an entry point of the group ``freetrain.launchers``, whose name is the
launcher's and whose value is ``module:Class``. Nothing is imported before it is asked
for: job files are read by every agent and tick, which start quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

BUILT_IN = {
    "mpirun": "freetrain.launch.mpirun:MpirunLauncher",
    "srun": "freetrain.launch.srun:SrunLauncher",
    "torchrun": "freetrain.launch.torchrun:TorchrunLauncher",
    "custom": "freetrain.launch.custom:CustomLauncher",
    "pack": "freetrain.launch.pack:PackLauncher",
}
"""Module and class by the launcher's name."""

GROUP = "freetrain.launchers"
"""The group of entry points by which other packages add launchers."""

_BASE = "freetrain.launch.base:Launcher"


class UnusableLauncherError(ValueError):
    """A package adds a launcher of this name, and it cannot be used."""


def find_launcher(name: str) -> Any:  # noqa: ANN401 -- a freetrain.launch.base.Launcher
    """Return the launcher called *name*; ``freetrain.launch.base`` has its interface.

    Raises:
        LookupError: There is none of this name.
        UnusableLauncherError: Its module cannot be imported, or is no launcher.
    """
    if name in BUILT_IN:
        return _load(BUILT_IN[name])()
    for entry in _entry_points():
        if entry.name == name:
            return _added(name, entry.value)
    raise LookupError(name)


def launcher_names() -> tuple[str, ...]:
    """Return the names of all launchers, those of other packages last."""
    return tuple(dict.fromkeys((*BUILT_IN, *sorted(e.name for e in _entry_points()))))


def _added(name: str, place: str) -> Any:  # noqa: ANN401 -- as above
    try:
        found = _load(place)
    except (ImportError, AttributeError, ValueError) as error:
        raise UnusableLauncherError(
            f"one that works: {place} of the entry point {name} cannot be imported: "
            f"{error}"
        ) from error
    if not isinstance(found, type) or not issubclass(found, _load(_BASE)):
        raise UnusableLauncherError(
            f"one that works: {place} of the entry point {name} is no subclass of "
            f"{_BASE}"
        )
    return found()


def _load(place: str) -> Any:  # noqa: ANN401 -- as above
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


def _entry_points() -> Any:  # noqa: ANN401 -- importlib.metadata.EntryPoints
    # Imported here: it takes 12 ms, and built-in launchers do without.
    from importlib.metadata import entry_points  # noqa: PLC0415

    return entry_points(group=GROUP)
