"""A tick in one line, for people."""

from __future__ import annotations

from collections import Counter as Count
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from freetrain.broker.lease import LeaseState
from freetrain.report.gap_text import gap_percent
from freetrain.store.trainers import TrainerState
from milp.planner import Outcome

if TYPE_CHECKING:
    from freetrain.tick.page import Page


def utc(time_s: float) -> str:
    """Return a Unix time as people and programs read it."""
    return datetime.fromtimestamp(time_s, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def line_of(page: Page) -> str:
    """Return what a tick saw and did."""
    states = Count(lease.state for lease in page.leases)
    wanting = [one for one in page.trainers if one.state == TrainerState.WANTED]
    running = sum(one.nodes > 0 for one in wanting)
    parts = [
        f"{len(page.holes)} holes",
        f"{states[LeaseState.RUNNING]} leases run, {states[LeaseState.PENDING]} wait",
        f"{running} of {len(wanting)} trainers run",
        *(_plan(page) if wanting else ()),
        _done(page.done),
        f"{page.requests} requests, {page.took_s:.2f} s",
    ]
    if page.is_torn:
        parts.append("a look during backfill")
    if page.held_back:
        parts.append(f"asking for no more: {page.held_back}")
    parts += [f"problem: {problem}" for problem in page.problems]
    return "; ".join(parts)


def _plan(page: Page) -> list[str]:
    if page.planner_gap is None or page.planner == Outcome.PROVEN:
        return []
    return [f"plan at most {gap_percent(page.planner_gap)} below the best"]


def _done(done: dict[str, int]) -> str:
    return (
        f"asked for {done['leases asked for']} leases, ended {done['leases ended']}, "
        f"made {done['generations']} generations"
    )
