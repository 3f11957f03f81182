"""Looking at the state directory: whose it is, and what its file system can do."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.doctor.finding import bad, ok, warn
from freetrain.store.database import Journal, connect
from freetrain.store.directory import prepare_directory
from freetrain.store.errors import StoreBusyError
from freetrain.store.file_system import is_local, read_mounts
from freetrain.store.local_lock import Locking, local_lock

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from freetrain.doctor.finding import Finding
    from freetrain.doctor.subject import Subject

_LEAST_FREE_BYTES = 1 << 30
_SKEW_S = 2.0
_GIB = 1 << 30


def look_at_state(subject: Subject) -> Iterator[Finding]:
    """Find whether the state directory is ours and works; it is made if missing."""
    path = subject.site.state_directory
    prepare_directory(path, uid=subject.uid)
    yield ok("state directory", f"{path}: ours alone, mode 0700")
    yield _look_at_space(path)
    with tempfile.TemporaryDirectory(prefix="doctor-", dir=path) as name:
        folder = Path(name)
        yield _look_at_journal(folder)
        yield _look_at_locking(folder)
        yield look_at_links(folder)
        yield _look_at_clock(folder, subject)


def _look_at_space(path: Path) -> Finding:
    free_bytes = shutil.disk_usage(path).free
    seen = f"{free_bytes / _GIB:.1f} GiB free"
    if free_bytes < _LEAST_FREE_BYTES:
        advice = "Make room: without any, ticks stop. Checkpoints may need far more."
        return warn("space", seen, advice)
    return ok("space", seen)


def _look_at_journal(folder: Path) -> Finding:
    """Find how SQLite keeps transactions whole there, by writing one."""
    allow_wal = is_local(folder.resolve(), mounts=read_mounts())
    connection = connect(folder / "probe.sqlite", allow_wal=allow_wal)
    try:
        journal = Journal(_journal(connection))
    finally:
        connection.close()
    where = "local (do compute nodes see it?)" if allow_wal else "network, or unknown"
    return ok("file system", f"{where}; SQLite journal {journal}")


def _journal(connection: sqlite3.Connection) -> str:
    (word,) = connection.execute("PRAGMA journal_mode").fetchone()
    return str(word).lower()


def _look_at_locking(folder: Path) -> Finding:
    path = folder / "lock"
    with local_lock(path) as first:
        if first is Locking.UNSUPPORTED:
            seen = "the file system does not lock; turns in the database do"
            return ok("locking", seen)
        try:
            with local_lock(path):
                return warn(
                    "locking",
                    "two locks at a time were granted",
                    "Two ticks on one host are kept apart by turns in the database "
                    "only; another file system is safer.",
                )
        except StoreBusyError:
            return ok("locking", "a second lock is refused, as it should be")


def look_at_links(folder: Path) -> Finding:
    """Find whether link(2) makes a name once: assignments depend on it."""
    source, target = folder / "link-source", folder / "link-target"
    source.touch()
    try:
        os.link(source, target)
    except OSError as error:
        advice = "Name a state_directory on another file system."
        return bad("link(2)", f"refused: {error.strerror}", advice)
    try:
        os.link(source, target)
    except FileExistsError:
        return ok("link(2)", "a name is made once, and a second time is refused")
    return bad("link(2)", "one name was made twice", "Use another file system.")


def _look_at_clock(folder: Path, subject: Subject) -> Finding:
    probe = folder / "clock"
    before_s = subject.now_s()
    probe.touch()
    written_s, after_s = probe.stat().st_mtime, subject.now_s()
    apart_s = max(before_s - written_s, written_s - after_s, 0.0)
    seen = f"files are stamped {apart_s:.1f} s apart from this host's clock"
    if apart_s > _SKEW_S:
        return warn("clock of files", seen, "Ask for NTP on the file server.")
    return ok("clock of files", seen)
