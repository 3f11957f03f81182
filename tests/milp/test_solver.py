"""The contract of every model solver, and what is made of their answers."""

from pathlib import Path

import pulp
import pytest

from milp.answer import SolverFailedError, SolverStatus, SolverUnavailableError
from milp.program import COUNT_OPTIONS, Cbc, Highs, ModelSolver, whole

SOLVERS = [Cbc(), Cbc(options=COUNT_OPTIONS), Cbc(warm=True), Highs()]


def knapsack(room: float) -> tuple[pulp.LpProblem, list[pulp.LpVariable]]:
    model = pulp.LpProblem("knapsack", pulp.LpMaximize)
    taken = [model.add_variable(f"taken_{k}", cat=pulp.LpBinary) for k in range(3)]
    model += 5 * taken[0] + 4 * taken[1] + 3 * taken[2]
    model += 4 * taken[0] + 3 * taken[1] + 2 * taken[2] <= room
    return model, taken


@pytest.mark.parametrize(
    "solver", SOLVERS, ids=["cbc", "cbc reduced", "cbc warm", "highs"]
)
def test_an_optimum_is_called_one_and_its_values_are_there(
    solver: ModelSolver,
) -> None:
    model, taken = knapsack(5.0)

    assert solver.solve(model, limit_s=10.0) is SolverStatus.OPTIMUM
    assert whole(taken) == [0, 1, 1]


@pytest.mark.parametrize(
    "solver", SOLVERS, ids=["cbc", "cbc reduced", "cbc warm", "highs"]
)
def test_a_model_without_a_solution_is_called_infeasible(solver: ModelSolver) -> None:
    model, taken = knapsack(5.0)
    model += pulp.lpSum(taken) >= 4

    assert solver.solve(model, limit_s=None) is SolverStatus.INFEASIBLE


def test_a_warm_solver_keeps_what_it_began_from_where_nothing_is_better() -> None:
    model, taken = knapsack(5.0)
    for variable, value in zip(taken, (0, 1, 1), strict=True):
        variable.setInitialValue(value)

    assert Cbc(warm=True).solve(model, limit_s=10.0) is SolverStatus.OPTIMUM
    assert whole(taken) == [0, 1, 1]


def test_a_missing_solver_says_how_to_install_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    model, _ = knapsack(5.0)

    with pytest.raises(SolverUnavailableError, match=r"no program /elsewhere/cbc.*pip"):
        Cbc(path="/elsewhere/cbc").solve(model, limit_s=1.0)


# PuLP leaves /dev/null open where a process cannot be started.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_binary_for_another_processor_says_how_to_install_one(tmp_path: Path) -> None:
    foreign = tmp_path / "cbc"
    foreign.write_bytes(b"\x7fELF of another machine")
    foreign.chmod(0o755)
    model, _ = knapsack(5.0)

    with pytest.raises(SolverUnavailableError, match=r"Exec format error.*coinor-cbc"):
        Cbc(path=str(foreign)).solve(model, limit_s=1.0)


def test_where_pulps_wheel_has_no_cbc_the_one_on_the_path_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled = Path(pulp.PULP_CBC_CMD.pulp_cbc_path).resolve()
    (tmp_path / "cbc").symlink_to(bundled)
    monkeypatch.setenv("PATH", str(tmp_path))
    model, taken = knapsack(5.0)

    assert Cbc(path="/elsewhere/cbc").solve(model, limit_s=10.0) is SolverStatus.OPTIMUM
    assert whole(taken) == [0, 1, 1]


# Writes what follows to the file that CBC is told to write its solution to.
WRITE_SOLUTION = 'while [ "$1" != -solution ]; do shift; done; printf "%b" >"$2" '


@pytest.mark.parametrize(
    "script",
    ["exit 3", "exit 0", "kill -9 $$", WRITE_SOLUTION + r"'Optimal\n0 X0 one 2\n'"],
)
def test_a_solver_that_crashes_or_answers_nothing_has_failed(
    script: str, tmp_path: Path
) -> None:
    broken = tmp_path / "cbc"
    broken.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    broken.chmod(0o755)
    model, _ = knapsack(5.0)

    with pytest.raises(SolverFailedError, match="was not used"):
        Cbc(path=str(broken)).solve(model, limit_s=1.0)


def test_a_solver_that_fails_leaves_no_files_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "cbc"
    broken.write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    broken.chmod(0o755)
    room = tmp_path / "room"
    room.mkdir()
    monkeypatch.setenv("TMPDIR", str(room))
    model, _ = knapsack(5.0)

    with pytest.raises(SolverFailedError):
        Cbc(path=str(broken)).solve(model, limit_s=1.0)

    assert list(room.iterdir()) == []


def test_a_status_nobody_knows_is_no_solution(tmp_path: Path) -> None:
    odd = tmp_path / "cbc"
    script = WRITE_SOLUTION + "'Splendid - objective value 3'"
    odd.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    odd.chmod(0o755)
    model, _ = knapsack(5.0)

    assert Cbc(path=str(odd)).solve(model, limit_s=1.0) is SolverStatus.NOTHING


@pytest.mark.parametrize("value", [0.5, 0.999, None, float("nan"), float("inf")])
def test_a_value_that_is_not_whole_is_refused(value: float | None) -> None:
    _, taken = knapsack(5.0)
    for variable in taken:
        variable.varValue = 1.0
    taken[1].varValue = value

    with pytest.raises(SolverFailedError, match="taken_1"):
        whole(taken)


def test_rounding_noise_is_rounded_away() -> None:
    _, taken = knapsack(5.0)
    for variable, value in zip(taken, [1e-9, 1 - 1e-9, 1.0], strict=True):
        variable.varValue = value

    assert whole(taken) == [0, 1, 1]
