"""Reading ``freetrain.toml``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.errors import UsageError
from freetrain.site.schema import schema
from freetrain.site.settings import PlannerSettings
from freetrain.toml.document import FileKind, parse_document
from freetrain.toml.text import Places

if TYPE_CHECKING:
    from freetrain.site.settings import Site
    from freetrain.toml.table import Table

FILE = FileKind(
    what="the configuration ",
    most_bytes=2**20,
    consequence="Nothing was done.",
    advice="Name a freetrain.toml that you may read, or none for the defaults.",
)
_OBJECTIVE_IS_GONE = (
    'objective has become priority: write priority = "weight" for "weighted", and '
    '"speedup" or "throughput" as before'
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
    planner = document.values.get("planner")
    if isinstance(planner, dict) and "objective" in planner:
        document.inner("planner").refuse(_OBJECTIVE_IS_GONE)
    if places.home is None and not document.has("state_directory"):
        document.refuse(
            "HOME is not set, so nobody knows where to keep state; set HOME, or "
            "state_directory to an absolute path"
        )
    site = schema(places).read(document)
    usual, own = PlannerSettings(), site.planner
    if (own.priority, own.priority_settings) != (usual.priority, ()):
        _check_priority(site.planner, document.inner("planner"))
    if own.forecaster != usual.forecaster:
        _check_forecaster(own.forecaster, document.inner("planner"))
    if site.lease.shortest_s > site.lease.longest_s:
        document.inner("lease").refuse("shortest is above longest")
    return site


def _check_priority(planner: PlannerSettings, table: Table) -> None:
    """Refuse a priority that is none, or a setting that it has not."""
    # Imported here: most sites have the default, and commands must start quickly.
    from freetrain.priority.registry import priority_named  # noqa: PLC0415

    try:
        priority_named(planner.priority, dict(planner.priority_settings))
    except UsageError as error:
        table.refuse(str(error))


def _check_forecaster(name: str, table: Table) -> None:
    """Refuse a forecaster that is none."""
    from freetrain.forecast.registry import forecaster_named  # noqa: PLC0415 - as above

    try:
        forecaster_named(name)
    except UsageError as error:
        table.refuse(str(error))


def default_site(home: Path | None) -> Site:
    """Return the site of a user who has configured nothing.

    Raises:
        BadConfigurationError: *home* is unknown.
    """
    return parse_site(b"", path=DEFAULTS, places=Places(Path("/"), home))
