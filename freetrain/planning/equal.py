"""The policy ``equal``: every trainer gets the same number of nodes.

Where leases share nodes, every trainer gets the same number of units (GPUs), as near as
whole leases allow.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from freetrain.planning.policy import Planned, checked, plan_in_order
from milp.answer import Judged, PlanStatus

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from freetrain.planning.policy import PlanTrainer, Request, Tools


class Equal:
    """Spreads the nodes evenly, whatever the trainers are worth."""

    def __init__(self, tools: Tools) -> None:
        self._verifies = tools.verifies

    def plan(self, request: Request) -> Planned:
        """Return equal shares, of nodes already held where there are such."""
        return plan_in_order(self._plan, request)

    def _plan(self, request: Request) -> Planned:
        if not request.trainers:
            return Planned(holdings=(), judged=Judged(0.0, 0.0, is_m0=True))
        nodes = sum(request.free.values())
        for trainer in request.trainers:
            units = trainer.units(trainer.held)
            nodes += sum([units.get(k, 0) for k in request.free])
        shares = _shares(request, nodes)
        if not self._verifies and len(request.free) == 1:
            (k,) = request.free
            return Planned(holdings=[{k: n} if n else {} for n in shares])
        return checked(
            request,
            _shared_out(request, shares),
            outcome=PlanStatus.INCUMBENT,
            reason="equal shares",
        )


def _shares(request: Request, units: int) -> list[int]:
    """Return leases by trainer: equal shares of all units, in its widest leases."""
    widths = [
        max([t.width(k) for k in _usable(t, request.free)], default=1)
        for t in request.trainers
    ]
    sizes = [
        trainer.curve.sizes
        if width == 1
        else tuple([size * width for size in trainer.curve.sizes])
        for trainer, width in zip(request.trainers, widths, strict=True)
    ]
    shares = equal_counts(sizes, units)
    return [share // width for share, width in zip(shares, widths, strict=True)]


def _shared_out(request: Request, shares: Sequence[int]) -> list[dict[int, int]]:
    """Return leases by class: each trainer's own first, then free ones, in order."""
    free = dict(request.free)
    for trainer in request.trainers:
        for k, units in trainer.units(trainer.held).items():
            free[k] += units
    usable = [_usable(trainer, free) for trainer in request.trainers]
    given: list[dict[int, int]] = []
    for trainer, share, classes in zip(request.trainers, shares, usable, strict=True):
        own: dict[int, int] = {}
        for k in classes:
            own[k] = min(trainer.held.get(k, 0), share - sum(own.values()))
            free[k] -= own[k] * trainer.width(k)
        given.append(own)
    for trainer, share, classes, own in zip(
        request.trainers, shares, usable, given, strict=True
    ):
        _grow(trainer, share, own, free, classes)
    return [{k: nodes for k, nodes in own.items() if nodes} for own in given]


def _usable(trainer: PlanTrainer, classes: Collection[int]) -> list[int]:
    return [k for k in classes if trainer.usable is None or k in trainer.usable]


def _grow(
    trainer: PlanTrainer,
    share: int,
    own: dict[int, int],
    free: dict[int, int],
    classes: Sequence[int],
) -> None:
    """Bring *own* to the largest size that the share and what is free allow."""
    room = sum(free[k] // trainer.width(k) for k in classes)
    most = min(share, sum(own.values()) + room)
    size = max((n for n in trainer.curve.sizes if n <= most), default=0)
    for k in classes:
        width = trainer.width(k)
        change = max(-own[k], min(free[k] // width, size - sum(own.values())))
        own[k] += change
        free[k] -= change * width


def equal_counts(sizes: Sequence[Sequence[int]], pool_nodes: int) -> list[int]:
    """Return each trainer's equal share of *pool_nodes*.

    At a level, each trainer gets its largest size of at most that many nodes. The
    share is the largest level for which the pool is enough. The rest lifts the first
    trainers, in order, to the next level, where it is enough for them. Where every
    size from 1 on is allowed, this is the pool over the trainers, and one node more
    for the first ones.

    Args:
        sizes: By trainer: node counts above 0 that it can run on, ascending.
        pool_nodes: Nodes to spread.
    """
    top = max([own[-1] for own in sizes])
    # No trainer gets more than the level: this one fits, and often the next does not.
    level = min(top, pool_nodes // len(sizes))
    counts, lifted = _at_level(sizes, level), _at_level(sizes, level + 1)
    if level < top and sum(lifted) <= pool_nodes:
        level = bisect_left(
            range(1, top + 1),
            1,
            lo=level + 1,
            key=lambda n: sum(_at_level(sizes, n)) > pool_nodes,
        )
        counts, lifted = _at_level(sizes, level), _at_level(sizes, level + 1)
    left = pool_nodes - sum(counts)
    for place, nodes in enumerate(lifted):
        more = nodes - counts[place]
        if 0 < more <= left:
            counts[place] = nodes
            left -= more
    return counts


def _at_level(sizes: Sequence[Sequence[int]], level: int) -> list[int]:
    """Return each trainer's largest size of at most *level* nodes, or 0."""
    return [
        own[at_most - 1] if (at_most := bisect_right(own, level)) else 0
        for own in sizes
    ]
