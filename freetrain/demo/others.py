"""Other people's jobs: they come and go, so that holes open and close."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.standin.records import NODES, Job

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_BUSY = 4
"""Nodes that others hold at a time: some are left for training."""

_LIMIT_S = 3_600.0
_BREATH_S = 3.0
_STEP_S = 6.0
_FIRST_S = 16.0
_RUNS_S = (9.0, 16.0)
_NOTICE_S = (8.0, 15.0)


@dataclass(frozen=True, slots=True)
class Stay:
    """One job of somebody's.

    Attributes:
        submit_s: When Slurm first hears of it, seconds from the beginning.
        start_s: When it is to start.
        end_s: When it ends.
        nodes: Where.
    """

    submit_s: float
    start_s: float
    end_s: float
    nodes: tuple[str, ...]


def stays(*, seconds: float, seed: int) -> tuple[Stay, ...]:
    """Return a little more than *seconds* of other people's jobs, by start.

    Four nodes are busy at first, and come free one after the other. Every second
    job then comes without notice; the others wait in the queue first, with a plan.
    """
    chance = random.Random(seed)  # noqa: S311 - a workload, no secret
    found = list(_first(chance))
    now_s = _FIRST_S + chance.uniform(2.0, 5.0)
    while now_s < seconds:
        run_s = chance.uniform(*_RUNS_S)
        nodes = _room(found, now_s, now_s + run_s, chance)
        if nodes:
            notice_s = chance.uniform(*_NOTICE_S) if len(found) % 2 else 0.0
            submit_s = max(0.0, now_s - notice_s)
            found.append(Stay(submit_s, now_s, now_s + run_s, nodes))
        now_s += _STEP_S * chance.uniform(0.8, 1.6)
    return tuple(sorted(found, key=lambda stay: stay.start_s))


def as_jobs(found: tuple[Stay, ...], *, begin_s: float) -> list[Job]:
    """Return *found* as jobs of the stand-in, from the Unix time *begin_s* on."""
    return [
        Job(
            job_id=0,
            name=f"theirs-{number}",
            user="others",
            partition="main",
            limit_s=_LIMIT_S,
            submit_s=begin_s + stay.submit_s,
            due_s=begin_s + stay.start_s,
            wanted=list(stay.nodes),
            run_s=stay.end_s - stay.start_s,
        )
        for number, stay in enumerate(found, start=1)
    ]


def _first(chance: random.Random) -> Iterator[Stay]:
    busy = chance.sample(NODES, 4)
    for place, node in enumerate(busy):
        end_s = 6.0 + 4.0 * place + chance.uniform(0.0, 2.0)
        yield Stay(0.0, 0.0, end_s, (node,))


def _room(
    found: list[Stay], start_s: float, end_s: float, chance: random.Random
) -> tuple[str, ...]:
    """Return one or two nodes that nobody else holds then; none if too many do."""
    taken = {
        node
        for stay in found
        if stay.start_s < end_s + _BREATH_S and start_s < stay.end_s + _BREATH_S
        for node in stay.nodes
    }
    free = [node for node in NODES if node not in taken]
    count = min(chance.randint(1, 2), MOST_BUSY - len(taken))
    return tuple(sorted(chance.sample(free, count))) if count > 0 else ()
