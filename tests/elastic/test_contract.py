"""The contract of launcher and program: variables, stop files, outcomes, names."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from freetrain import elastic
from freetrain.elastic import LaunchError
from freetrain.elastic.contract import (
    Launch,
    Outcome,
    OutcomeKind,
    StopFile,
    read_launch,
    read_outcome,
    write_outcome,
)
from freetrain.elastic.files import Clock, RunDir
from tests.elastic.launching import REPOSITORY, clean_environment


@pytest.mark.parametrize("kind", OutcomeKind)
def test_an_outcome_comes_back_as_it_was_written(
    tmp_path: Path, kind: OutcomeKind
) -> None:
    run = RunDir(tmp_path)
    outcome = Outcome(kind, 3, step=7, committed_step=5, message="why", t=12.5)

    assert write_outcome(run, outcome)
    assert not write_outcome(run, replace(outcome, step=9))

    assert json.loads(run.outcome(3).read_text()) == {
        "outcome": str(kind),
        "generation": 3,
        "step": 7,
        "committed_step": 5,
        "message": "why",
        "t": 12.5,
    }
    assert read_outcome(run, 3) == outcome
    assert read_outcome(run, 4) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((text, None) for text in ("", "{", "[]", "{}", '{"outcome": "well"}', "\0")),
        ('{"outcome": "finished"}', Outcome(OutcomeKind.FINISHED, 1, 0, 0, "", 0.0)),
    ],
)
def test_an_unreadable_outcome_is_none_and_missing_fields_are_empty(
    tmp_path: Path, text: str, expected: Outcome | None
) -> None:
    run = RunDir(tmp_path)
    run.create()
    run.outcome(1).write_text(text)

    assert read_outcome(run, 1) == expected


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("FREETRAIN_GENERATION", "0", "whole number"),
        ("FREETRAIN_GENERATION", "7; rm", "whole number"),
        ("FREETRAIN_GENERATION", "9" * 5000, "whole number"),
        ("FREETRAIN_WORLD_SIZE", "-1", "whole number"),
        ("FREETRAIN_COMMIT_EVERY_S", "nan", "seconds"),
        ("FREETRAIN_STOP_SIGNALS", "TERM,USR1", "NCCL"),
        ("FREETRAIN_STOP_SIGNALS", "SIGKILL", "NCCL uses it"),
        ("FREETRAIN_STOP_SIGNALS", "TERM,,", "names such as"),
        ("FREETRAIN_AFTER", "1", "generation below"),  # none is named
        ("FREETRAIN_AFTER", "x", "whole number"),
    ],
)
def test_a_variable_that_makes_no_sense_is_refused_by_name(
    name: str, text: str, why: str
) -> None:
    with pytest.raises(LaunchError, match=f"{name}.*{why}"):
        read_launch({name: text})


def test_it_may_wait_for_an_earlier_generation_only() -> None:
    own = {"FREETRAIN_GENERATION": "2"}

    assert read_launch(own | {"FREETRAIN_AFTER": "1"}).after == 1
    with pytest.raises(LaunchError, match="FREETRAIN_AFTER"):
        read_launch(own | {"FREETRAIN_AFTER": "2"})


def test_a_launch_without_variables_leaves_everything_to_the_program() -> None:
    assert read_launch({}) == Launch()
    assert read_launch({"FREETRAIN_RUN_DIR": "/runs/a"}).run_dir == Path("/runs/a")


def test_the_stop_file_is_looked_for_no_more_often_than_asked(tmp_path: Path) -> None:
    now_s = 50.0
    file = StopFile(
        tmp_path / "control" / "stop",
        every_s=0.1,
        clock=Clock(elapsed_s=lambda: now_s),
    )
    assert not file.is_there()  # nor is its folder
    (tmp_path / "control").mkdir()
    (tmp_path / "control" / "stop").touch()

    now_s += 0.05
    assert not file.is_there()
    now_s += 0.06
    assert file.is_there()


@pytest.mark.parametrize("name", elastic.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(elastic, name).__module__.startswith("freetrain.elastic.")
    assert name in dir(elastic)


def test_an_unknown_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'jion'"):
        elastic.jion  # noqa: B018


@pytest.mark.parametrize(
    ("names", "is_numpy_allowed"),
    [("contract", False), ("files", False), ("rank", False), ("fragment", True)],
)
def test_agents_import_their_modules_without_numpy_and_programs_nothing_else_of_ours(
    names: str, *, is_numpy_allowed: bool
) -> None:
    code = (
        f"import sys, json, freetrain.elastic.{names}; "
        "print(json.dumps([*sys.modules])); assert callable(freetrain.elastic.join)"
    )
    done = subprocess.run(  # noqa: S603  # our own argv
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        cwd=REPOSITORY,
        env=clean_environment(),
    )

    loaded = set(json.loads(done.stdout))
    heavy = {"typer", "rich", "pandas", "pulp", "jinja2", "plotly", "scipy"}
    heavy |= {"mpi4py", "sqlite3", "milp", "slurm", "logs"}
    heavy |= set() if is_numpy_allowed else {"numpy"}
    assert not {module.split(".")[0] for module in loaded} & heavy
    ours = {module for module in loaded if module.startswith("freetrain.")}
    ours.discard("freetrain.opening")  # which imports nothing of ours
    assert all(module.startswith("freetrain.elastic") for module in ours)
