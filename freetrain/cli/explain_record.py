"""Why things are as they are, for programs: what ``freetrain explain --json`` shows."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from freetrain.cli.curves_record import outlook_record
from freetrain.cli.pack_text import pack_record
from freetrain.cli.why_text import reason_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from freetrain.client.status import Chapter, Curves, Overview
    from freetrain.tick.page import Page


def explain_record(
    seen: Overview,
    chapters: Mapping[str, Sequence[Chapter]],
    learned: Mapping[str, Curves],
) -> dict[str, Any]:
    """Return the reasons for everything; what no tick told is empty."""
    page = seen.page
    return {
        "now_s": seen.now_s,
        "at_s": None if page is None else page.at_s,
        "problems": list(page.problems) if page else [],
        "priority": page.priority if page else "",
        "forecaster": (page.forecaster if page else "") or None,
        "plan": None if page is None else _plan(page),
        "trainers": [
            {
                "name": one.row.name,
                "doing": str(one.doing),
                "reason": reason_of(one, seen),
                "tick": None
                if (line := seen.of_trainer(one.row.name)) is None
                else asdict(line),
                "learned": None
                if (known := learned.get(one.row.name)) is None
                else outlook_record(known),
                "pack": None if one.pack is None else pack_record(one.pack),
                "generations": [_chapter(c) for c in chapters[one.row.name]],
            }
            for one in seen.standings
        ],
        "holes": [asdict(hole) for hole in page.holes] if page else [],
        "leases": [asdict(lease) for lease in page.leases] if page else [],
        "came": [asdict(one) for one in page.came] if page else [],
        "promises": [asdict(one) for one in page.promises] if page else [],
        "leaves": page.leaves if page else 0,
        "leaf_rate": page.leaf_rate if page else None,
    }


def _plan(page: Page) -> dict[str, Any]:
    return {
        "outcome": page.planner,
        "reason": page.planner_reason,
        "gap": page.planner_gap,
        "is_by_lives": page.is_by_lives,
    }


def _chapter(chapter: Chapter) -> dict[str, Any]:
    made, ending = chapter.assigned, chapter.ending
    return {
        "generation": made.generation,
        "created_s": made.created_s,
        "author": made.author,
        "reason": made.reason,
        "nodes": [member.node for member in made.members],
        "ending": None if ending is None else asdict(ending),
    }
