"""Messages for the person who reads the program's output."""

import logging


def warn(message: str) -> None:
    """Say that something is not as it should be, and what follows from it.

    Without a handler of the program's own, logging writes warnings to stderr.
    """
    logging.getLogger("freetrain.elastic").warning("freetrain: %s", message)
