"""docs/job-file.md says what the schemas say: every key, and every default."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from freetrain.config.job import parse_job
from freetrain.config.job import schema as job_schema
from freetrain.config.schema import Key, Places, Section, toml_value
from freetrain.config.site import parse_site
from freetrain.config.site import schema as site_schema

DOCS = Path(__file__).resolve().parents[2] / "docs"
PLACES = Places(Path("/work"), Path("/home/ada"))
SAID_IN_WORDS = {"directory": "the file's folder", "state_directory": "`~/.freetrain`"}

Rows = dict[tuple[str, str], str]


def page(title: str) -> str:
    """Return the part of the page under the heading *title*."""
    text = (DOCS / "job-file.md").read_text()
    _, _, rest = text.partition(f"\n## {title}\n")
    return rest.split("\n## ")[0]


def documented(title: str) -> Rows:
    """Return the default that the page gives, by table and key."""
    found = {}
    for part in page(title).split("\n### ")[1:]:
        named = re.match(r"`\[(\w+)\]`", part)
        for key, default in re.findall(
            r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \| [^|]+ \|$", part, re.MULTILINE
        ):
            found[named[1] if named else "", key] = default
    return found


def in_schema(sections: Iterable[Section[Any]]) -> Rows:
    return {
        (section.name, key.name): default
        for section in sections
        for key, default in defaults(section)
    }


def defaults(section: Section[Any]) -> Iterator[tuple[Key, str]]:
    held = {one.name: one.default for one in fields(section.record)}  # type: ignore[arg-type]
    for key in section.keys:
        yield key, shown_default(key, held[key.field])


def shown_default(key: Key, held: object) -> str:
    if key.name in SAID_IN_WORDS:
        return SAID_IN_WORDS[key.name]
    if held is MISSING:
        return "required"
    if held is None or held == "" or (held == () and key.name not in ALWAYS_SAID):
        return "-"
    return f"`{toml_value(key.kind.write(held))}`"


ALWAYS_SAID = {"environment", "features", "options"}
"""Lists and tables that are empty without the key, instead of found elsewhere."""


@pytest.mark.parametrize(
    ("title", "known"),
    [
        ("`job.toml`", in_schema(job_schema(PLACES).sections)),
        ("`freetrain.toml`", in_schema(site_schema(PLACES).sections)),
    ],
    ids=["job", "site"],
)
def test_the_page_has_every_key_with_its_default(title: str, known: Rows) -> None:
    assert documented(title) == known


OF_A_JOB = ("[launch]", "[quality]")
"""How examples begin that are a part of a job file."""


def examples() -> list[str]:
    text = (DOCS / "job-file.md").read_text()
    blocks = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    start = 'name = "a"\ncommand = "b"\nnodes = { max = 1 }\n'
    return [
        f"{start}{block}" if block.startswith(OF_A_JOB) else block for block in blocks
    ]


def test_every_example_of_the_page_is_accepted() -> None:
    jobs = [text.encode() for text in examples() if "name =" in text]
    sites = [text.encode() for text in examples() if "name =" not in text]

    assert len([parse_job(one, path="page", places=PLACES) for one in jobs]) == 5
    assert len([parse_site(one, path="page", places=PLACES) for one in sites]) == 1
