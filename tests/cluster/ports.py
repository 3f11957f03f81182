"""TCP ports that nobody listens on."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

# Below the ports that Linux hands out to connections (32768 to 60999), so that none
# of those can take one between our look and the daemon's start.
_FIRST, _LAST = 15_000, 32_000
_TRIES = 1_000


def free_ports(count: int, *, rng: Random) -> tuple[int, ...]:
    """Return *count* different ports that were free on every address just now.

    Raises:
        OSError: Hardly any port is free.
    """
    ports: list[int] = []
    with ExitStack() as held:
        for _ in range(_TRIES):
            port = rng.randint(_FIRST, _LAST)
            listener = held.enter_context(socket.socket())
            try:
                listener.bind(("", port))
            except OSError:
                continue
            ports.append(port)
            if len(ports) == count:
                return tuple(ports)
    raise OSError(f"no {count} free ports between {_FIRST} and {_LAST}")
