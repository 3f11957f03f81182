"""Reading ``freetrain.toml``, and writing what was read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.site.schema import schema
from freetrain.toml.document import FileKind, parse_document
from freetrain.toml.text import Places

if TYPE_CHECKING:
    from freetrain.site.settings import Site

FILE = FileKind(
    what="the configuration ",
    most_bytes=2**20,
    consequence="Nothing was done.",
    advice="Name a freetrain.toml that you may read, or none for the defaults.",
)
DEFAULTS = "the defaults"
"""Stands for the file's name where there is no file."""


def parse_site(content: bytes, *, path: str, places: Places) -> Site:
    """Return the site that *content* describes; *path* is for messages.

    Raises:
        BadConfigurationError: It does not describe a site; the message names the
            file, the table, the key, what was found and what is expected.
    """
    document = parse_document(content, path=path, file=FILE)
    if places.home is None and not document.has("state_directory"):
        document.refuse(
            "HOME is not set, so nobody knows where to keep state; set HOME, or "
            "state_directory to an absolute path"
        )
    site = schema(places).read(document)
    if site.lease.shortest_s > site.lease.longest_s:
        document.inner("lease").refuse("shortest is above longest")
    return site


def default_site(home: Path | None) -> Site:
    """Return the site of a user who has configured nothing.

    Raises:
        BadConfigurationError: *home* is unknown.
    """
    return parse_site(b"", path=DEFAULTS, places=Places(Path("/"), home))


def render_site(site: Site) -> str:
    """Return *site* as the canonical file: every value said, every path absolute.

    Read again it gives an equal site, but for the path it was read from.
    """
    return schema(Places(Path("/"))).render(site)
