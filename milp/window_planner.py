"""Plans by expected lives: a fast search from two starts, verified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from milp.problem import NodeClass, Problem, TrainerState
from milp.verify import constraint_violations
from milp.window_chances import Chances
from milp.window_search import Climb
from milp.window_table import Table
from milp.window_worths import Worths

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from milp.window import Holder, Holding, Window

_ROUNDING = 1e-9


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
        best = max(tables, key=lambda table: table.value)
        holdings = best.holdings()
        broken = violations(window, holdings, claimed=best.value, least=kept_gain)
        if broken:
            return WindowPlan(kept, kept_gain, kept, kept_gain, broken)
        return WindowPlan(holdings, best.value, kept, kept_gain)


def violations(
    window: Window, holdings: Sequence[Holding], *, claimed: float, least: float
) -> tuple[str, ...]:
    """Return what is wrong with a plan, in sentences; empty for a sound one.

    M1 to M5 by ``verify``, over the trainers that change and the classes that they
    change; all others are one class, of which they keep what they have.

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
    broken = constraint_violations(*_changed(window, moved)) if moved else ()
    if broken:
        return broken
    if claimed < least - _ROUNDING * (1.0 + abs(least)):
        return (f"W0: gains {claimed!r}, and keeping the present plan {least!r}",)
    return ()


def _changed(
    window: Window, moved: Sequence[tuple[int, Holder, Holding]]
) -> tuple[Problem, list[list[int]]]:
    """Return what changes as a problem of few trainers and classes.

    Args:
        window: The problem.
        moved: Trainers that change, with their places and their new holdings.
    """
    changed = [trainer.held.items() ^ new.items() for _, trainer, new in moved]
    touched = sorted({k for items in changed for k, _ in items})
    capacity = [
        window.free.get(k, 0) + sum([one.held.get(k, 0) for _, one, _ in moved])
        for k in touched
    ]
    states, rows = [], []
    for place, trainer, new in moved:
        held = [trainer.held.get(k, 0) for k in touched]
        row = [new.get(k, 0) for k in touched]
        rest = sum(trainer.held.values()) - sum(held)
        states.append(
            TrainerState(
                f"trainer {place}",
                trainer.curve,
                (*held, rest),
                trainer.up_s,
                trainer.down_s,
            )
        )
        rows.append([*row, sum(new.values()) - sum(row)])
    others = sum([state.held[-1] for state in states])
    classes = [NodeClass(str(k), n) for k, n in zip(touched, capacity, strict=True)]
    whole = (*classes, NodeClass("untouched", others))
    return Problem(whole, tuple(states), 0.0), rows
