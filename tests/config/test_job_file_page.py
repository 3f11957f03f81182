"""docs/guide/job-file.md says what the structs say: every key, and every default."""

import re
from pathlib import Path

import pytest
from msgspec import Struct

from freetrain.config.document import BaseFolders, Key, keys_of, toml_value
from freetrain.config.job import TrainerJob, parse_job
from freetrain.config.site import Site, parse_site

DOCS = Path(__file__).resolve().parents[2] / "docs"
PLACES = BaseFolders(Path("/work"), Path("/home/ada"))
SAID_IN_WORDS = {"directory": "the file's folder", "state_directory": "`~/.freetrain`"}

Rows = dict[tuple[str, str], str]


def page(title: str) -> str:
    """Return the part of the page under the heading *title*."""
    text = (DOCS / "guide" / "job-file.md").read_text()
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


def defaults(record: type[Struct], table: str = "") -> Rows:
    """Return the default that *record* gives each key, by table and key."""
    found: Rows = {}
    for key in keys_of(record):
        if key.is_table:
            found |= defaults(key.type, key.name)
        else:
            found[table, key.name] = shown_default(key)
    return found


def shown_default(key: Key) -> str:
    if key.name in SAID_IN_WORDS:
        return SAID_IN_WORDS[key.name]
    if key.is_required:
        return "required"
    held = key.default
    if held is None or held == "" or (held == () and key.name not in ALWAYS_SAID):
        return "-"
    return f"`{toml_value(key.written(held))}`"


ALWAYS_SAID = {"environment", "features", "options", "binds"}
"""Lists and tables that are empty without the key, instead of found elsewhere."""


@pytest.mark.parametrize(
    ("title", "known"),
    [
        ("`job.toml`", defaults(TrainerJob)),
        ("`freetrain.toml`", defaults(Site)),
    ],
    ids=["job", "site"],
)
def test_the_page_has_every_key_with_its_default(title: str, known: Rows) -> None:
    assert documented(title) == known


OF_A_JOB = ("[launch]", "[quality]", "[container]")
"""How examples begin that are a part of a job file."""


def examples() -> list[str]:
    pages = ("job-file.md", "own-program.md")
    text = "".join((DOCS / "guide" / name).read_text() for name in pages)
    blocks = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    start = 'name = "a"\ncommand = "b"\nnodes = { max = 1 }\n'
    return [
        f"{start}{block}" if block.startswith(OF_A_JOB) else block for block in blocks
    ]


def test_every_example_of_the_guide_is_accepted() -> None:
    jobs = [text.encode() for text in examples() if "name =" in text]
    sites = [text.encode() for text in examples() if "name =" not in text]

    assert len([parse_job(one, path="page", places=PLACES) for one in jobs]) == 7
    assert len([parse_site(one, path="page", places=PLACES) for one in sites]) == 1
