"""``freetrain docs``: every page is there, and every page that is cited exists."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import freetrain
from freetrain.cli.docs import pages
from tests.cli.commands import run

TOP = Path(__file__).resolve().parents[2]


def test_all_pages_are_listed_by_name_and_title() -> None:
    ran = run("docs")

    assert "guide/job-file" in ran.stdout
    assert "Job files and the site's configuration" in ran.stdout
    assert ran.stdout.count("\n") == len(pages()) + 2


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("guide/job-file", "guide/job-file"),
        ("job-file", "guide/job-file"),
        ("docs/guide/job-file.md", "guide/job-file"),
        ("replay", "guide/replay"),
        ("notes/replay", "notes/replay"),
        ("glossary", "glossary"),
    ],
)
def test_a_page_is_found_by_its_path_or_its_last_word(name: str, page: str) -> None:
    ran = run("docs", name)

    assert ran.stdout == (TOP / "docs" / f"{page}.md").read_text(encoding="utf-8")


def test_a_page_that_is_not_there_is_refused_and_the_nearest_named() -> None:
    ran = run("docs", "jobfile")

    assert ran.code == 64
    assert "Did you mean 'job-file'?" in ran.stderr


def test_every_page_that_a_message_cites_is_there() -> None:
    folder = Path(str(freetrain.__file__)).parent
    kinds = {".py", ".html"}
    sources = [path for path in folder.rglob("*") if path.suffix in kinds]
    cited = {
        name
        for path in [*sources, *pages().values()]
        for name in re.findall(r"freetrain docs ([a-z/-]+)", path.read_text("utf-8"))
    }

    assert len(cited) > 5
    known = {*pages(), *(path.stem for path in pages().values())}
    assert cited <= known


@pytest.mark.skipif(
    not (TOP / "zensical.toml").exists(), reason="the site is built from the sources"
)
def test_the_site_leads_to_every_page() -> None:
    settings = tomllib.loads((TOP / "zensical.toml").read_text(encoding="utf-8"))
    folder = TOP / "docs"

    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*.md")}
    assert set(leaves(settings["project"]["nav"])) == there


def leaves(nav: Any) -> Iterator[str]:  # noqa: ANN401 - a tree as TOML has it
    match nav:
        case str():
            yield nav
        case dict():
            for below in nav.values():
                yield from leaves(below)
        case _:
            for below in nav:
                yield from leaves(below)
