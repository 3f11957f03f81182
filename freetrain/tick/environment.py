"""The real outside of a tick: this process, this host, its Slurm."""

from __future__ import annotations

import os
import resource
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.agent.seen import VARIABLE as PATIENCE
from freetrain.state.database import Ticker
from freetrain.tick.context import Outside, call_hook
from slurm.backend import connect
from slurm.runner import (
    SubprocessRunner,
    scrubbed,
    user_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurm.backend import SlurmBackend


# ----------------------------------------------------------------------
# The real outside of a tick: this process, this host, its Slurm.

PYSLURM = "FREETRAIN_PYSLURM"
"""The variable that, set to ``off``, leaves an installed pyslurm alone."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024
"""Unit of ``ru_maxrss``: getrusage(2) counts KiB, on macOS bytes."""


def real_outside(environ: Mapping[str, str]) -> Outside:
    """Return the outside of this process, with the Slurm that it leads to."""
    return Outside(
        now_s=time.time,  # noqa: TID251 - this is the edge
        clock=time.monotonic,
        ticker=Ticker(os.uname().nodename, os.getpid(), _boot_id()),
        is_alive=is_alive,
        new_uuid=lambda: str(uuid.uuid4()),
        connect=slurm_of(environ),
        uid=os.getuid(),
        path=environ.get("PATH", os.defpath),
        home=environ.get("HOME", ""),
        python=sys.executable,
        agent_patience=environ.get(PATIENCE, ""),
        peak_rss_bytes=_peak_rss_bytes,
        call=call_hook,
    )


def slurm_of(environ: Mapping[str, str]) -> Callable[[int], SlurmBackend]:
    """Return what connects to the Slurm that *environ* leads to."""

    def connected(most_requests: int) -> SlurmBackend:
        return connect(
            SubprocessRunner(scrubbed(environ)),
            user=user_name(),
            max_requests=most_requests,
            allow_pyslurm=environ.get(PYSLURM) != "off",
        )

    return connected


def is_alive(pid: int) -> bool:
    """Tell whether a process of this host lives; somebody else's does."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _peak_rss_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_BYTES
