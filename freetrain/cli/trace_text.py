"""Logs as text, to standard output or into a file."""

from __future__ import annotations

import gzip
import io
from typing import TYPE_CHECKING

from freetrain.cli.output import write_file, write_out
from freetrain.errors import UsageError
from logs.csv_formats import write_fragments, write_jobs_csv
from logs.swf import write_swf
from logs.trace import IdleTrace

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.cli.options import FormatName
    from freetrain.cli.world import World
    from logs.trace import Trace


def rendered(trace: Trace, to: FormatName) -> str:
    """Return *trace* as text in the format *to*.

    Raises:
        UsageError: The format cannot hold this kind of log.
    """
    text = io.StringIO(newline="")
    if isinstance(trace, IdleTrace) and to == "fragments":
        write_fragments(trace, text)
    elif isinstance(trace, IdleTrace):
        raise UsageError(
            f"{trace.source} holds idle intervals and no jobs, so it cannot become "
            f"{to}. Nothing was written. Use --to fragments."
        )
    elif to == "swf":
        write_swf(trace, text)
    elif to == "jobs-csv":
        write_jobs_csv(trace, text)
    else:
        raise UsageError(
            f"{trace.source} holds jobs and no idle intervals. Nothing was written. "
            f"`freetrain trace holes` finds what its jobs leave idle."
        )
    return text.getvalue()


def deliver(world: World, text: str, *, out: Path | None, force: bool) -> None:
    """Write *text* to standard output, or into *out*, gzipped if so named.

    Raises:
        CannotWriteError: See ``write_file``.
    """
    if out is None:
        write_out(world, text)
        return
    content = text.encode("utf-8", "surrogateescape")
    if out.suffix == ".gz":
        content = gzip.compress(content, mtime=0)
    write_file(world.cwd / out, content, force=force)
