"""The file of ``freetrain shadow``: a line of JSON for each look, and their score.

``api.shadow`` makes looks; ``append_look`` and ``last_look`` keep them, and
``score_file`` sums up how well was foretold, by what came after.
"""

from __future__ import annotations

import json
import os
import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from freetrain.errors import BadDataError, MissingInputError
from freetrain.opening import open_plain
from freetrain.state.files import StateDir
from slurm.records import expand

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from freetrain.config.site import Site


MOST_GAP_S = 300.0
"""Between lines further apart nothing is known, and nothing counts as trained."""

_TAIL_BYTES = 1 << 20
"""The last line, of ten thousand nodes that are idle singly, is shorter."""

OPEN: Literal["open"] = "open"
"""End of a hole before which no job or reservation is planned."""

Ends = float | Literal["open"] | None
"""When a hole ends, Unix time; ``OPEN``, or None where that is not known."""


class ShadowLease(msgspec.Struct, frozen=True, array_like=True):
    """A lease that was not asked for.

    Attributes:
        node: Where it would be.
        trainer: Whose it would be.
        start_s: When it was planned, Unix time.
        until_s: When its time limit would end it.
    """

    node: str
    trainer: str
    start_s: float
    until_s: float


class EndedLease(ShadowLease, frozen=True, array_like=True):
    """A lease that was not asked for, and would be over.

    Attributes:
        at_s: When that was seen.
        why: ``taken``: others have its node, or its piece of it, or could have it by
            the plan; ``time``: its time limit ended it; ``plan``: the plan gave it up.
    """

    at_s: float
    why: str


class Trained(msgspec.Struct, frozen=True, array_like=True):
    """What one trainer would have done since the line before.

    Attributes:
        lease_s: Seconds of its leases that lasted until this line, all together.
        samples: Samples by the speeds that its job file states, pauses taken off; None
            where it states none.
    """

    lease_s: float
    samples: float | None


class ShadowLook(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the file.

    Attributes:
        at_s: When the snapshot was taken, by slurmctld's clock.
        is_torn: Whether a backfill cycle overlapped it, so that plans may be missing.
        nodes: Nodes of the cluster.
        holes: Nodes with room for leases of these trainers, as Slurm lists them, with
            the end of their holes, margin taken off.
        leases: Those that would be there from now on.
        ended: Those that would have ended since the line before.
        trained: By trainer: what it would have done since then.
        problems: What the plan could not take into account, for people.
    """

    at_s: float
    is_torn: bool
    nodes: int
    holes: tuple[tuple[str, Ends], ...]
    leases: tuple[ShadowLease, ...]
    ended: tuple[EndedLease, ...]
    trained: dict[str, Trained]
    problems: tuple[str, ...] = ()


def shadow_file(site: Site) -> Path:
    """Return the file that lines are appended to."""
    return StateDir(site.state_directory).shadow / "looks.jsonl"


def append_look(path: Path, look: ShadowLook) -> None:
    """Append *look* to the file at *path*, made if it is missing.

    Raises:
        OSError: It could not be written.
    """
    # Not by msgspec, which writes no name that is not Unicode.
    line = json.dumps(msgspec.to_builtins(look), allow_nan=False) + "\n"
    file = open_plain(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    with os.fdopen(file, "ab+") as stream:
        if stream.tell() and os.pread(file, 1, stream.tell() - 1) != b"\n":
            stream.write(b"\n")  # after a line that a full disk has cut off
        stream.write(line.encode())


def last_look(path: Path) -> ShadowLook | None:
    """Return the last line of the file at *path*; None where there is none.

    A line that was cut off, as by a full disk, is passed over.

    Raises:
        BadDataError: It is another file's.
        OSError: It cannot be read.
    """
    try:
        file = open_plain(path)
    except FileNotFoundError:
        return None
    with os.fdopen(file, "rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _TAIL_BYTES))
        lines = stream.read().split(b"\n")[:-1]
    whole = (line for line in reversed(lines) if _is_whole(line))
    last = next(whole, None)
    return None if last is None else parse_line(last, path)


def looks(path: Path) -> Iterator[ShadowLook]:
    """Yield the lines of the file at *path*, in order.

    Raises:
        BadDataError: A line cannot be read.
        OSError: It is not there, or cannot be read.
    """
    with os.fdopen(open_plain(path), "rb") as stream:
        for line in stream:
            if _is_whole(line.removesuffix(b"\n")):
                yield parse_line(line, path)


def _is_whole(line: bytes) -> bool:
    """Tell whether *line* was written to its end, which is that of a JSON object."""
    return line.endswith(b"}")


def parse_line(line: bytes, path: Path) -> ShadowLook:
    """Return the look that *line* of the file at *path* is.

    Raises:
        BadDataError: It is none.
    """
    try:
        return msgspec.json.decode(line, type=ShadowLook)
    except (ValueError, RecursionError) as error:
        raise BadDataError(
            f"{path} has a line that is no look of `freetrain shadow` ({error}). "
            f"Nothing was planned or scored. Move its folder away to begin anew."
        ) from error


# How well was foretold, by what came after


@dataclass(frozen=True, slots=True, kw_only=True)
class ForetoldHoles:
    """Holes of which an end was foretold: a job or reservation was planned there.

    Attributes:
        stayed: They lasted until then, or were gone by less than a look sooner.
        ended_early: They did not.
        early_s: By how much, in the median of these; None where there were none.
        unknown: It is not known, as they last still or looks were missing.
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

    lease_s: float = 0.0
    samples: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowScore:
    """The score of a file of looks.

    Attributes:
        first_s: When the first was, Unix time; ``last_s`` the last.
        looks: How many there were.
        torn: Those that a backfill cycle overlapped.
        missing_s: Time in gaps of more than five minutes, which counts for nothing.
        hole_nodes_mean: Nodes with holes on average, over the looks.
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
    looks: int
    torn: int
    missing_s: float
    hole_nodes_mean: float
    nodes: int
    foretold: ForetoldHoles
    open: OpenHoles
    leases: int
    taken: int
    by_time: int
    by_plan: int
    training: Mapping[str, ShadowTraining]


def score_file(path: Path) -> ShadowScore:
    """Return the score of the looks in the file at *path*.

    Raises:
        MissingInputError: There are none.
        BadDataError: A line cannot be read.
        OSError: The file cannot be read.
    """
    try:
        return score(looks(path))
    except (FileNotFoundError, StopIteration) as error:
        raise MissingInputError(
            f"there is no look in {path}; nothing was scored. Let `freetrain "
            f"shadow JOB.TOML` run each minute for a while first."
        ) from error


@dataclass(slots=True)
class _Episode:
    """A hole of one node, from the first look that has it to the last."""

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
    """Return the score of looks, in order of time.

    Raises:
        StopIteration: There is none.
    """
    lines = iter(seen)
    last = first = next(lines)
    sums, counts, torn, missing_s = _Sums(), 1, int(first.is_torn), 0.0
    ends: Counter[str] = Counter()
    leases = len(first.leases)
    training: defaultdict[str, ShadowTraining] = defaultdict(ShadowTraining)
    episodes = dict(_begun(first))
    hole_nodes = len(episodes)
    for line in lines:
        counts, torn = counts + 1, torn + int(line.is_torn)
        gap_s = line.at_s - last.at_s
        now = dict(_begun(line))
        hole_nodes += len(now)
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
            training[name].lease_s += done.lease_s
            if done.samples is not None:
                so_far = training[name].samples or 0.0
                training[name].samples = so_far + done.samples
        last = line
    for hole in episodes.values():
        sums.over(hole, None)
    return ShadowScore(
        first_s=first.at_s,
        last_s=last.at_s,
        looks=counts,
        torn=torn,
        missing_s=missing_s,
        hole_nodes_mean=hole_nodes / counts,
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
