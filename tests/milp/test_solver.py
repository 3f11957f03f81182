"""The contract of every model solver, and how its answers are read."""

from pathlib import Path

import pulp
import pytest

from milp.answer import SolverFailedError, SolverStatus, SolverUnavailableError
from milp.program import COUNT_OPTIONS, Cbc, Highs, ModelSolver, whole

SOLVERS = {
    "cbc": Cbc(),
    "cbc reduced": Cbc(options=COUNT_OPTIONS),
    "cbc warm": Cbc(warm=True),
    "highs": Highs(),
}
every_solver = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)


def knapsack() -> tuple[pulp.LpProblem, list[pulp.LpVariable]]:
    model = pulp.LpProblem("knapsack", pulp.LpMaximize)
    taken = [model.add_variable(f"taken_{k}", cat=pulp.LpBinary) for k in range(3)]
    model += 5 * taken[0] + 4 * taken[1] + 3 * taken[2]
    model += 4 * taken[0] + 3 * taken[1] + 2 * taken[2] <= 5.0
    return model, taken


def run(path: Path | str) -> SolverStatus:
    model, _ = knapsack()
    return Cbc(path=str(path)).solve(model, limit_s=1.0)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A file that will run in place of CBC."""
    path = tmp_path / "cbc"
    path.touch(mode=0o755)
    return path


@every_solver
@pytest.mark.parametrize("start", [None, (0, 1, 1)], ids=["", "from the optimum"])
def test_an_optimum_is_called_one_and_its_values_are_there(
    solver: ModelSolver, start: tuple[int, ...] | None
) -> None:
    model, taken = knapsack()
    for variable, value in zip(taken, start or (), strict=False):
        variable.setInitialValue(value)

    assert solver.solve(model, limit_s=10.0) is SolverStatus.OPTIMUM
    assert whole(taken) == [0, 1, 1]


@every_solver
def test_a_model_without_a_solution_is_called_infeasible(solver: ModelSolver) -> None:
    model, taken = knapsack()
    model += pulp.lpSum(taken) >= 4

    assert solver.solve(model, limit_s=None) is SolverStatus.INFEASIBLE


def test_a_missing_solver_says_how_to_install_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(SolverUnavailableError, match=r"no program /elsewhere/cbc.*pip"):
        run("/elsewhere/cbc")


# PuLP leaves /dev/null open where a process cannot be started.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_binary_for_another_processor_says_how_to_install_one(program: Path) -> None:
    program.write_bytes(b"\x7fELF of another machine")

    with pytest.raises(SolverUnavailableError, match=r"Exec format error.*coinor-cbc"):
        run(program)


def test_where_pulps_wheel_has_no_cbc_the_one_on_the_path_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled = Path(pulp.PULP_CBC_CMD.pulp_cbc_path).resolve()
    (tmp_path / "cbc").symlink_to(bundled)
    monkeypatch.setenv("PATH", str(tmp_path))
    model, taken = knapsack()

    assert Cbc(path="/elsewhere/cbc").solve(model, limit_s=10.0) is SolverStatus.OPTIMUM
    assert whole(taken) == [0, 1, 1]


# Writes its argument to the file that CBC is to write its solution to.
WRITE_SOLUTION = 'while [ "$1" != -solution ]; do shift; done; printf "%b" >"$2" '


@pytest.mark.parametrize(
    "script",
    ["exit 3", "exit 0", "kill -9 $$", WRITE_SOLUTION + r"'Optimal\n0 X0 one 2\n'"],
)
def test_a_solver_that_crashes_or_answers_nothing_has_failed_and_leaves_no_files(
    script: str, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))

    with pytest.raises(SolverFailedError, match="was not used"):
        run(program)

    assert list(scratch.iterdir()) == []


def test_an_unknown_status_is_no_solution(program: Path) -> None:
    script = WRITE_SOLUTION + "'Splendid - objective value 3'"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")

    assert run(program) is SolverStatus.NOTHING


@pytest.mark.parametrize("value", [0.5, 0.999, None, float("nan"), float("inf")])
def test_a_value_that_is_not_whole_is_refused(value: float | None) -> None:
    _, taken = knapsack()
    for variable, given in zip(taken, [1.0, value, 1.0], strict=True):
        variable.varValue = given

    with pytest.raises(SolverFailedError, match="taken_1"):
        whole(taken)


def test_rounding_noise_is_rounded_away() -> None:
    _, taken = knapsack()
    for variable, value in zip(taken, [1e-9, 1 - 1e-9, 1.0], strict=True):
        variable.varValue = value

    assert whole(taken) == [0, 1, 1]
