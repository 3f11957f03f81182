"""No command goes undocumented, and no document shows a command that fails."""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
import typer

import freetrain
from logs.generate import GPU_SAMPLE_NAME, shipped_sample
from logs.read import WRITABLE
from slurm.backend import SlurmBackend
from tests.cli.commands import examples, options, parse, run, verbs

TOP = Path(__file__).resolve().parents[2]
OF_EVERY_COMMAND = {"--help"}


def shown_commands(text: str) -> Iterator[str]:
    """Yield the lines of fenced blocks that call ``freetrain``."""
    fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced and line.removeprefix("$ ").startswith("freetrain "):
            yield line.removeprefix("$ ").partition("#")[0]


def documents() -> list[Path]:
    return [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md"))]


def document(name: str) -> str:
    return (TOP / name).read_text(encoding="utf-8")


def section(verb: tuple[str, ...]) -> str:
    """Return what docs/guide/commands.md says under the heading of *verb*."""
    _, found, rest = document("docs/guide/commands.md").partition(
        f"\n## `freetrain {' '.join(verb)}`"
    )
    assert found, f"docs/guide/commands.md has no heading for {verb}"
    return rest.split("\n## ")[0]


@pytest.mark.parametrize("verb", verbs())
def test_every_verb_is_in_the_list_of_commands(verb: tuple[str, ...]) -> None:
    assert f"| `freetrain {' '.join(verb)}` |" in document("docs/guide/commands.md")


@pytest.mark.parametrize("verb", verbs())
def test_every_option_is_documented_with_its_verb(verb: tuple[str, ...]) -> None:
    said = section(verb)

    missing = [name for name in options(verb) - OF_EVERY_COMMAND if name not in said]
    assert not missing


def test_the_log_formats_that_can_be_written_are_documented_with_their_option() -> None:
    said = section(("trace", "convert")).partition(" says what to write")[0]

    assert re.findall(r"`([\w-]+)`", said) == ["--to", *WRITABLE]


def test_the_readme_points_at_the_list_of_commands() -> None:
    assert "](docs/guide/commands.md)" in document("README.md")


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_every_command_a_document_shows_can_be_called(path: Path) -> None:
    for line in shown_commands(path.read_text(encoding="utf-8")):
        parse(line)


@pytest.mark.skipif(
    not (TOP / "freetrain").is_dir(), reason="needs the sources, not the wheel"
)
@pytest.mark.parametrize(
    "path", [*documents(), TOP / "CONTRIBUTING.md"], ids=lambda path: path.name
)
def test_every_module_a_document_names_exists(path: Path) -> None:
    named = re.findall(r"`([a-z_0-9]+/[a-z_0-9/]+\.py)", path.read_text("utf-8"))

    roots = (TOP, TOP / "freetrain")
    assert not [name for name in named if not any((r / name).exists() for r in roots)]


@pytest.mark.skipif(
    not (TOP / "freetrain").is_dir(), reason="needs the sources, not the wheel"
)
def test_the_architecture_page_names_functions_that_their_modules_have() -> None:
    named = re.findall(r"`([a-z_/]+\.py)`, `(\w+)`", document("docs/architecture.md"))

    assert named
    for module, name in named:
        text = document(f"freetrain/{module}")
        assert re.search(rf"^\s*(def|class) {name}\b", text, re.MULTILINE), name


def test_the_page_on_slurm_has_every_member_of_the_back_ends_protocol() -> None:
    shown = document("docs/notes/slurm.md").partition("`CommandLine`")[0]
    members = {name for name in vars(SlurmBackend) if not name.startswith("_")}

    assert members == set(re.findall(r"`([a-z_]+)`", shown.partition("(`Slurm")[2]))


@pytest.mark.parametrize("verb", verbs())
def test_the_help_of_every_verb_has_examples_of_it_that_can_be_called(
    verb: tuple[str, ...],
) -> None:
    shown = examples(verb)

    assert shown
    for line in shown:
        assert tuple(line.split()[1:])[: len(verb)] == verb, line
        parse(line)


@pytest.mark.skipif(
    not (TOP / "freetrain").is_dir(),
    reason="the suite runs against the wheel, the source folders out of the way",
)
def test_every_file_a_document_points_at_is_there_by_the_name_it_has() -> None:
    for path in documents():
        links = re.findall(r"\[([^]]*)\]\(([^)#]*)#?([^)]*)\)", path.read_text("utf-8"))
        for shown, target, heading in links:
            if "://" in target:
                continue
            there = path.parent / target if target else path
            assert there.exists(), f"{path.name}: {target}"
            is_named = not shown.endswith(".md") or shown == there.name
            assert is_named, f"{path.name}: {shown} is called {there.name}"
            if heading:
                assert heading in anchors(there), f"{path.name}: {target}#{heading}"


def anchors(page: Path) -> set[str]:
    """Return how links name the headings of *page*."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


def test_the_architecture_page_has_every_package_and_module_of_freetrain() -> None:
    folder = Path(str(freetrain.__file__)).parent
    modules = {path.stem for path in folder.glob("[!_]*.py")}
    found = modules | {path.parent.name for path in folder.glob("*/__init__.py")}
    table = document("docs/architecture.md").partition("## Packages")[2]
    rows = re.findall(r"^\| `.*?\|", table.partition("\n## ")[0], re.MULTILINE)
    named = {name.strip("/") for row in rows for name in re.findall(r"[\w/]+", row)}

    assert found <= {name.removeprefix("freetrain/") for name in named}


def test_every_package_is_in_the_list_of_packages() -> None:
    folder = Path(str(freetrain.__file__)).parent
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    modules = {path.stem for path in folder.glob("*.py")}

    listed = set(re.findall(r"``([a-z]+)``", str(freetrain.__doc__)))
    assert packages <= listed <= packages | modules


GPU_SAMPLE = shipped_sample(GPU_SAMPLE_NAME)
GPU_SAMPLE_HERE = f"logs/samples/{GPU_SAMPLE_NAME}"


def test_the_screen_in_the_readme_is_what_the_demo_prints() -> None:
    shown = document("README.md").split("$ freetrain demo\n")[1].split("```")[0]

    # Elsewhere than above it, the sample that it names has a longer path.
    printed = run("demo").stdout.replace(str(GPU_SAMPLE), GPU_SAMPLE_HERE)

    # Cells of tables end in blanks.
    assert [line.rstrip() for line in printed.splitlines()] == shown.splitlines()


def test_a_command_that_fails_would_be_noticed() -> None:
    with pytest.raises(typer.TyperException):
        parse("freetrain replay log.csv --polcy equal")


GUARANTEES = "docs/guide/guarantees.md"
MOST_WORDS, LEAST_GUARANTEES, COLUMNS = 1_200, 20, 3


@pytest.mark.skipif(
    not (TOP / "freetrain").is_dir(), reason="needs the sources, not the wheel"
)
def test_every_guarantee_names_a_module_and_a_test_that_exist() -> None:
    rows = [
        cells
        for line in document(GUARANTEES).splitlines()
        if len(cells := line.strip("|").split("|")) == COLUMNS and "::" in line
    ]
    named = [re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row[2]) for row in rows]
    missing = [
        f"{path}::{name}"
        for path, name in chain.from_iterable(named)
        if not re.search(rf"^def {name}\(", document(path), re.MULTILINE)
    ]

    assert len(rows) >= LEAST_GUARANTEES
    assert all(named), "a guarantee without a test"
    assert not missing
    assert all(re.search(r"`(freetrain|slurm)/[\w/]+\.py`", row[1]) for row in rows)
    assert len(document(GUARANTEES).split()) < MOST_WORDS
    assert f"]({GUARANTEES})" in document("README.md")
