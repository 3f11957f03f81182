"""FreeTrain: trains neural networks on the nodes that Slurm leaves idle.

In Python (docs/guide/python.md)::

    import freetrain as ft

    log = ft.read_log("sacct.txt")        # or .swf, .csv, .parquet, any of them gzipped
    log.info()                            # jobs, use of the machine, holes, in figures
    log.jobs, log.nodes, log.holes()      # pandas frames
    result = ft.replay(log, trainers="imagenet", policies=["lookahead", "scavenger"])
    result.summary, result.timeline, result.trainers, result.events     # frames
    result.plot("pool")                   # a Plotly figure
    result.report("report")               # the folder of `freetrain replay --out`
    ft.holes(), ft.status()               # the live cluster, as frames
    ft.submit("job.toml")

What each package does; its own docstring says more.

=====================  ============================================================
users' commands        ``cli``: the command line; ``client``: what its verbs do;
                       ``doctor``, ``demo``, ``cron``; ``config``: TOML files;
                       ``api``: what commands and Python programs have in common
a tick, on a login     ``tick``: all its input and output; ``broker``: its decisions,
node                   pure; ``state``: database and files; ``page``: tables and
                       drawings of its status page
in a lease             ``agent``; ``launch``: starts worlds; ``pack``: several
                       trainers on a node; ``progress``: reads what programs print
in a training program  ``elastic``; ``integrations``: loops of libraries
priorities, forecasts  ``priority``; ``losscurve``; ``lookahead``: how long nodes stay
planning               ``planning``: policies, for ticks and replays alike
replay                 ``replay``: engine and policies; ``report``: its pages
=====================  ============================================================

Beside the packages: module scaling learns speeds, errors has the exit codes, launchers
is the registry of launchers, processes reads /proc, own_packages lets our programs find
our logs, milp and slurm.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freetrain.api.live import holes, status, submit
    from freetrain.api.logs import Log, read_log
    from freetrain.api.replay import Replay, replay

    __version__: str

__all__ = [
    "Log",
    "Replay",
    "__version__",
    "holes",
    "read_log",
    "replay",
    "status",
    "submit",
]

_HOMES = {
    "Log": "freetrain.api.logs",
    "Replay": "freetrain.api.replay",
    "holes": "freetrain.api.live",
    "read_log": "freetrain.api.logs",
    "status": "freetrain.api.live",
    "submit": "freetrain.api.live",
}


def __getattr__(name: str) -> object:
    """Return a name of the Python interface, imported when it is first asked for.

    A tick, an agent and a training program import this package, too, and pay nothing.
    """
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "replay":
        return import_module("freetrain.replay")  # which can be called
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - 20 ms

        return version("freetrain")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the names of the Python interface, beside those that are imported."""
    return sorted({*globals(), *__all__})
