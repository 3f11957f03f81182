"""How commands show and write: text, JSON, tables, progress, files.

A file is written whole or not at all, and writing the same twice is no mistake.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer

from freetrain.cli.exits import PIPE_CLOSED, error_line
from freetrain.errors import CannotWriteError, MissingInputError, TryLaterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rich.console import RenderableType

    from freetrain.cli.context import CliContext


def write_out(context: CliContext, text: str) -> None:
    """Write *text* to standard output, now.

    Raises:
        typer.Exit: Nobody reads any more; quietly.
        CannotWriteError: Its encoding lacks a character; none was written.
        OSError: It cannot be written.
    """
    try:
        _write_whole(context.stdout, text)
    except BrokenPipeError as error:
        raise typer.Exit(PIPE_CLOSED) from error
    except UnicodeEncodeError as error:
        raise CannotWriteError(
            f"standard output is {error.encoding} and cannot hold "
            f"{error.object[error.start]!a}; nothing was written. Use a UTF-8 "
            f"locale, or --out."
        ) from error


def json_text(
    record: object, *, indent: int | None = None, allow_nan: bool = True
) -> str:
    """Return *record*, of dataclasses, enums and containers, as JSON and a line break.

    msgspec takes it apart; Python writes it, because its numbers and escapes are what
    programs have read so far, and msgspec's differ (``1e-7`` for ``1e-07``).

    Raises:
        ValueError: A number is not finite, and *allow_nan* not given.
    """
    import msgspec  # noqa: PLC0415 - few commands write JSON

    plain = msgspec.to_builtins(record, str_keys=True, enc_hook=_plain)
    return json.dumps(plain, indent=indent, allow_nan=allow_nan) + "\n"


def _plain(value: object) -> object:
    """Return a number of NumPy as one of Python."""
    if isinstance(value, float):
        return float(value)
    raise NotImplementedError


def _write_whole(stream: TextIO, text: str) -> None:
    """Write *text* to *stream*, all of it.

    Under PYTHONUNBUFFERED Python calls write(2) once: what that does not take, as a
    disk fills up or a reader goes away, is lost without an error.
    """
    unbuffered = getattr(stream, "buffer", None)
    if not isinstance(unbuffered, io.RawIOBase):
        stream.write(text)
        stream.flush()
        return
    left = memoryview(text.encode(stream.encoding, stream.errors or "strict"))
    while left:
        left = left[unbuffered.write(left) or 0 :]


def write_file(path: Path, content: bytes, *, force: bool) -> None:
    """Put a file with *content* at *path*, whole or not at all.

    A file that has this very content already is left as it is.

    Raises:
        CannotWriteError: Another file is there and *force* is not given, or the
            place cannot be written.
    """
    try:
        if path.exists() and _stays(path, content, force=force):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with _temporary(path.absolute().parent, path) as temporary:
            made = temporary / path.name
            made.write_bytes(content)
            made.replace(path)
    except OSError as error:
        raise _refusal(path, error) from error


def _stays(path: Path, content: bytes, *, force: bool) -> bool:
    """Tell whether what is at *path* may stay as it is; refuse what must not go."""
    if not path.is_file():
        raise CannotWriteError(
            f"{path} is not an ordinary file; nothing was written. Name another."
        )
    if path.read_bytes() == content:
        return True
    if not force:
        raise CannotWriteError(
            f"{path} exists and differs; nothing was written. Name another file, "
            f"or replace this one with --force."
        )
    return False


def check_folder(path: Path, *, force: bool) -> None:
    """Refuse a folder that could not be written later, before any work is done.

    Raises:
        CannotWriteError: It is no folder, or holds something and *force* is not
            given, or cannot be written.
    """
    try:
        if path.exists() and not path.is_dir():
            raise CannotWriteError(f"{path} is not a folder; {_NOTHING_RUN}")
        if path.is_dir() and any(path.iterdir()) and not force:
            raise CannotWriteError(
                f"{path} is not empty; {_NOTHING_RUN} Add --force to replace the "
                f"files of an earlier run."
            )
        nearest = next(p for p in (path, *path.absolute().parents) if p.is_dir())
    except OSError as error:
        raise _refusal(path, error) from error
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise CannotWriteError(f"{nearest} cannot be written; {_NOTHING_RUN}")


_NOTHING_RUN = "nothing was run. Name another place with --out."


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Put *files* into the folder *path*, each whole or not at all.

    A new folder appears with all of its files at once; in one that is there,
    files of the same name are replaced and others are left alone.

    Raises:
        CannotWriteError: The place cannot be written.
    """
    try:
        there = path.is_dir()
        path.parent.mkdir(parents=True, exist_ok=True)
        # In a folder that is there: it may be a file system of its own.
        with _temporary(path if there else path.absolute().parent, path) as temporary:
            made = temporary / "made"
            made.mkdir()
            for name, content in files.items():
                (made / name).write_bytes(content)
            if there:
                for name in files:
                    (made / name).replace(path / name)
            else:
                made.replace(path)
    except OSError as error:
        raise _refusal(path, error) from error


@contextmanager
def _temporary(folder: Path, path: Path) -> Iterator[Path]:
    """Give a temporary folder in *folder*, from where renaming to *path* is atomic."""
    with tempfile.TemporaryDirectory(
        dir=folder, prefix=f".{path.name[:40]}."
    ) as temporary:
        yield Path(temporary)


def _refusal(path: Path, error: OSError) -> CannotWriteError:
    return CannotWriteError(
        f"cannot write {path}: {error.strerror or error}. Nothing was written. "
        f"Make room there, or name another place with --out."
    )


@contextmanager
def progress(
    context: CliContext, what: str
) -> Iterator[Callable[[float], None] | None]:
    """Give a function that takes the fraction done; None where it is no terminal."""
    if not context.is_terminal:
        yield None
        return
    from rich.progress import Progress  # noqa: PLC0415 - only where it is seen

    with Progress(console=context.err(), transient=True) as shown:
        task = shown.add_task(what, total=1.0)
        yield lambda fraction: shown.update(task, completed=fraction)


def show_anew(
    context: CliContext, show: Callable[[], RenderableType], *, every_s: float
) -> None:
    """Show what *show* returns, anew every *every_s* seconds, until interrupted."""
    from rich.live import Live  # noqa: PLC0415 - only where it is seen

    # Our own clock refreshes, so that nothing is drawn while files are read.
    with Live(console=context.watched(), auto_refresh=False, screen=False) as live:
        try:
            while True:
                live.update(_shown(show), refresh=True)
                context.sleep(every_s)
        except KeyboardInterrupt:
            return


def _shown(show: Callable[[], RenderableType]) -> RenderableType:
    """Return what *show* returns, or why it cannot just now."""
    try:
        return show()
    except TryLaterError as error:
        return error_line(error)


def print_out(context: CliContext, screen: RenderableType) -> None:
    """Write *screen* to standard output, whole."""
    console = context.out()
    with console.capture() as captured:
        console.print(screen, crop=False)
    write_out(context, captured.get())


def missing(named: str, error: OSError, *, undone: str) -> MissingInputError:
    """Return the error for an input file.

    Args:
        named: How the user named it.
        error: Why it cannot be read.
        undone: What was not done because of that, such as ``replayed``.
    """
    return MissingInputError(
        f"cannot read {named}: {error.strerror or error}. Nothing was {undone}. Check "
        f"the name and its permissions."
    )
