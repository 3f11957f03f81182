"""How well shadow mode foretold: holes, leases and training, by what came after."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from freetrain.api.shadow import MOST_GAP_S, observations
from freetrain.errors import MissingInputError
from slurm.records import expand

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from freetrain.api.shadow import ShadowLook


@dataclass(frozen=True, slots=True, kw_only=True)
class ForetoldHoles:
    """Holes of which an end was foretold: a job or reservation was planned there.

    Attributes:
        stayed: They lasted until then, or were gone by less than a look sooner.
        ended_early: They did not.
        early_s: By how much, in the median of these; None where there were none.
        unknown: It is not known, as they last still or observations were missing.
    """

    stayed: int
    ended_early: int
    early_s: float | None
    unknown: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenHoles:
    """Holes of which no end was foretold.

    Attributes:
        booked: An end was foretold later: from then on they count there.
        ended: A job took them at once, or they were gone for another reason.
        lasted_s: How long they lasted, in the median of these; None for none.
        unknown: As in ``ForetoldHoles``.
    """

    booked: int
    ended: int
    lasted_s: float | None
    unknown: int


@dataclass(slots=True)
class ShadowTraining:
    """What one trainer would have done: see ``Trained``."""

    node_s: float = 0.0
    samples: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowScore:
    """The score of a file of observations.

    Attributes:
        first_s: When the first was, Unix time; ``last_s`` the last.
        observations: How many there were.
        torn: Those that a backfill cycle overlapped.
        missing_s: Time in gaps of more than five minutes, which counts for nothing.
        idle_mean: Idle nodes on average, over the observations.
        nodes: Nodes of the cluster at the last one.
        foretold: Holes of which an end was foretold.
        open: Those of which none was.
        leases: Leases that would have been asked for.
        taken: Those of them that would have been preempted or given up for others.
        by_time: Those that their time limit would have ended.
        by_plan: Those that the plan gave up.
        training: By trainer, what it would have done.
    """

    first_s: float
    last_s: float
    observations: int
    torn: int
    missing_s: float
    idle_mean: float
    nodes: int
    foretold: ForetoldHoles
    open: OpenHoles
    leases: int
    taken: int
    by_time: int
    by_plan: int
    training: Mapping[str, ShadowTraining]


def score_file(path: Path) -> ShadowScore:
    """Return the score of the observations in the file at *path*.

    Raises:
        MissingInputError: There are none.
        BadDataError: A line cannot be read.
        OSError: The file cannot be read.
    """
    try:
        return score(observations(path))
    except (FileNotFoundError, StopIteration) as error:
        raise MissingInputError(
            f"there is no observation in {path}; nothing was scored. Let `freetrain "
            f"shadow JOB.TOML` run each minute for a while first."
        ) from error


@dataclass(slots=True)
class _Episode:
    """A hole of one node, from the first observation that has it to the last."""

    first_s: float
    last_s: float
    foretold_s: float | None


@dataclass(slots=True)
class _Sums:
    early_s: list[float] = field(default_factory=list)
    lasted_s: list[float] = field(default_factory=list)
    count: Counter[str] = field(default_factory=Counter)

    def over(self, hole: _Episode, gone_s: float | None) -> None:
        """Count *hole*, which was seen to be gone at *gone_s*; None for unknown."""
        if hole.foretold_s is None:
            self.count["open" if gone_s is not None else "open unknown"] += 1
            if gone_s is not None:
                self.lasted_s.append(hole.last_s - hole.first_s)
        elif hole.last_s >= hole.foretold_s or (
            # When it ended between two looks is not known.
            gone_s is not None and hole.foretold_s <= 2 * gone_s - hole.last_s
        ):
            self.count["stayed"] += 1
        elif gone_s is None:
            self.count["unknown"] += 1
        else:
            self.count["early"] += 1
            self.early_s.append(hole.foretold_s - gone_s)


def score(seen: Iterable[ShadowLook]) -> ShadowScore:
    """Return the score of observations, in order of time.

    Raises:
        StopIteration: There is none.
    """
    lines = iter(seen)
    last = first = next(lines)
    sums, counts, torn, idle, missing_s = _Sums(), 1, int(first.is_torn), 0, 0.0
    ends: Counter[str] = Counter()
    leases = len(first.leases)
    training: defaultdict[str, ShadowTraining] = defaultdict(ShadowTraining)
    episodes = dict(_begun(first))
    idle = len(episodes)
    for line in lines:
        counts, torn = counts + 1, torn + int(line.is_torn)
        gap_s = line.at_s - last.at_s
        now = dict(_begun(line))
        idle += len(now)
        if gap_s > MOST_GAP_S:
            missing_s += gap_s
            for hole in episodes.values():
                sums.over(hole, None)
            episodes = now
        else:
            for node in episodes.keys() - now.keys():
                sums.over(episodes.pop(node), line.at_s)
            for node, hole in now.items():
                before = episodes.setdefault(node, hole)
                if hole.foretold_s is not None and before.foretold_s is None:
                    sums.count["booked"] += 1
                    episodes[node] = hole
                episodes[node].last_s = line.at_s
        ends.update(end.why for end in line.ended)
        leases += sum(lease.start_s == line.at_s for lease in line.leases)
        for name, done in line.trained.items():
            training[name].node_s += done.node_s
            if done.samples is not None:
                so_far = training[name].samples or 0.0
                training[name].samples = so_far + done.samples
        last = line
    for hole in episodes.values():
        sums.over(hole, None)
    return ShadowScore(
        first_s=first.at_s,
        last_s=last.at_s,
        observations=counts,
        torn=torn,
        missing_s=missing_s,
        idle_mean=idle / counts,
        nodes=last.nodes,
        foretold=ForetoldHoles(
            stayed=sums.count["stayed"],
            ended_early=sums.count["early"],
            early_s=_median(sums.early_s),
            unknown=sums.count["unknown"],
        ),
        open=OpenHoles(
            booked=sums.count["booked"],
            ended=sums.count["open"],
            lasted_s=_median(sums.lasted_s),
            unknown=sums.count["open unknown"],
        ),
        leases=leases,
        taken=ends["taken"],
        by_time=ends["time"],
        by_plan=ends["plan"],
        training=training,
    )


def _begun(line: ShadowLook) -> Iterator[tuple[str, _Episode]]:
    for names, end_s in line.holes:
        for node in expand(names):
            foretold_s = end_s if isinstance(end_s, float) else None
            yield node, _Episode(line.at_s, line.at_s, foretold_s)


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None
