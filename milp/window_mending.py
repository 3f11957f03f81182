"""Large steps out of a plan that no single exchange improves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from milp.window_rounding import choose

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from milp.deadline import Deadline
    from milp.window_bound import Dual
    from milp.window_exchange import Exchange
    from milp.window_options import Options

    Places = NDArray[np.intp]

_TOGETHER = 8
"""Trainers that choose anew together; 3 and 20 find less in the same time."""

_GOLDEN = 0.618034

_PROGRESS = 1e-9


def mend(
    exchange: Exchange,
    options: Options,
    dual: Dual,
    *,
    rounds: int,
    deadline: Deadline,
) -> int:
    """Let few trainers at a time give what they took and choose anew.

    What comes of it is exchanged until nothing improves, and kept if it is better.

    Args:
        exchange: Holds the plan, which only gets better.
        options: Sizes of all trainers.
        dual: Prices of nodes, for which the others may want them.
        rounds: How many attempts to make at most.
        deadline: When to stop.

    Returns:
        How many attempts were kept.
    """
    ledger, kept = exchange.ledger, 0
    for places in _few_at_a_time(len(ledger.counts), rounds):
        if deadline.passed():
            break
        before, gain = ledger.counts.copy(), ledger.gain
        for place in places:
            ledger.counts[place] = ledger.lay_down(place)
        choose(options, dual.prices, places, ledger.counts, free=exchange.free())
        changed = (ledger.counts != before).any(axis=1)
        for place in np.flatnonzero(changed).tolist():
            ledger.refresh(place)
        exchange.run(deadline)
        if ledger.gain > gain + _PROGRESS * abs(gain):
            kept += 1
            continue
        moved = np.flatnonzero((ledger.counts != before).any(axis=1)).tolist()
        ledger.counts[:] = before
        for place in moved:
            ledger.refresh(place)
    return kept


def _few_at_a_time(trainers: int, rounds: int) -> Iterator[list[int]]:
    """Yield trainers spread evenly, other ones each time, by the golden ratio."""
    few = min(_TOGETHER, trainers)
    for number in range(rounds if trainers else 0):
        begin = number * few
        places = [
            int(trainers * (((begin + i) * _GOLDEN + number * 0.017) % 1.0))
            for i in range(few)
        ]
        yield list(dict.fromkeys(places))
