"""Checks of a window's plan in plain Python, whatever a search or solver claimed.

Nothing here is shared with them; the numbers are those of docs/model.md. Only what
changes is looked at, where it stands: 5 us an event of two days of Summit, 10 trainers
at a time, of about 500 us in all. As a ``Problem`` for ``milp.verify`` it takes 16 us.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from milp.verify import is_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from milp.window import Holder, Holding, Window

    _Moved: TypeAlias = tuple[int, Holder, Holding]

_ROUNDING = 1e-9


def violations(
    window: Window, holdings: Sequence[Holding], *, claimed: float, least: float
) -> tuple[str, ...]:
    """Return what is wrong with a plan, in sentences; empty for a sound one.

    M1 to M4, over the trainers that change; a window has no M5.

    Args:
        window: The problem.
        holdings: The plan.
        claimed: What it is said to gain, W0.
        least: What keeping the present plan gains.
    """
    pairs = enumerate(zip(window.trainers, holdings, strict=True))
    moved = [
        (place, trainer, new)
        for place, (trainer, new) in pairs
        if new is not trainer.held and new != trainer.held
    ]
    broken = [one for changed in moved for one in _trainer_violations(*changed)]
    broken += _over_stock(window, moved)
    if not broken and claimed < least - _ROUNDING * (1.0 + abs(least)):
        broken = [f"W0: gains {claimed!r}, and keeping the present plan {least!r}"]
    return tuple(broken)


def _trainer_violations(place: int, trainer: Holder, new: Holding) -> Iterator[str]:
    held = trainer.held
    before, nodes = sum(held.values()), sum(new.values())
    if nodes and not is_size(nodes, trainer.curve.sizes):
        yield f"M2: trainer {place}: {nodes} nodes is not a size it can use"
    for k, count in new.items():
        if type(count) is not int or count < 0:
            yield f"M1: trainer {place}: {count!r} is not a whole number of nodes"
        if nodes <= before and count > held.get(k, 0):
            yield _migrates(place, before, nodes, k)
    if nodes >= before:
        for k, count in held.items():
            if count > new.get(k, 0):
                yield _migrates(place, before, nodes, k)


def _migrates(place: int, before: int, nodes: int, k: int) -> str:
    way = "more" if nodes <= before else "fewer"
    return f"M4: trainer {place}: {before} to {nodes} nodes, but {way} of class {k}"


def _over_stock(window: Window, moved: Sequence[_Moved]) -> Iterator[str]:
    """M3: no more of a class is given than was free or is given up."""
    more: dict[int, int] = {}
    for _, trainer, new in moved:
        for k, count in new.items():
            more[k] = more.get(k, 0) + count
        for k, count in trainer.held.items():
            more[k] = more.get(k, 0) - count
    for k, count in more.items():
        if count > window.free.get(k, 0):
            yield f"M3: {count} more nodes of class {k}, of which fewer are free"
