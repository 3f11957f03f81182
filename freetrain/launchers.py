"""Launchers by name: each is one class in one module, and one line here.

``[launch] launcher`` of a job file gives the name. Other packages add launchers by an
entry point of the group ``freetrain.launchers`` (``freetrain.plugins``). A launcher's
module is imported when it is asked for: job files are read by every agent and tick,
which start quickly.
"""

from __future__ import annotations

from typing import Any

from freetrain.plugins import UnusablePluginError, added_names, find_added, load

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


def find_launcher(name: str) -> Any:  # noqa: ANN401 -- a freetrain.launch.base.Launcher
    """Return the launcher called *name*; ``freetrain.launch.base`` has its interface.

    Raises:
        LookupError: There is none of this name.
        UnusablePluginError: Its module cannot be imported, or is no launcher.
    """
    if name in BUILT_IN:
        return load(BUILT_IN[name])()
    try:
        found = find_added(GROUP, name)
    except UnusablePluginError as error:
        raise UnusablePluginError(f"one that works: {error}") from error
    if not isinstance(found, type) or not issubclass(found, load(_BASE)):
        raise UnusablePluginError(
            f"one that works: {found!r} of the entry point {name} is no subclass of "
            f"{_BASE}"
        )
    return found()


def launcher_names() -> tuple[str, ...]:
    """Return the names of all launchers, those of other packages last."""
    return tuple(dict.fromkeys((*BUILT_IN, *added_names(GROUP))))
