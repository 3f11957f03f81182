"""What is not leased, so that no single end of a job makes somebody wait for long.

A job that ends in the second before a cycle of backfill's is seen by no look: in that
cycle somebody who needs leased nodes does not start, and others may start instead who
hold what it needs for hours. So at each look every job of others that runs is supposed
to have ended: who would start in the next cycle without leases, but neither beside
those that stay nor in the cycle after, when they have been given up? The nodes that
such a job would have are left alone (docs/replay.md, "Harm under yield").
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.broker.trial import End, TimeIsOverError, Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from freetrain.broker.ground import Ground
    from freetrain.broker.suiting import Wish

MOST_ENDS = 100
"""Jobs that are supposed to have ended at one look; each costs a plan, or several."""


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Caution:
    """What there is to be careful about, and how long that may take.

    Attributes:
        running: Nodes of each job of others that runs, one entry a job.
        again_s: Seconds from one cycle of backfill's to the next.
        longest_s: The longest lease, seconds.
        most_ends: How many of the jobs that run are tried at most: those on the most
            nodes.
        is_late: Tells when no more may be planned; asked before each plan.
    """

    running: Sequence[frozenset[str]]
    again_s: float
    longest_s: float
    most_ends: int = MOST_ENDS
    is_late: Callable[[], bool] = _never


@dataclass(frozen=True, slots=True)
class Care:
    """What came of it.

    Attributes:
        kept: Nodes to keep leases off, each with the number of who would need it.
        untried: Jobs that run whose end could still make somebody wait: there were
            too many, or there was no time.
    """

    kept: Mapping[str, int]
    untried: int


NO_CARE = Care({}, 0)


@dataclass(frozen=True, slots=True)
class Scene:
    """What is so at a look.

    Attributes:
        waiting: What others' jobs need that nothing but nodes keeps waiting, in their
            order.
        ground: Where they might start.
        given: Nodes that are given up or left alone anyway, each with a job's number.
        booked_s: When nodes are booked for jobs, by node, Unix time.
        now_s: When the snapshot was taken, Unix time.
    """

    waiting: Sequence[Wish]
    ground: Ground
    given: Mapping[str, int]
    booked_s: Mapping[str, float]
    now_s: float


def keep_free(scene: Scene, caution: Caution) -> Care:
    """Return what not to lease, besides what is given up anyway.

    Args:
        scene: What is so; somebody waits.
        caution: What runs, and how long this may take.
    """
    if all(hole.node in scene.given for hole in scene.ground.holes):
        return NO_CARE
    trial = Trial(scene, caution)
    freed = sorted(_freed(caution.running), key=len, reverse=True)
    untried = [frozenset[str](), *freed[: caution.most_ends]]  # first how it is now
    ends: list[End] = []
    unsure: list[End] = []
    kept: dict[str, int] = {}
    with suppress(TimeIsOverError):
        while untried or unsure:
            end = trial.end(untried[0]) if untried else unsure[0]
            more = trial.needed(end, {**scene.given, **kept}) if end else {}
            (untried or unsure).pop(0)
            if more:  # whoever has been asked before may come out otherwise now
                kept |= more
                unsure += [one for one in ends if one is not end and one not in unsure]
            if end and end not in ends:
                ends.append(end)
    beyond = freed[caution.most_ends :]
    left = [*beyond, *filter(None, untried), *(end for end in unsure if end.freed)]
    return Care(kept, len(left))


def _freed(running: Sequence[frozenset[str]]) -> Iterator[frozenset[str]]:
    """Yield the nodes that nobody would hold any more, were one job to end."""
    holders = Counter(name for nodes in running for name in nodes)
    for nodes in running:
        freed = frozenset(name for name in nodes if holders[name] == 1)
        if freed:
            yield freed
