"""A trainer on GPUs that other users' jobs leave free of their nodes."""

from collections.abc import Callable

import pytest

from freetrain.state.files import generations, read_assigned
from tests.cluster.settings import PART_GPUS, Variant
from tests.cluster.site import Site
from tests.cluster.waiting import wait_for
from tests.e2e.outcome import check_losses, check_samples, committed_step
from tests.e2e.stage import Stage

pytestmark = pytest.mark.slurm

NAME = "ada"
LIMIT_S = 300.0
TICK_EVERY_S = 3.0


@pytest.fixture
def stage(stage_on: Callable[..., Stage]) -> Stage:
    return stage_on(Variant.PARTS, lease='mode = "preempt"')


def hosts(stage: Stage) -> list[str]:
    """The nodes of the newest generation, once for each lease."""
    folder, _ = stage.trainer(NAME)
    newest = max(generations(folder.assignments), default=None)
    if newest is None:
        return []
    return sorted(member.node for member in read_assigned(folder, newest).members)


def test_a_world_of_three_pieces_on_two_nodes_makes_way_for_a_gpu_and_for_a_node(
    stage: Stage, reference: dict[int, float]
) -> None:
    others = Site(stage.cluster, stage.folder, "freetrain")
    others.others_running_job(1, 30, "--gres=gpu:a100:2", "--mem=200", "--nodelist=n1")
    others.others_running_job(1, 30, "--gres=gpu:a100:3", "--mem=200", "--nodelist=n2")
    for node in PART_GPUS.keys() - {"n1", "n2"}:
        others.others_running_job(1, 30, "--exclusive", f"--nodelist={node}")
    hurry = stage.folder / "hurry"
    stage.submit(
        NAME,
        most=3,
        nodes='gpus_per_lease = 1\ngpu_type = "a100"',
        launch='launcher = "srun"',
        DIGITS_STEP_S="1.0",
        DIGITS_HURRY=str(hurry),
    )
    _, run = stage.trainer(NAME)
    with stage.ticking(TICK_EVERY_S):
        wait_for("three", lambda: hosts(stage) == ["n1", "n1", "n2"], limit_s=LIMIT_S)
        wait_for("a commit", lambda: committed_step(run) > 0, limit_s=LIMIT_S)
        gpu = others.others_job(
            1, 5, "--gres=gpu:a100:1", "--mem=200", "--nodelist=n2", "--cpus-per-task=1"
        )
        others.wait_for_running(gpu)
        wait_for("two left", lambda: hosts(stage) == ["n1", "n1"], limit_s=LIMIT_S)
        hurry.touch()
        finished = {NAME: "finished"}
        wait_for("its end", lambda: stage.states() == finished, limit_s=LIMIT_S)
        wait_for("leases to go", lambda: not stage.leases(), limit_s=LIMIT_S)
    wait_for("no process of ours", lambda: not stage.processes())
    check_losses(run, reference)
    check_samples(run)
