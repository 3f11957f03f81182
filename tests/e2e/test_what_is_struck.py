"""What the tests of kills take a process for, and what they count as a rescale."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from freetrain.broker.lease import LeaseKey
from freetrain.elastic.files import RunDir
from freetrain.state.files import TrainerDir, create_assigned
from tests.e2e.faults import Kind, kinds_of
from tests.e2e.outcome import (
    Rescales,
    check_losses,
    check_nothing_committed_was_lost,
    rescales,
)
from tests.state.endings import a_lease, an_assignment

AGENT = ["/v/bin/python", "-P", "-m", "freetrain.agent", "/s", "u-1", "3", "9", "15"]


@pytest.mark.parametrize(
    ("argv", "kinds"),
    [
        (AGENT, [Kind.AGENT]),
        ([*AGENT[:5], "u-2", "0", "9", "15"], [Kind.AGENT, Kind.HEAD]),
        ([*AGENT[:4], "sweep", "/s", "u-1", "3"], []),
        (["srun", "--export=ALL", *AGENT], []),
        (["/v/bin/prterun", "--prtemca", "plm", "ssh"], [Kind.LAUNCHER]),
        (["/usr/bin/prted", "--leave-session-attached"], [Kind.DAEMON]),
        (["/v/bin/python", "/t/digits_program.py", "/e"], [Kind.RANK]),
        (["/bin/sh", "-c", "prted digits_program.py"], []),
        (["sleep", "7200"], []),
        ([], []),
    ],
)
def test_a_process_is_known_by_its_words(argv: list[str], kinds: list[Kind]) -> None:
    assert kinds_of(argv, {("u-2", "0")}) == kinds


@pytest.fixture
def trainer(tmp_path: Path) -> tuple[TrainerDir, RunDir]:
    folder, run = TrainerDir(tmp_path), RunDir(tmp_path / "run")
    folder.create()
    run.path.mkdir()
    return folder, run


def generation(folder: TrainerDir, number: int, nodes: int, author: str) -> None:
    members = (a_lease(LeaseKey("u", n), f"n{n}", n) for n in range(nodes))
    create_assigned(folder, an_assignment(number, *members, author=author))


def tell(run: RunDir, *lines: dict[str, object], rest: str = "") -> None:
    text = "".join(f"{json.dumps(line)}\n" for line in lines) + rest
    run.progress.write_text(text, encoding="utf-8")


def steps(number: int, *numbers: int) -> Sequence[dict[str, object]]:
    return [{"generation": number, "step": n, "loss": float(n)} for n in numbers]


def test_rescales_are_counted_between_worlds_that_trained(
    trainer: tuple[TrainerDir, RunDir],
) -> None:
    folder, run = trainer
    for number, nodes, author in (
        (1, 1, "broker"),
        (2, 4, "broker"),
        (3, 3, "u-0"),  # never did a step
        (4, 2, "u-0"),
        (5, 0, "broker"),
        (6, 2, "broker"),
    ):
        generation(folder, number, nodes, author)
    tell(run, *steps(1, 1), *steps(2, 2), *steps(4, 3), *steps(6, 4))

    assert rescales(folder, run) == Rescales(
        grows=1, shrinks=1, by_broker=2, by_survivors=1, spanned=4
    )


def test_a_loss_that_differs_or_a_step_left_out_is_noticed(
    trainer: tuple[TrainerDir, RunDir],
) -> None:
    _, run = trainer
    reference = {1: 1.0, 2: 2.0}
    tell(run, *steps(1, 1), *steps(2, 1, 2), rest='{"generation": 2, "st')
    check_losses(run, reference)

    with pytest.raises(AssertionError):
        check_losses(run, {1: 1.0, 2: 2.0 + 1e-8})
    with pytest.raises(AssertionError):
        check_losses(run, reference | {3: 3.0})


def test_a_world_that_went_on_from_before_a_commit_is_noticed(
    trainer: tuple[TrainerDir, RunDir],
) -> None:
    _, run = trainer
    tell(run, {"event": "start", "generation": 2, "step": 7})
    check_nothing_committed_was_lost(run, {1: (0, 7), 2: (9,)})

    with pytest.raises(AssertionError):
        check_nothing_committed_was_lost(run, {1: (0, 8)})
