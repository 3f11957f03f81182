"""Whose state directory it is: one cluster's at a time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from freetrain.errors import BadConfigurationError
from freetrain.exchange.errors import UnreadableFileError
from freetrain.tick.line import utc
from freetrain.tick.page import read_page

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from freetrain.broker.lease import Lease


def check_cluster(
    page: Path, cluster: str, leases: Iterable[Lease], *, now_s: float
) -> None:
    """Refuse to go on with what another cluster's tick wrote, while it has leases.

    Homes are shared by clusters. Each would take the other's leases for lost, and have
    those who train there stop, tick by tick. A cluster that was merely renamed shows
    leases still.

    Args:
        page: The file of the last tick's page.
        cluster: The name of this one.
        leases: What is believed after this look.
        now_s: Unix time.

    Raises:
        BadConfigurationError: It is another cluster's.
    """
    there = [one for one in leases if one.is_live and one.deadline_s > now_s]
    if not there or any(one.missed == 0 for one in there):
        return
    last = _last(page)
    if last in {"", cluster}:
        return
    until_s = math.ceil(max(one.deadline_s for one in there))
    raise BadConfigurationError(
        f"the state in {page.parent} is of cluster {last!r}, which has leases, and "
        f"this is {cluster!r}; nothing was done. Give each cluster a directory of its "
        f"own by state_directory in freetrain.toml. If it was renamed, ticks go on at "
        f"{utc(until_s)}, when its leases must have ended."
    )


def _last(page: Path) -> str:
    """Return where the last tick was; empty where that cannot be told."""
    try:
        last = read_page(page)
    except UnreadableFileError:
        return ""
    return "" if last is None else last.cluster
