"""Where this process is in the node's control groups; pure but for three files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from freetrain.pack.pack import MeansName

_CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Place:
    """A control group that may hold others.

    Attributes:
        version: ``CGROUP_V1`` or ``CGROUP_V2``.
        path: Its folder.
    """

    version: MeansName
    path: Path


def own_places(proc: Path = Path("/proc/self")) -> tuple[Place, ...]:
    """Return this process' groups that could share CPUs, v2 first.

    Args:
        proc: Where the kernel tells of this process.
    """
    try:
        mounts = (proc / "mountinfo").read_text("utf-8", "replace")
        groups = (proc / "cgroup").read_text("utf-8", "replace")
    except OSError:
        return ()
    return places_in(mounts, groups)


def places_in(mounts: str, groups: str) -> tuple[Place, ...]:
    """Return the groups that *mounts* and *groups*, as proc(5) has them, tell of."""
    found = [
        Place(version, path)
        for line in mounts.splitlines()
        for version, path in _mounted(line, groups)
    ]
    return tuple(sorted(found, key=lambda place: place.version, reverse=True))


def _mounted(line: str, groups: str) -> list[tuple[MeansName, Path]]:
    before, _, after = line.partition(" - ")
    fields, kind = before.split(), after.split()
    if len(fields) < 5 or len(kind) < 3:  # noqa: PLR2004
        return []
    if kind[0] == "cgroup2":
        version, own = MeansName.CGROUP_V2, _own(groups, "")
    elif kind[0] == "cgroup" and _CPU in kind[2].split(","):
        version, own = MeansName.CGROUP_V1, _own(groups, _CPU)
    else:
        return []
    root = fields[3]  # of the hierarchy, what is mounted here
    if own is None or not Path(own).is_relative_to(root):
        return []
    return [(version, Path(fields[4]) / Path(own).relative_to(root))]


def _own(groups: str, controller: str) -> str | None:
    for line in groups.splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controller in controllers.split(","):
            return path
    return None
