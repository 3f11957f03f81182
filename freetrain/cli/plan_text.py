"""How good the last tick's plan is, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.state.tables import TrainerState
from freetrain.text import gap_percent
from milp.planner import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.tick.page import Page


def plan_lines(page: Page) -> Iterator[str]:
    """Yield how far the plan is from the best there can be; nothing without one."""
    is_wanted = any(one.state == TrainerState.WANTED for one in page.trainers)
    if page.planner_gap is None or not is_wanted:
        return
    lives = "by how long nodes are expected to stay"
    counted = f"counted {lives if page.is_by_lives else 'as if every node stayed'}"
    if page.planner == Outcome.PROVEN:
        yield f"The plan is proven to be the best, {counted}."
    else:
        stays = " that stays" if page.planner == Outcome.KEPT else ""
        most = gap_percent(page.planner_gap)
        yield f"The plan{stays} is at most {most} below the best, {counted}."
    if page.planner_reason:
        yield f"Of the plan: {page.planner_reason.rstrip('.')}."
