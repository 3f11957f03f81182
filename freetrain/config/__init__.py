"""TOML files that people write: read key by key, each mistake named in one line."""

from __future__ import annotations
