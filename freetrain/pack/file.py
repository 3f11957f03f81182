"""Reading pack files; docs/quality-flowcon.md says what is in them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from freetrain.pack.pack import MeansName, Pack, SharingName
from freetrain.quality.outlook import Better
from freetrain.toml.document import FileKind, parse_document, read_limited
from freetrain.toml.kind import Kind, MismatchError, matching, one_of, positive, seconds
from freetrain.toml.kind import whole as whole_number
from freetrain.toml.schema import Schema
from freetrain.toml.section import Key, Section
from freetrain.toml.text import Places, path_from

if TYPE_CHECKING:
    from pathlib import Path

FILE = FileKind(
    what="pack file ",
    most_bytes=2**20,
    consequence="Nothing was started.",
    advice="Name a TOML file as docs/quality-flowcon.md describes it.",
)
MOST_MEMBERS = 100
MOST_CPUS = 100_000
LONGEST_S = 86_400.0

_METRIC = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)


def read_pack(path: Path, *, home: Path | None = None) -> Pack:
    """Return the pack that the file at *path*, which is absolute, describes.

    Raises:
        MissingInputError: The file is not there or cannot be read.
        BadConfigurationError: It does not describe a pack; the message names the
            key, what was found and what is expected.
    """
    content = read_limited(path, named=str(path), file=FILE)
    document = parse_document(content, path=str(path), file=FILE)
    pack = schema(Places(path.parent, home)).read(document)
    if not pack.members and pack.inbox is None:
        document.refuse("expected members, inbox, or both")
    return pack


def schema(places: Places) -> Schema[Pack]:
    """Return the keys of a pack file whose paths start from *places*."""
    return Schema(Section("", Pack, _keys(places)), ())


def _keys(places: Places) -> tuple[Key, ...]:
    return (
        Key("members", _paths(places), "members"),
        Key("inbox", path_from(places), "inbox"),
        Key("stay", seconds(0.0, LONGEST_S), "stay_s"),
        Key("sharing", one_of(SharingName), "sharing"),
        Key("interval", seconds(0.1, LONGEST_S), "interval_s"),
        Key("alpha", positive(), "alpha"),
        Key("metric", matching(_METRIC, "the name of a metric"), "metric"),
        Key("better", one_of(Better), "better"),
        Key("means", one_of(MeansName), "means"),
        Key("cpus", whole_number(1, MOST_CPUS), "cpus"),
    )


def _paths(places: Places) -> Kind[tuple[Path, ...]]:
    one = path_from(places)

    def read(value: object) -> tuple[Path, ...]:
        if not isinstance(value, list) or len(value) > MOST_MEMBERS:
            raise MismatchError
        return tuple(one.read(item) for item in value)

    return Kind(
        f"a list of up to {MOST_MEMBERS} job files, such as "
        '["digits/job.toml", "wine/job.toml"]',
        read,
        lambda paths: [str(path) for path in paths],
    )
