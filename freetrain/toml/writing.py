"""Writing what ``tomllib`` reads back as the same."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def toml_text(document: Mapping[str, object]) -> str:
    """Return *document* as TOML: its mappings as tables, theirs written inline."""
    blocks = [_lines({k: v for k, v in document.items() if not isinstance(v, dict)})]
    for name, table in document.items():
        if isinstance(table, dict):
            blocks.append(f"[{_key(name)}]\n{_lines(table)}")
    return "\n".join(block for block in blocks if block)


def toml_value(value: object) -> str:
    """Return *value* in one line: a string, number, truth value, time, list or table.

    Raises:
        TypeError: TOML has no such value.
    """
    match value:
        case bool():
            return str(value).lower()
        case str():
            # What JSON escapes TOML does too, except for DEL.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case int() | float():
            return repr(value)
        case datetime():
            return value.isoformat()
        case list():
            return f"[{', '.join(map(toml_value, value))}]"
        case dict():
            pairs = (f"{_key(key)} = {toml_value(one)}" for key, one in value.items())
            return f"{{ {', '.join(pairs)} }}" if value else "{}"
        case _:
            raise TypeError(f"TOML cannot say {type(value).__name__}")


def _lines(pairs: Mapping[str, object]) -> str:
    return "".join(
        f"{_key(key)} = {toml_value(value)}\n" for key, value in pairs.items()
    )


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else toml_value(key)
