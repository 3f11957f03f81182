"""Fixtures that every test may use."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.cluster.holding import cluster_of

__all__ = ["cluster_of"]

# A deadline is a timed assertion: it would fail on a busy machine.
settings.register_profile("freetrain", deadline=None, print_blob=True)
settings.register_profile("wheel", deadline=None, max_examples=10)
settings.load_profile("freetrain")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with the real logs; skips where it is missing."""
    beside = Path(__file__).resolve().parent.parent.parent / "shared"
    folder = Path(os.environ.get("FREETRAIN_SHARED", beside))
    if not (folder / "logs").is_dir():
        pytest.skip(f"the real logs are not there ({folder}); set FREETRAIN_SHARED")
    return folder
