"""docs/reference/packs.md says what pack files can say, and every default."""

from __future__ import annotations

import re
from pathlib import Path

from freetrain.config.document import keys_of, toml_value
from freetrain.pack.pack import Pack
from freetrain.priority.flowcon import DEFAULT_ALPHA

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "packs.md"
ROW = re.compile(r"^\| `([a-z_]+)` \| [^|]+ \| (`[^`]+`|-) \|", re.MULTILINE)


def test_the_page_has_every_key_and_its_default() -> None:
    expected = {
        key.name: "-"
        if key.default is None
        else f"`{toml_value(key.written(key.default))}`"
        for key in keys_of(Pack)
    }
    assert dict(ROW.findall(PAGE.read_text())) == expected


def test_the_default_of_alpha_is_that_of_the_priority() -> None:
    assert Pack().alpha == DEFAULT_ALPHA
