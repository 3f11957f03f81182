"""What comes with an installation: recipes, completions, the manual page."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet
from typer._completion_shared import get_completion_script

from tests.cli.commands import options, verbs

TOP = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(
    not (TOP / "packaging").is_dir(), reason="needs the sources, not the wheel"
)


def project() -> Any:  # noqa: ANN401 - TOML
    return tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))


def bounds(requirement: str) -> tuple[str, str]:
    """Return a name and its lower bound, whichever way it is written."""
    found = re.match(r"(?:py-)?([\w-]+?)\s*(?:>=|@)([\d.]+?)(?=[:,;\s]|$)", requirement)
    assert found, requirement
    number = found[2] if "." in found[2] else f"{found[2]}.0"
    return found[1], number


def test_recipes_want_the_libraries_that_the_wheel_wants() -> None:
    wanted = {bounds(needed) for needed in project()["project"]["dependencies"]}
    conda = (TOP / "packaging/conda/recipe.yaml").read_text(encoding="utf-8")
    spack = (TOP / "packaging/spack/package.py").read_text(encoding="utf-8")

    in_conda = re.findall(r"- ((?!python)\S+ >=\S+)", conda.partition("  run:")[2])
    in_spack = re.findall(r'depends_on\("(py-[^"]+)", type=\("build", "run"\)', spack)
    assert {bounds(needed) for needed in in_conda} == wanted
    assert {bounds(needed) for needed in in_spack} == wanted


def test_recipes_build_with_what_the_wheel_is_built_with() -> None:
    wanted = {bounds(needed) for needed in project()["build-system"]["requires"]}
    conda = (TOP / "packaging/conda/recipe.yaml").read_text(encoding="utf-8")
    spack = (TOP / "packaging/spack/package.py").read_text(encoding="utf-8")

    host = conda.partition("  host:")[2].partition("  run:")[0]
    in_conda = re.findall(r"- ((?!python)\S+ >=\S+)", host)
    in_spack = re.findall(r'depends_on\("(py-[^"]+)", type="build"', spack)
    assert {bounds(needed) for needed in in_conda} == wanted
    assert {bounds(needed) for needed in in_spack} == wanted


def test_recipes_have_the_version_of_the_wheel() -> None:
    version = project()["project"]["version"]

    for recipe in ("conda/recipe.yaml", "spack/package.py"):
        text = (TOP / "packaging" / recipe).read_text(encoding="utf-8")
        assert set(re.findall(r'version(?:: |\()"([^"]+)"', text)) == {version}


def test_the_apptainer_image_has_the_wheel_s_version_python_and_command() -> None:
    told = project()["project"]
    text = (TOP / "packaging/apptainer/freetrain.def").read_text(encoding="utf-8")

    assert re.findall(r"image\.version (\S+)", text) == [told["version"]]
    python = re.findall(r"^From: python:([\d.]+)-slim$", text, re.MULTILINE)
    assert SpecifierSet(told["requires-python"]).contains(python[0])
    assert re.findall(r"exec (\w+) ", text)[0] in told["scripts"]
    # All that the build takes from the sources is there, and nothing is pinned apart.
    assert "    . /src\n" in text
    assert re.findall(r"pip install .*", text) == [
        "pip install --no-cache-dir --no-compile /src"
    ]


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_completions_are_those_that_the_program_answers(shell: str) -> None:
    installed = (TOP / "packaging" / f"freetrain.{shell}").read_text(encoding="utf-8")

    made = get_completion_script(
        prog_name="freetrain", complete_var="_FREETRAIN_COMPLETE", shell=shell
    )
    assert installed == made.strip() + "\n"


def manual_page() -> str:
    made = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, TOP / "hatch_build.py"],
        capture_output=True,
        text=True,
        check=True,
    )
    return made.stdout


def test_the_manual_page_has_every_verb_with_its_options() -> None:
    page = manual_page()

    for verb in verbs():
        heading = f'.SH "\\fBfreetrain {" ".join(verb)}'
        _, found, said = page.partition(heading)
        assert found, heading
        said = said.partition("\n.SH")[0].replace(r"\-", "-")
        assert [name for name in options(verb) - {"--help"} if name not in said] == []


@pytest.mark.skipif(not shutil.which("groff"), reason="needs groff to set the page")
def test_the_manual_page_is_set_without_a_warning() -> None:
    ran = subprocess.run(  # noqa: S603 - found above
        [str(shutil.which("groff")), "-man", "-Tutf8", "-K", "utf8", "-ww"],
        input=manual_page(),
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stderr == ""
    assert ".md" not in ran.stdout
