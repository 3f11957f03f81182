"""How trainers stand, for programs: what ``freetrain status --json`` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from freetrain.cli.pack_text import pack_record
from freetrain.cli.why_text import reason_of

if TYPE_CHECKING:
    from freetrain.client.status import Overview, Standing
    from freetrain.state.tables import Delivery


def status_record(seen: Overview) -> dict[str, Any]:
    """Return everything there is to see; what nobody told is null."""
    return {
        "now_s": seen.now_s,
        "last_tick_s": None if seen.page is None else seen.page.at_s,
        "is_tick_missing": seen.is_tick_missing,
        "forecaster": (seen.page.forecaster if seen.page else "") or None,
        "leases": {str(state): count for state, count in seen.leases.items()},
        "problems": list(seen.page.problems) if seen.page else [],
        "trainers": [_record(one, seen) for one in seen.standings],
    }


def _record(one: Standing, seen: Overview) -> dict[str, Any]:
    newest, ending = one.worlds.newest, one.worlds.ending
    line = seen.of_trainer(one.row.name)
    return {
        "name": one.row.name,
        "state": str(one.row.state),
        "doing": str(one.doing),
        "since_s": one.since_s,
        "submitted_s": one.row.submitted_s,
        "nodes": one.nodes,
        "planned_nodes": None if line is None else line.planned_nodes,
        "node_names": [m.node for m in newest.members] if newest else [],
        "generation": one.generation,
        "generation_reason": newest.reason if newest else None,
        "generation_author": newest.author if newest else None,
        **_progress(one),
        "committed_step": one.committed_step,
        "last_ending": None if ending is None else str(ending.ended),
        "last_message": None if ending is None else ending.message,
        "reason": reason_of(one, seen),
        "is_diverging": line is not None and line.is_diverging,
        "delivery": _delivery(seen.delivery_of(one.row)),
        "pack": None if one.pack is None else pack_record(one.pack),
        "run_dir": one.row.run_dir,
    }


def _delivery(delivery: Delivery | None) -> dict[str, Any] | None:
    if delivery is None:
        return None
    return {
        "stage": str(delivery.stage),
        "reached_s": delivery.reached_s,
        "step": delivery.step,
        "value": delivery.value,
        "checkpoint": delivery.checkpoint or None,
        "problem": delivery.problem or None,
    }


def _progress(one: Standing) -> dict[str, Any]:
    told = one.progress
    return {
        "step": told.step if told else None,
        "samples": told.samples if told else None,
        "epoch": told.epoch if told else None,
        "loss": told.loss if told else None,
        "told_s": told.t if told else None,
        "samples_per_s": one.samples_per_s,
    }
