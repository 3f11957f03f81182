"""A launcher that hangs before its program begins: mpirun was seen to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.agent.board import Board, Listing
from freetrain.config.job import render_job
from freetrain.state.files import Ended, StateDir
from tests.agent.model_cluster import PATIENCE, TRAINER, ModelCluster, a_job

if TYPE_CHECKING:
    from pathlib import Path


def test_a_world_that_never_begins_is_killed_and_counts_as_a_failure() -> None:
    cluster = _launched(hangs=True)

    cluster.run_until(lambda: (TRAINER, 1) in cluster.board.over, limit_s=620)

    ending = cluster.board.over[TRAINER, 1]
    assert ending.ended is Ended.KILLED
    assert not ending.was_asked
    assert not ending.lost_lease
    assert ending.message == "it did not begin within 600 s"


def test_one_that_trains_is_left_alone_however_long() -> None:
    cluster = _launched(hangs=False)
    cluster.run(PATIENCE.begin_patience_s + 30)
    assert cluster.training() == [1]


def test_a_program_shows_that_it_began_by_its_claim_or_by_waiting(
    tmp_path: Path,
) -> None:
    board = _board(tmp_path)
    run = StateDir(tmp_path).trainer(TRAINER).run
    assert not board.has_begun(TRAINER, 1)
    run.create()
    assert not board.has_begun(TRAINER, 1)
    run.claim(1).touch()
    run.ready(2).touch()
    assert [board.has_begun(TRAINER, number) for number in (1, 2, 3)] == [1, 1, 0]


def test_a_program_that_can_leave_no_sign_is_not_blamed(tmp_path: Path) -> None:
    board = _board(tmp_path)
    StateDir(tmp_path).trainer(TRAINER).run.path.symlink_to("/proc")
    assert board.has_begun(TRAINER, 1)


def _launched(*, hangs: bool) -> ModelCluster:
    cluster = ModelCluster(hangs=hangs)
    cluster.add_trainer()
    cluster.assign(cluster.add_lease(), cluster.add_lease())
    cluster.run_until(lambda: (TRAINER, 1) in cluster.worlds)
    return cluster


def _board(path: Path) -> Board:
    folder = StateDir(path).trainer(TRAINER)
    folder.create()
    folder.job.write_text(render_job(a_job()), encoding="utf-8")
    return Board(StateDir(path), Listing(lambda: 0.0), elapsed_s=lambda: 0.0)
