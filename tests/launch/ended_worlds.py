"""Waiting for the end of a world that a test launched."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freetrain.launch.local import Session

PATIENCE_S = 60.0


def wait(world: Session) -> int:
    """Return how *world* ended, once it has."""
    end_s = time.monotonic() + PATIENCE_S
    while (status := world.poll()) is None:
        assert time.monotonic() < end_s
        time.sleep(0.005)
    return status
