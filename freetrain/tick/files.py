"""The files in which ticks tell what they did; none of them grows without bound."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from freetrain.elastic.durable import replaced
from freetrain.errors import CannotWriteError
from freetrain.toml.wording import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from slurm.errors import UnreadableOutputError

MOST_LOG_BYTES = 1 << 20
MOST_EVIDENCE = 10
MOST_EVIDENCE_BYTES = 1 << 20


def append_line(path: Path, line: str) -> None:
    """Append *line* to the log at *path*; a full one is put aside first.

    Raises:
        OSError: It could not be written.
    """
    if path.exists() and path.stat().st_size >= MOST_LOG_BYTES:
        path.replace(path.with_name(f"{path.name}.1"))
    with path.open("a", encoding="utf-8", errors="backslashreplace") as log:
        log.write(f"{one_line(line)}\n")


def write_whole(path: Path, text: str) -> None:
    """Replace the file at *path* by *text*, so that no reader sees a part.

    Raises:
        OSError: It could not be written; the old one stays.
    """
    with replaced(path, temporary=path.with_name(f".{path.name}.new")) as file:
        file.write(text.encode("utf-8", "backslashreplace"))


def keep_evidence(folder: Path, error: UnreadableOutputError, *, now_s: float) -> Path:
    """Keep what Slurm answered and we could not read; only the last few of them.

    Raises:
        OSError: It could not be written.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    command = "".join(c if c.isalnum() else "-" for c in error.command)[:50]
    path = folder / f"{now_s:015.3f}-{command}.txt"
    told = error.line.encode("utf-8", "surrogateescape")[:MOST_EVIDENCE_BYTES]
    head = f"{error.command}, line {error.line_number}: {error.why}\n"
    path.write_bytes(head.encode("utf-8", "backslashreplace") + told)
    for old in sorted(folder.iterdir())[:-MOST_EVIDENCE]:
        old.unlink(missing_ok=True)
    return path


@contextmanager
def clearly(place: Path) -> Iterator[None]:
    """Turn the system's errors about files of *place* into ours.

    Raises:
        CannotWriteError: Something there could not be read or written.
    """
    try:
        yield
    except OSError as error:
        named = error.filename or place
        raise CannotWriteError(
            f"{named}: {error.strerror or error}. The tick stopped there, and "
            f"training goes on; make room, or make the state directory writable. The "
            f"next tick goes on where this one stopped."
        ) from error
