"""Launchers by name, and classes that other packages add to FreeTrain.

``[launch] launcher`` of a job file names a launcher: each is one class in one module,
and one line in ``LAUNCHERS``. Other packages add launchers by an entry point of the
group ``freetrain.launchers``, and priorities by one of ``freetrain.priorities``: its
name is what users write, its value ``module:attribute``. A module is imported when its
name is asked for, as every agent and tick reads job files and must start quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

LAUNCHERS = {
    "mpirun": "freetrain.launch.mpirun:MpirunLauncher",
    "srun": "freetrain.launch.srun:SrunLauncher",
    "torchrun": "freetrain.launch.torchrun:TorchrunLauncher",
    "custom": "freetrain.launch.custom:CustomLauncher",
    "pack": "freetrain.pack.pack:PackLauncher",
}
"""Module and class by the launcher's name."""

_LAUNCHER_GROUP = "freetrain.launchers"
_LAUNCHER_CLASS = "freetrain.launch.base:Launcher"


class UnusablePluginError(ValueError):
    """A package adds something of this name, and it cannot be used."""


def find_launcher(name: str) -> Any:  # noqa: ANN401 -- a freetrain.launch.base.Launcher
    """Return the launcher called *name*; ``freetrain.launch.base`` has its interface.

    Raises:
        LookupError: There is none of this name.
        UnusablePluginError: Its module cannot be imported, or is no launcher.
    """
    if name in LAUNCHERS:
        return load(LAUNCHERS[name])()
    try:
        found = find_added(_LAUNCHER_GROUP, name)
    except UnusablePluginError as error:
        raise UnusablePluginError(f"one that works: {error}") from error
    if not isinstance(found, type) or not issubclass(found, load(_LAUNCHER_CLASS)):
        raise UnusablePluginError(
            f"one that works: {found!r} of the entry point {name} is no subclass of "
            f"{_LAUNCHER_CLASS}"
        )
    return found()


def launcher_names() -> tuple[str, ...]:
    """Return the names of all launchers, those of other packages last."""
    return tuple(dict.fromkeys((*LAUNCHERS, *added_names(_LAUNCHER_GROUP))))


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
