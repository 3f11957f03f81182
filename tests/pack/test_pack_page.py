"""docs/quality-flowcon.md says what pack files can say, and every default."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from freetrain.config.schema import Places, toml_value
from freetrain.pack.pack import Pack, schema

PAGE = Path(__file__).resolve().parents[2] / "docs" / "quality-flowcon.md"
ROW = re.compile(r"^\| `([a-z_]+)` \| [^|]+ \| (`[^`]+`|-) \|", re.MULTILINE)


def test_the_page_has_every_key_and_its_default() -> None:
    keys = schema(Places(Path("/"))).top.keys
    defaults = {field.name: field.default for field in fields(Pack)}
    expected = {}
    for key in keys:
        default = defaults[key.field]
        said = None if default is None else toml_value(key.kind.write(default))
        expected[key.name] = "-" if said is None else f"`{said}`"
    assert dict(ROW.findall(PAGE.read_text())) == expected
