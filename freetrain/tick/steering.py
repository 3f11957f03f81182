"""Which idle nodes leases are kept off, so that they start where they are wanted."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from freetrain.broker.pool import Refusal
from slurm.batch import MAX_VALUE_BYTES
from slurm.hostlist import collapse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from freetrain.broker.actions import Submit
    from freetrain.broker.decide import Look
    from freetrain.broker.lease import Intent
    from freetrain.broker.pool import Pool
    from freetrain.tick.decision import Decided

PATIENCE_S = 180.0
"""A few cycles of backfill, which is 30 s and more by default."""


def kept_off(decided: Decided, action: Submit) -> str:
    """Return the holes that the leases of *action* are not meant for, as a hostlist.

    Slurm chooses the node of a lease. It must not choose one that the lease would
    hold for longer than we know, and Slurm does not, that it may; nor one that is left
    to somebody, who may come after leases in Slurm's order, or not wait for it yet;
    nor, where holes are told apart by what is expected of them, one that the plan left
    alone: the next tick would give the lease up and ask for another. Nodes that come
    free later are not kept from.

    Returns:
        Empty where any hole will do. Of a list that is too long for Slurm as many as
        it takes, in this order, and the first in Slurm's, which it would give first.
    """
    look, shape = decided.look, action.shape
    places = {hole.node: place for place, hole in enumerate(look.holes[shape])}

    def in_order(nodes: Iterable[str]) -> list[str]:
        return sorted(nodes, key=lambda name: (places.get(name, math.inf), name))

    left = {**look.claims.idle, **look.claims.care.kept}
    groups = _booked(look, action), left, _left_alone(decided, action)
    return _listed(list(dict.fromkeys(chain.from_iterable(map(in_order, groups)))))


def _listed(nodes: list[str]) -> str:
    """Return the first of *nodes* as Slurm takes them; empty where it takes none."""
    try:
        every = collapse(nodes)
        if _is_short(every):
            return every
        few, many = 0, len(nodes)  # the first few are a short list
        while many - few > 1:
            half = (few + many) // 2
            is_short = _is_short(collapse(nodes[:half]))
            few, many = (half, many) if is_short else (few, half)
        return collapse(nodes[:few])
    except ValueError:
        return ""


def _is_short(text: str) -> bool:
    return len(text) <= MAX_VALUE_BYTES


def _booked(look: Look, action: Submit) -> set[str]:
    """Return the holes that are over before the lease, as somebody is booked there."""
    until_s = look.now_s + 60.0 * action.limit_min
    return {
        hole.node
        for hole in look.holes[action.shape]
        if hole.node in look.claims.booked_s
        and hole.end_s is not None
        and hole.end_s < until_s
    }


def _left_alone(decided: Decided, action: Submit) -> set[str]:
    outlook, decision = decided.outlook, decided.decision
    if outlook is None or outlook.forecast.is_learning:
        return set()
    requests = (one for one in decision.wanted.requests if one.shape == action.shape)
    wanted = {node for one in requests for node in one.nodes}
    return _idle(decision.classes.pool) - wanted


def _idle(pool: Pool) -> set[str]:
    """Return the holes that a lease could start on, those beyond the cap as well."""
    capped = (name for name, why in pool.refused.items() if why is Refusal.LEASE_CAP)
    return {node.name for node in pool.nodes if node.lease is None}.union(capped)


def sooner(intent: Intent) -> Intent:
    """Return *intent* with a deadline that does not let its leases wait for long.

    They keep off the nodes that were not wanted when they were asked for, and count
    as what the next plans ask: one that finds its nodes taken would hold up a trainer
    that could have others by then.
    """
    latest_s = intent.created_s + 60.0 * intent.limit_min + PATIENCE_S
    return replace(intent, deadline_s=min(intent.deadline_s, latest_s))
