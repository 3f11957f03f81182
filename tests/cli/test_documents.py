"""No command goes undocumented, and no document shows a command that fails."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import typer
from typer.core import TyperGroup

from freetrain.cli import (
    demo,
    replay,
    trace_convert,
    trace_generate,
    trace_holes,
    trace_info,
)
from freetrain.cli.app import app
from tests.cli.worlds import run

TOP = Path(__file__).resolve().parents[2]
VERB_MODULES = (
    demo,
    replay,
    trace_convert,
    trace_generate,
    trace_holes,
    trace_info,
)


def verbs(command: object, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of each verb under *command*."""
    if isinstance(command, TyperGroup):
        for name, inner in command.commands.items():
            yield from verbs(inner, (*words, name))
    else:
        yield words


def shown_commands(text: str) -> Iterator[str]:
    """Yield the lines of fenced blocks that call ``freetrain``."""
    fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced and line.removeprefix("$ ").startswith("freetrain "):
            yield line.removeprefix("$ ").partition("#")[0]


def parse(line: str) -> None:
    """Parse *line* as the program would, without running it."""
    command = typer.main.get_command(app)
    words = shlex.split(line)[1:]
    while isinstance(command, TyperGroup):
        command = command.commands[words.pop(0)]
    command.make_context("freetrain", words)


def documents() -> list[Path]:
    return [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md"))]


def document(name: str) -> str:
    return (TOP / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["README.md", "docs/commands.md"])
@pytest.mark.parametrize("verb", sorted(verbs(typer.main.get_command(app))))
def test_every_verb_is_documented(verb: tuple[str, ...], name: str) -> None:
    assert f"freetrain {' '.join(verb)}" in document(name)


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_every_command_a_document_shows_can_be_called(path: Path) -> None:
    for line in shown_commands(path.read_text(encoding="utf-8")):
        parse(line)


@pytest.mark.parametrize("module", VERB_MODULES)
def test_every_example_of_the_help_can_be_called(module: ModuleType) -> None:
    for line in filter(None, module.EXAMPLES.splitlines()):
        parse(line)


@pytest.mark.skipif(
    not (TOP / "freetrain").is_dir(),
    reason="the suite runs against the wheel, the source folders out of the way",
)
def test_every_file_a_document_points_at_is_there() -> None:
    for path in documents():
        for part in path.read_text(encoding="utf-8").split("](")[1:]:
            target = part.partition(")")[0].partition("#")[0]
            if target and "://" not in target:
                assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_the_screen_in_the_readme_is_what_the_demo_prints(tmp_path: Path) -> None:
    shown = document("README.md").split("$ freetrain demo\n")[1].split("```")[0]

    assert run("demo", cwd=tmp_path).stdout == shown


def test_a_command_that_fails_would_be_noticed() -> None:
    with pytest.raises(typer.TyperException):
        parse("freetrain replay log.csv --polcy equal")
