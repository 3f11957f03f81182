"""Why a trainer has what it has, in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.broker.explain import TrainerReason
from freetrain.desk.status import Doing
from freetrain.store.trainers import TrainerState

if TYPE_CHECKING:
    from freetrain.desk.page import Page
    from freetrain.desk.status import Standing


def reason_of(one: Standing, page: Page) -> str:
    """Return why *one* is as it is; empty where there is nothing to explain."""
    if one.problem:
        return one.problem
    if one.row.state is TrainerState.FAILED:
        return one.row.message or _last_words(one)
    if one.row.state is not TrainerState.WANTED:
        return one.row.message
    if one.doing is Doing.STOPPING and one.worlds.newest is not None:
        return one.worlds.newest.reason
    told = page.of_trainer(one.row.name).get("reason")
    if told in {None, TrainerReason.AS_PLANNED}:
        return ""
    return f"{told}{_brake(one, page)}."


def _brake(one: Standing, page: Page) -> str:
    brake = page.of_trainer(one.row.name).get("brake")
    return f" ({brake})" if brake else ""


def _last_words(one: Standing) -> str:
    ending = one.worlds.ending
    return "" if ending is None else f"{ending.ended}: {ending.message}"
