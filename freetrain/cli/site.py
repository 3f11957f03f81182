"""The site that a command works with, found as docs/job-file.md says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.config.site import Surroundings, find_site

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.cli.world import World
    from freetrain.config.site import Site


def site_of(world: World, config: Path | None) -> Site:
    """Return the site that *config*, or the first file found, describes.

    Raises:
        MissingInputError: The file asked for is not there, or one cannot be read.
        BadConfigurationError: It does not describe a site, or is not to be trusted.
    """
    around = Surroundings(environment=world.environ, folder=world.folder, uid=world.uid)
    return find_site(around, asked=config)
