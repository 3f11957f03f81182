"""Everything there is to see of a state directory, in one look."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from freetrain.desk.change import find_trainer
from freetrain.desk.status import read_standing
from freetrain.desk.submission import LIVE
from freetrain.exchange.errors import UnreadableFileError
from freetrain.store.deliveries import deliveries
from freetrain.store.leases import leases
from freetrain.store.open_store import read_store
from freetrain.store.trainers import trainers
from freetrain.tick.page import read_page

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.broker.lease import LeaseState
    from freetrain.desk.status import Standing
    from freetrain.exchange.layout import StateDir
    from freetrain.store.deliveries import Delivery
    from freetrain.store.trainers import TrainerRow
    from freetrain.tick.page import Page, TrainerLine

SILENT_S = 600.0
"""Without a tick for so long, something is wrong with what calls it."""

LONG_S = 86_400.0
"""Who ended longer ago is not looked at, unless asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What there is to see.

    Attributes:
        now_s: When the look was taken, Unix time.
        standings: Trainers, in order of submission.
        leases: How many leases are in which state, as the last tick knew.
        page: What the last tick wrote; None before the first.
        problem: Why its page cannot be read, empty where it can.
        left_out: How many trainers ended too long ago to be looked at.
        deliveries: Models that are handed over, by trainer and submission.
    """

    now_s: float
    standings: tuple[Standing, ...]
    leases: Mapping[LeaseState, int]
    page: Page | None = None
    problem: str = ""
    left_out: int = 0
    deliveries: Mapping[tuple[str, float], Delivery] = field(default_factory=dict)

    @property
    def tick_age_s(self) -> float | None:
        """How long ago the last tick looked; None where none did."""
        return None if self.page is None else max(0.0, self.now_s - self.page.at_s)

    def of_trainer(self, name: str) -> TrainerLine | None:
        """Return what the last tick said of the trainer *name*; None for nothing."""
        lines = () if self.page is None else self.page.trainers
        return next((one for one in lines if one.name == name), None)

    def delivery_of(self, row: TrainerRow) -> Delivery | None:
        """Return how far the delivery of *row* is; None before its target."""
        return self.deliveries.get((row.name, row.submitted_s))

    @property
    def is_tick_missing(self) -> bool:
        """Whether it is so long since the last tick that people should know."""
        age_s = self.tick_age_s
        return age_s is None or age_s > SILENT_S


def overview(
    state: StateDir, *, name: str | None, uid: int, now_s: float, ended: bool = True
) -> Overview:
    """Return what there is to see, of all trainers or of one.

    Args:
        state: The state directory.
        name: A trainer; None for all.
        uid: Our own user number.
        now_s: Unix time.
        ended: Whether to look at trainers that ended long ago as well.

    Raises:
        UsageError: There is no trainer of that name.
        StoreError: The state cannot be read.
        OSError: A file cannot be read.
    """
    with read_store(state.path, uid=uid) as connection:
        rows = trainers(connection)
        held = leases(connection, ending_after_s=math.inf)
        delivered = deliveries(connection)
    if name is not None:
        wanted: tuple[TrainerRow, ...] = (find_trainer(rows, name),)
    else:
        long_s = math.inf if ended else LONG_S
        wanted = tuple(row for row in rows if _matters(row, now_s, long_s))
    page, problem = _page(state)
    return Overview(
        now_s=now_s,
        standings=tuple(read_standing(state, row) for row in wanted),
        leases=Counter(lease.state for lease in held),
        page=page,
        problem=problem,
        left_out=0 if name is not None else len(rows) - len(wanted),
        deliveries=delivered,
    )


def _page(state: StateDir) -> tuple[Page | None, str]:
    try:
        return read_page(state.page), ""
    except UnreadableFileError as error:  # another version's, until the next tick
        return None, str(error)


def _matters(row: TrainerRow, now_s: float, long_s: float) -> bool:
    return row.state in LIVE or now_s - row.changed_s < long_s
