"""Fixtures that every test may use."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with the real logs; skips where it is missing."""
    beside = Path(__file__).resolve().parent.parent.parent / "shared"
    folder = Path(os.environ.get("FREETRAIN_SHARED", beside))
    if not (folder / "logs").is_dir():
        pytest.skip(f"the real logs are not there ({folder}); set FREETRAIN_SHARED")
    return folder
