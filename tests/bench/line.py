"""What nodes in a line cost at each departure, and all that is learned beside it.

Eight nodes at the low end leave and come back, on machines of 2,000 and 20,000 idle
nodes; processor time, of each turn the least.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from freetrain.lookahead.affinity import BoundedAffinity
from freetrain.lookahead.learned import LearnedForecaster, NodeOrder
from freetrain.planning.settings import HORIZON_S

_SIZES = (2_000, 20_000)
_LEAVE = range(8)
_TURNS = 200
_STEP_S = 100.0


def lines(shared: Path) -> Iterator[str]:
    """Yield a row for each size, and how much the larger one takes of the smaller."""
    del shared
    took = {}
    for nodes in _SIZES:
        line_s, learned_s = took[nodes] = _least(_in_line(nodes)), _least(_all(nodes))
        yield (
            f"line, {nodes:,} idle nodes: a departure takes {1e6 * line_s:.0f} us, "
            f"{line_s / learned_s:.1%} of the {1e6 * learned_s:.0f} us of all that is "
            f"learned"
        )
    few, many = (took[nodes] for nodes in _SIZES)
    yield (
        f"line, ten times as many nodes: {many[0] / few[0]:.1f} times as long, all "
        f"that is learned {many[1] / few[1]:.1f} times"
    )


def _least(turn: Callable[[], float]) -> float:
    return min(turn() for _ in range(_TURNS))


def _in_line(nodes: int) -> Callable[[], float]:
    """Return what lets nodes leave a line, and says how long that took."""
    cluster_of = {node: node // len(_LEAVE) for node in range(nodes)}
    lineup = NodeOrder(cluster_of, order=int)

    def turn() -> float:
        began_s = time.process_time()
        lineup.leave(_LEAVE, clusters=nodes // len(_LEAVE))
        took_s = time.process_time() - began_s
        lineup.join(_LEAVE)
        return took_s

    return turn


def _all(nodes: int) -> Callable[[], float]:
    """Return what lets nodes leave a forecaster, and says how long that took."""
    learned = LearnedForecaster(
        HORIZON_S, pairs=BoundedAffinity(), checks=False, order=int
    )
    learned.see(0.0, joined=range(nodes), left=())
    now_s = 0.0

    def turn() -> float:
        nonlocal now_s
        now_s += _STEP_S
        began_s = time.process_time()
        learned.see(now_s, joined=(), left=_LEAVE)
        took_s = time.process_time() - began_s
        learned.see(now_s, joined=_LEAVE, left=())
        return took_s

    return turn
