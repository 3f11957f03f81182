"""What became of a trainer's targets, and whether its training has gone wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.state.tables import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.client.status import Overview, Standing
    from freetrain.state.tables import Delivery


def aim_lines(one: Standing, seen: Overview) -> Iterator[str]:
    """Yield what there is to know of the quality of *one*, a sentence a line."""
    line = seen.of_trainer(one.row.name)
    if line is not None and line.is_diverging:
        yield (
            "it is diverging: its last values are no numbers, or far worse than its "
            "best."
        )
    delivery = seen.delivery_of(one.row)
    if delivery is not None:
        yield from _delivery(one, delivery)


def _delivery(one: Standing, delivery: Delivery) -> Iterator[str]:
    metric = "" if one.job is None else f"{one.job.measure.metric} "
    at = f"{metric}{delivery.value:.6g}"
    step = "" if delivery.step is None else f", step {delivery.step:,}"
    if delivery.stage is Stage.DELIVERED:
        target = None if one.job is None else one.job.target
        place = target.publish if target is not None and delivery.checkpoint else None
        where = "" if place is None else f", in {place}"
        yield f"delivered at {at}{step}{where}."
    else:
        yield f"its target is reached at {at}{step}; it is being delivered."
    if delivery.problem:
        yield f"{delivery.problem}."
