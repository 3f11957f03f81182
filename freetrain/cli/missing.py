"""What is said of a file that cannot be read."""

from __future__ import annotations

from freetrain.errors import MissingInputError


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
