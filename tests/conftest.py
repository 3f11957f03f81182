"""Fixtures that every test may use."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.cluster.holding import cluster_of

__all__ = ["cluster_of"]

# A deadline is a timed assertion: it would fail on a busy machine. A test draws the
# same examples each time, so that what it says depends on the commit alone; the search
# for new ones is `make test-random`.
settings.register_profile("freetrain", deadline=None, derandomize=True)
settings.register_profile("wheel", settings.get_profile("freetrain"), max_examples=10)
settings.register_profile("random", deadline=None, print_blob=True, max_examples=500)
settings.load_profile("freetrain")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with the real logs; skips where it is missing."""
    beside = Path(__file__).resolve().parent.parent.parent / "shared"
    folder = Path(os.environ.get("FREETRAIN_SHARED", beside))
    if not (folder / "logs").is_dir():
        pytest.skip(f"the real logs are not there ({folder}); set FREETRAIN_SHARED")
    return folder
