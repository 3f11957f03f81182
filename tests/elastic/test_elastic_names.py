"""``freetrain.elastic`` gives all its names, each only when it is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from freetrain import elastic


@pytest.mark.parametrize("name", elastic.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(elastic, name).__module__.startswith("freetrain.elastic.")
    assert name in dir(elastic)


def test_an_unknown_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'jion'"):
        elastic.jion  # noqa: B018


def test_the_function_join_is_not_hidden_by_a_module_of_its_name() -> None:
    asked = "from freetrain import elastic; elastic.join; print(callable(elastic.join))"

    assert _said(asked) == "True"


@pytest.mark.parametrize("module", ["contract", "files", "rank"])
def test_agents_and_launchers_import_what_they_need_without_numpy(module: str) -> None:
    asked = f"import sys, freetrain.elastic.{module}; print('numpy' in sys.modules)"

    assert _said(asked) == "False"


def _said(code: str) -> str:
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
