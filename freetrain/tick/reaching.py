"""Which trainers have just reached the value at which they are delivered; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.store.deliveries import Delivery, Stage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.tick.observe import Observed


def reached(observed: Observed) -> Iterator[Delivery]:
    """Yield the deliveries that nobody has written down yet."""
    for standing in observed.trainers:
        name, submitted_s = standing.row.name, standing.row.submitted_s
        learned = observed.learned.get(name)
        if learned is None or learned.past.deliver is None:
            continue
        if (name, submitted_s) in observed.deliveries:
            continue
        told = learned.past.deliver
        yield Delivery(
            trainer=name,
            submitted_s=submitted_s,
            stage=Stage.REACHED,
            reached_s=told.t_s or observed.now_s,
            step=told.step,
            value=told.value,
            changed_s=observed.now_s,
        )
