"""A state of the newest version, for the tests of this folder."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from freetrain.state.database import connect, migrate


@pytest.fixture
def state(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = connect(tmp_path / "state")
    migrate(connection)
    yield connection
    connection.close()
