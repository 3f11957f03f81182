"""What sets CPU shares: one interface, whatever the node lets us do."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from freetrain.pack.pack import MeansName

NOTHING_DUE_S = math.inf


class Means(Protocol):
    """Gives members of a pack their parts of its CPUs.

    Contract, checked for every implementation by ``tests/pack``: shares hold in
    proportion among members that want CPUs; a member's children and threads are
    held to its share as well, from their beginning or from the next ``follow`` on;
    after ``close`` nothing is left behind on the node, and nobody is held back.

    Attributes:
        name: What it is.
    """

    name: MeansName

    def admit(self, member: str) -> tuple[str, ...]:
        """Take *member* in; return the words that its command is to begin with.

        Raises:
            OSError: It cannot be held to a share; it must not be started.
        """
        ...

    def follow(self, member: str, pids: Iterable[int]) -> None:
        """Take note of all processes of *member* that are there now."""
        ...

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Give each member its part, above 0; those not named keep theirs.

        Raises:
            OSError: Some part could not be set.
        """
        ...

    def turn(self, now_s: float) -> float:
        """Do what is due at *now_s*, on a clock that never goes back.

        Returns:
            Seconds until something is due again; infinite for never.
        """
        ...

    def pids(self, member: str) -> tuple[int, ...]:
        """Return processes that this means knows to be of *member*."""
        ...

    def release(self, member: str) -> None:
        """Forget *member*, whose processes have all ended or are let go."""
        ...

    def close(self) -> None:
        """Hold nobody back any more, and remove all that was made."""
        ...
