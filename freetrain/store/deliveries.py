"""Models that are handed over: written down before anything is done about them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from freetrain.store.rows import columns, put, select

if TYPE_CHECKING:
    import sqlite3


class Stage(StrEnum):
    """How far a delivery is; each stage is written down before the next begins."""

    REACHED = "reached"  # the target; the checkpoint is yet to be published
    PUBLISHED = "published"  # the checkpoint is there; the hook is yet to be called
    CALLING = "calling"  # the hook is about to be called, or was when a tick died
    DELIVERED = "delivered"  # all is done, however the hook ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One trainer's model, from the moment that its target was reached.

    Attributes:
        trainer: Its name.
        submitted_s: Which of its submissions; each is delivered once.
        stage: How far it is.
        reached_s: When the value was told, Unix time.
        step: Steps done then; None where its program does not count them.
        value: The value that was told.
        changed_s: When the stage last changed, Unix time.
        checkpoint: Name of the checkpoint that was published; empty for none.
        problem: What went wrong last, for people; empty for nothing. Hostile text.
    """

    trainer: str
    submitted_s: float
    stage: Stage
    reached_s: float
    step: int | None
    value: float
    changed_s: float
    checkpoint: str = ""
    problem: str = ""


_COLUMNS = columns(Delivery)


def put_delivery(connection: sqlite3.Connection, delivery: Delivery) -> None:
    """Insert or change *delivery*, inside the caller's transaction."""
    row = [getattr(delivery, name) for name in _COLUMNS]
    put(connection, "deliveries", _COLUMNS, key=("trainer",), rows=[row])


def deliveries(connection: sqlite3.Connection) -> dict[tuple[str, float], Delivery]:
    """Return all deliveries, by trainer and submission.

    Raises:
        StoreError: They could not be read.
    """
    rows = select(connection, "deliveries", _COLUMNS)
    read = (Delivery(**dict(zip(_COLUMNS, row, strict=True))) for row in rows)
    found = (replace(one, stage=Stage(one.stage)) for one in read)
    return {(one.trainer, one.submitted_s): one for one in found}
