"""A state of the newest version, for the tests of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from freetrain.state.database import connect, migrate

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def state(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = connect(tmp_path / "state")
    migrate(connection)
    yield connection
    connection.close()
