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
MAX_BYTES = 4 << 30
"""Largest log that is read, unpacked: a gzip file of 4 MB can unpack to 4 GB."""

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


def read_content(path: Path) -> Content:
    """Return what is in the file at *path*, unpacked where it is gzipped.

    Raises:
        OSError: The file is missing or cannot be read.
        UnreadableLogError: It is empty, or a torn, damaged or too large gzip file.
    """
    with path.open("rb") as file:
        packed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        file.seek(0)
        raw = _unpack(path, file) if packed else file.read()
    if not raw.strip():
        raise UnreadableLogError(str(path), None, None, "the file is empty")
    return Content(str(path), raw.removeprefix(b"\xef\xbb\xbf"))


def snippet(text: str) -> str:
    """Return *text* quoted for a message: one line, and never a long one."""
    if len(text) <= _SNIPPET_CHARS:
        return repr(text)
    return f"{text[:_SNIPPET_CHARS]!r}... ({len(text)} characters)"


def _unpack(path: Path, file: io.BufferedReader) -> bytes:
    blocks: list[bytes] = []
    size = 0
    try:
        with gzip.GzipFile(fileobj=file) as stream:
            while block := stream.read(_BLOCK_BYTES):
                blocks.append(block)
                size += len(block)
                if size > MAX_BYTES:
                    why = f"unpacks to more than {MAX_BYTES} bytes; split it first"
                    raise UnreadableLogError(str(path), None, None, why)
    except EOFError:
        why = "the gzip file is cut off; copy it again"
        raise UnreadableLogError(str(path), None, None, why) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        why = f"the gzip file is damaged ({error}); copy it again"
        raise UnreadableLogError(str(path), None, None, why) from None
    return b"".join(blocks)
