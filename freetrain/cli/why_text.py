"""Why a trainer has what it has, in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.broker.decide import TrainerReason
from freetrain.client.status import Doing
from freetrain.state.tables import TrainerState

if TYPE_CHECKING:
    from freetrain.client.status import Overview, Standing
    from freetrain.tick.page import TrainerLine


def reason_of(one: Standing, seen: Overview) -> str:
    """Return why *one* is as it is; empty where there is nothing to explain."""
    if one.problem:
        return one.problem
    if one.doing is Doing.FAILED:
        return one.row.message or _last_words(one)
    if one.row.state is not TrainerState.WANTED or one.doing is Doing.FINISHED:
        return one.row.message
    if one.doing is Doing.STOPPING and one.worlds.newest is not None:
        return one.worlds.newest.reason
    return _told(one, seen.of_trainer(one.row.name))


def _told(one: Standing, line: TrainerLine | None) -> str:
    """Return what the last tick said of it, but where all is as it should be."""
    if line is None or line.problem:
        return "" if line is None else line.problem
    if line.reason in {"", TrainerReason.AS_PLANNED}:
        return ""
    if line.reason == TrainerReason.RE_FORMS and one.nodes == line.planned_nodes:
        return ""  # the tick moved it after it had looked
    return f"{line.reason}{f' ({line.brake})' if line.brake else ''}."


def _last_words(one: Standing) -> str:
    ending = one.worlds.ending
    return "" if ending is None else f"{ending.ended.words}: {ending.message}"
