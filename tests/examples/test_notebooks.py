"""The notebooks run from their first cell to their last, in a fresh interpreter each.

Jupyter is not needed: their cells are plain Python, and what a cell shows is asked for
its HTML as a notebook would.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples/notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))

RUN_CELLS = """
import ast, json, pathlib, sys

names = {"__name__": "__main__"}
for cell in json.loads(pathlib.Path(sys.argv[1]).read_text("utf-8"))["cells"]:
    if cell["cell_type"] != "code":
        continue
    where = "cell " + cell["id"]
    tree = ast.parse("".join(cell["source"]), where)
    shown = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, where, "exec"), names)
    if shown is not None:
        value = eval(compile(ast.Expression(shown.value), where, "eval"), names)
        html = getattr(value, "_repr_html_", None)
        assert html() if html else repr(value), where
    print("ran", cell["id"], file=sys.stderr)
"""


def ran(path: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-W", "error", "-c", RUN_CELLS, str(path)]
    return subprocess.run(  # noqa: S603 - this very program
        program, capture_output=True, text=True, check=False, cwd=cwd
    )


def test_there_are_three_notebooks() -> None:
    assert len(NOTEBOOKS) == 3


@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_to_its_end(path: Path, tmp_path: Path) -> None:
    notebook = json.loads(path.read_text("utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]

    found = ran(path, tmp_path)

    assert found.returncode == 0, found.stderr
    assert found.stderr.splitlines() == [f"ran {cell['id']}" for cell in code]
    assert len(code) >= 4


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_what_it_shows(path: Path) -> None:
    notebook = json.loads(path.read_text("utf-8"))

    assert (notebook["nbformat"], notebook["metadata"]["kernelspec"]["name"]) == (
        4,
        "python3",
    )
    for cell in notebook["cells"]:
        is_code = cell["cell_type"] == "code"
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None
        assert is_code == ("outputs" in cell) == ("execution_count" in cell)


@pytest.mark.parametrize("source", ["1 / 0", "x = 1\nundefined", "import no_such"])
def test_a_cell_that_fails_fails_its_notebook(tmp_path: Path, source: str) -> None:
    path = tmp_path / "bad.ipynb"
    cells = [
        {"cell_type": "code", "id": name, "source": [text]}
        for name, text in (("first", "1000 + 1"), ("second", source))
    ]
    path.write_text(json.dumps({"cells": cells}))

    found = ran(path, tmp_path)

    assert found.returncode == 1
    assert found.stderr.startswith("ran first\n")
    assert "ran second" not in found.stderr
