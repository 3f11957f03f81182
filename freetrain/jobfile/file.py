"""Reading job files, and writing what was read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.jobfile.checks import check
from freetrain.jobfile.schema import schema
from freetrain.toml.document import FileKind, parse_document, read_limited
from freetrain.toml.text import Places

if TYPE_CHECKING:
    from freetrain.jobfile.job import TrainerJob

FILE = FileKind(
    what="job file ",
    most_bytes=2**20,
    consequence="Nothing was submitted.",
    advice="Name a TOML file as docs/job-file.md describes it.",
)


def read_job(
    path: Path, *, named: str | None = None, home: Path | None = None
) -> TrainerJob:
    """Return the trainer that the file at *path* describes.

    Args:
        path: The file, absolute: relative paths in it start at its folder.
        named: How the user named it, for messages; None for *path* itself.
        home: What ``~`` stands for in paths.

    Raises:
        MissingInputError: The file is not there or cannot be read.
        BadConfigurationError: See ``parse_job``.
    """
    name = named or str(path)
    content = read_limited(path, named=name, file=FILE)
    return parse_job(content, path=name, places=Places(path.parent, home))


def parse_job(content: bytes, *, path: str, places: Places) -> TrainerJob:
    """Return the trainer that *content* describes; *path* is for messages.

    Raises:
        BadConfigurationError: It does not describe a trainer; the message names the
            file, the table, the key, what was found and what is expected.
    """
    document = parse_document(content, path=path, file=FILE)
    job = schema(places).read(document)
    check(job, document)
    return job


def render_job(job: TrainerJob) -> str:
    """Return *job* as the canonical job file: every value said, every path absolute.

    Read again, from anywhere, it gives an equal job, also after defaults changed.
    """
    return schema(Places(Path("/"))).render(job)
