"""The state directory: what ticks and commands remember, in SQLite."""

from __future__ import annotations
