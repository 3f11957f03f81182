"""What can go wrong before a world is started."""

from freetrain.errors import BadConfigurationError


class CannotLaunchError(BadConfigurationError):
    """A world cannot be started as things are; no process of it was."""
