"""A state directory that compute nodes may enter."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="freetrain-tick-"))
    yield place / "state"
    shutil.rmtree(place)
