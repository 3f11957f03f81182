"""A port for worlds whose ranks meet by themselves."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from freetrain.launch.errors import CannotLaunchError

if TYPE_CHECKING:
    from random import Random

# Below what Linux gives to outgoing connections (32768 on), so that none takes it
# between the choice and its use.
_PORTS = range(20_000, 32_000)
_TRIES = 50


def free_port(rng: Random) -> int:
    """Return a TCP port of this node that nobody listens on.

    Somebody may take it before the world does. Then the world fails, and the next
    generation chooses anew: two in a row are improbable.

    Raises:
        CannotLaunchError: None was found.
    """
    for port in (rng.choice(_PORTS) for _ in range(_TRIES)):
        if _is_free(port):
            return port
    raise CannotLaunchError(
        f"none of {_TRIES} TCP ports from {_PORTS.start} to {_PORTS.stop} is free. "
        f"Nothing was started. Look for what listens on them with `ss -ltn`."
    )


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind(("", port))
        except OSError:
            return False
    return True
