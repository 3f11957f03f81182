"""A log file's content: unpacked, decoded, in lines.

Whether a file is gzipped is decided by its first bytes, never by its name.
"""

from __future__ import annotations

import gzip
import io
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logs.errors import UnreadableLogError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_GZIP_MAGIC = b"\x1f\x8b"
_BLOCK_BYTES = 1 << 22
MAX_BYTES = 1 << 30
"""Largest log that is read, unpacked: a gzip file of 10 MB can unpack to 10 GB, and
/dev/zero has no end. Ten million jobs in the Standard Workload Format fit in."""

_SNIPPET_CHARS = 40


@dataclass(frozen=True, slots=True)
class Content:
    """What is in a log file.

    Attributes:
        source: The file, as the user named it.
        raw: Its bytes, unpacked, without a byte-order mark.
    """

    source: str
    raw: bytes

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield (line number from 1, line without its end), one at a time.

        Bytes that are not UTF-8 become U+FFFD: harmless in a comment, and
        refused by whoever expects a number.
        """
        for number, line in enumerate(io.BytesIO(self.raw), 1):
            yield number, line.decode(errors="replace").rstrip("\r\n")


def read_content(path: Path, *, most_bytes: int = MAX_BYTES) -> Content:
    """Return what is in the file at *path*, unpacked where it is gzipped.

    A pipe will do as well: it is read once, from beginning to end.

    Args:
        path: The file.
        most_bytes: The most that is read, and the most that is unpacked.

    Raises:
        OSError: The file is missing or cannot be read.
        UnreadableLogError: It is empty, too large, or a torn or damaged gzip file.
    """
    with path.open("rb") as file:
        raw = _read_to_end(path, file, most_bytes)
    if raw.startswith(_GZIP_MAGIC):
        raw = _unpack(path, raw, most_bytes)
    if not raw or raw.isspace():
        raise UnreadableLogError(str(path), None, None, "the file is empty")
    return Content(str(path), raw.removeprefix(b"\xef\xbb\xbf"))


def snippet(text: str) -> str:
    """Return *text* quoted for a message: one line, and never a long one."""
    if len(text) <= _SNIPPET_CHARS:
        return repr(text)
    return f"{text[:_SNIPPET_CHARS]!r}... ({len(text)} characters)"


def _unpack(path: Path, packed: bytes, most_bytes: int) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
            return _read_to_end(path, stream, most_bytes)
    except EOFError:
        why = "the gzip file is cut off; copy it again"
        raise UnreadableLogError(str(path), None, None, why) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        why = f"the gzip file is damaged ({error}); copy it again"
        raise UnreadableLogError(str(path), None, None, why) from None


def _read_to_end(path: Path, stream: io.BufferedIOBase, most_bytes: int) -> bytes:
    whole = io.BytesIO()
    while block := stream.read(_BLOCK_BYTES):
        whole.write(block)
        if whole.tell() > most_bytes:
            why = f"there are more than {most_bytes:,} bytes in it; split it first"
            raise UnreadableLogError(str(path), None, None, why)
    return whole.getvalue()
