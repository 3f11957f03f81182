"""The state of the stand-in between calls: one JSON file, one program at a time."""

from __future__ import annotations

import fcntl
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from freetrain.standin.records import Cluster, Job, JobState, Part, Process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_STATE = "cluster.json"
_LOCK = "lock"


@contextmanager
def opened(folder: Path) -> Iterator[Cluster]:
    """Read the state, and write it back when the block ends; one at a time.

    Where the block raises, nothing of it is kept.

    Raises:
        OSError: There is none, or it cannot be kept.
    """
    with (folder / _LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cluster = read(folder)
        yield cluster
        write(folder, cluster)


def read(folder: Path) -> Cluster:
    """Return the state as it was last written; without the lock, for looking only.

    Raises:
        OSError: There is none.
    """
    return from_json((folder / _STATE).read_text(encoding="utf-8"))


def write(folder: Path, cluster: Cluster) -> None:
    """Replace the state, whole.

    Raises:
        OSError: It cannot be written.
    """
    path = folder / f".{_STATE}"
    path.write_text(to_json(cluster), encoding="utf-8")
    path.replace(folder / _STATE)


def to_json(cluster: Cluster) -> str:
    """Return *cluster* as text; ``asdict`` would take three times as long."""
    return json.dumps(cluster, default=_fields)


def from_json(text: str) -> Cluster:
    """Return the cluster that ``to_json`` wrote."""
    kept = json.loads(text)
    kept["jobs"] = [_job(fields) for fields in kept["jobs"]]
    kept["parts"] = [Part(**fields) for fields in kept["parts"]]
    kept["keeper"] = _process(kept["keeper"])
    return Cluster(**kept)


def _fields(record: object) -> dict[str, Any]:
    names: tuple[str, ...] = record.__slots__  # type: ignore[attr-defined] # ours only
    return {name: getattr(record, name) for name in names}


def _job(fields: dict[str, Any]) -> Job:
    fields["state"] = JobState(fields["state"])
    fields["ends_as"] = JobState(fields["ends_as"]) if fields["ends_as"] else None
    fields["supervisor"] = _process(fields["supervisor"])
    fields["batch"] = _process(fields["batch"])
    fields["steps"] = [Process(**step) for step in fields["steps"]]
    return Job(**fields)


def _process(fields: dict[str, int] | None) -> Process | None:
    return None if fields is None else Process(**fields)
