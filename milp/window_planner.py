"""Plans by expected lives: a fast search from two starts, verified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from milp.window_chances import Chances
from milp.window_search import Climb
from milp.window_table import Table
from milp.window_verify import violations
from milp.window_worths import Worths

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from milp.window import Holding, Window


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """An answer that breaks no constraint.

    Attributes:
        holdings: Nodes by trainer and class.
        gain: What they gain, W0.
        kept: The present plan; who holds what is no size falls back to the next below.
        kept_gain: What it gains; never more than ``gain``.
        refused: Why the search's plan was refused and the present one kept; empty
            as long as there is no defect.
    """

    holdings: tuple[Holding, ...]
    gain: float
    kept: tuple[Holding, ...]
    kept_gain: float
    refused: tuple[str, ...] = ()


class WindowPlanner:
    """Plans window after window; keeps what it derives from curves."""

    def __init__(self) -> None:
        self._worths = Worths()

    def plan(
        self,
        window: Window,
        starts: Sequence[Sequence[int]] = (),
        *,
        stop: Callable[[], bool] | None = None,
    ) -> WindowPlan:
        """Return the best plan found from the present one and from *starts*.

        Args:
            window: What is to be planned.
            starts: Node counts by trainer to begin from besides, for example those
                of the published planner; one that does not fit the pool is left out.
            stop: Tells that there is no more time; the best plan so far is returned.
        """
        chances = Chances(window, self._worths)
        present = Table(window, chances)
        present.settle()
        kept, kept_gain = present.holdings(), present.value
        counts = [seat.nodes for seat in present.seats]
        stock = sum(counts) + sum(present.free.values())
        Climb(present).run(stop)
        ended = present.holdings()
        tables = [present]
        for start in starts:
            fits = min(start, default=0) >= 0 and sum(start) <= stock
            if fits and list(start) != counts:
                table = Table(window, chances)
                table.reach(start)
                # From where the first search ended nothing leads on.
                if table.holdings() != ended:
                    Climb(table).run(stop, ended)
                    tables.append(table)
        gains = [table.value for table in tables]
        gained = max(gains)
        holdings = tables[gains.index(gained)].holdings()
        broken = violations(window, holdings, claimed=gained, least=kept_gain)
        if broken:
            return WindowPlan(kept, kept_gain, kept, kept_gain, broken)
        return WindowPlan(holdings, gained, kept, kept_gain)
