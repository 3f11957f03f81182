"""A class name stands for one thing, and the glossary has those that are shared."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
ROOTS = ("freetrain", "milp", "slurm", "logs")

pytestmark = pytest.mark.skipif(
    not (TOP / "freetrain").is_dir(), reason="needs the sources, not the wheel"
)


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for root in ROOTS:
        for path in sorted((TOP / root).rglob("*.py")):
            yield path.relative_to(TOP), ast.parse(path.read_text(encoding="utf-8"))


def package(parts: tuple[str, ...]) -> str:
    return ".".join(parts[: 2 if parts[0] == "freetrain" else 1])


def classes() -> dict[str, list[str]]:
    """Return where each class is defined: packages by class name."""
    found: dict[str, list[str]] = {}
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                home = package(path.with_suffix("").parts)
                found.setdefault(node.name, []).append(home)
    return found


def importers() -> dict[str, set[str]]:
    """Return the packages that import each name from another package."""
    found: dict[str, set[str]] = {}
    for path, tree in modules():
        own = package(path.with_suffix("").parts)
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom):
                continue
            if package(tuple((node.module or own).split("."))) != own:
                for alias in node.names:
                    found.setdefault(alias.name, set()).add(own)
    return found


def glossary() -> dict[str, list[str]]:
    """Return the classes that each word of the glossary names."""
    lines = (TOP / "docs/glossary.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("|").split("|") for line in lines if line.startswith("| ")][1:]
    assert {len(row) for row in rows} == {3}
    found = {word.strip(): re.findall(r"`(\w+)`", named) for word, _, named in rows}
    assert len(found) == len(rows), "a word twice"
    return found


def test_no_two_classes_have_one_name() -> None:
    twice = {name: where for name, where in classes().items() if len(where) > 1}

    assert not twice


def test_the_glossary_names_only_classes_that_exist() -> None:
    named = {name for names in glossary().values() for name in names}

    assert named
    assert sorted(named - classes().keys()) == [], "docs/glossary.md names no such"


def test_the_glossary_has_every_class_that_three_other_packages_import() -> None:
    named = {name for names in glossary().values() for name in names}
    known = {name for name in classes() if not name.endswith("Error")}
    shared = {name for name, users in importers().items() if len(users) >= 3} & known

    assert shared
    assert sorted(shared - named) == [], "each needs its word in docs/glossary.md"
