"""A trainer on GPUs that other users' jobs leave free of their nodes."""

from collections import Counter
from collections.abc import Callable, Collection

import pytest

from freetrain.state.files import generations, read_assigned
from tests.cluster.settings import PART_GPUS, Variant
from tests.cluster.site import Site
from tests.cluster.waiting import wait_for
from tests.e2e.faults import check_all, wait_for_the_end
from tests.e2e.outcome import committed_step
from tests.e2e.stage import EPOCHS, Stage

pytestmark = pytest.mark.slurm

NAME = "ada"
TWO = (NAME, "ben")
LIMIT_S = 300.0
TICK_EVERY_S = 3.0
PARTITIONS = {"preempt": "freetrain", "yield": "main"}


SRUN = 'launcher = "srun"'


def leases_by_node(stage: Stage, name: str = NAME) -> Counter[str]:
    """How many leases of a trainer's newest generation are on each node."""
    folder, _ = stage.trainer(name)
    newest = max(generations(folder.assignments), default=None)
    if newest is None:
        return Counter()
    return Counter(member.node for member in read_assigned(folder, newest).members)


def fill(others: Site, *, but: Collection[str]) -> None:
    """Let jobs of others hold all nodes with GPUs, *but* some."""
    for node in PART_GPUS.keys() - but:
        others.others_running_job(1, 30, "--exclusive", f"--nodelist={node}")


@pytest.mark.parametrize("mode", PARTITIONS)
def test_a_world_of_pieces_on_two_nodes_makes_way_for_a_gpu_and_for_a_node(
    stage_on: Callable[..., Stage], mode: str, reference: dict[int, float]
) -> None:
    lease, partition = f'mode = "{mode}"', PARTITIONS[mode]
    stage = stage_on(Variant.PARTS, lease=lease, partition=partition)
    others = Site(stage.cluster, stage.folder, "freetrain")
    others.others_running_job(1, 30, "--gres=gpu:a100:3", "--mem=200", "--nodelist=n2")
    half = others.others_running_job(
        1, 30, "--gres=gpu:a100:2", "--mem=200", "--nodelist=n1"
    )
    fill(others, but={"n1", "n2"})
    hurry = stage.folder / "hurry"
    stage.submit(
        NAME,
        most=3,
        nodes='gpus_per_lease = 1\ngpu_type = "a100"',
        launch=SRUN,
        DIGITS_STEP_S="1.0",
        DIGITS_HURRY=str(hurry),
    )
    _, run = stage.trainer(NAME)

    def leased(**by_node: int) -> Callable[[], bool]:
        return lambda: leases_by_node(stage) == by_node

    with stage.ticking(TICK_EVERY_S):
        wait_for("a piece of each", leased(n1=2, n2=1), limit_s=LIMIT_S)
        wait_for("a commit", lambda: committed_step(run) > 0, limit_s=LIMIT_S)
        size = ("--gres=gpu:a100:1", "--mem=200", "--cpus-per-task=1")
        others.wait_for_running(others.others_job(1, 5, *size, "--nodelist=n2"))
        wait_for("two left", leased(n1=2), limit_s=LIMIT_S)
        stage.cluster.run("scancel", half.display_id)
        whole = others.others_job(1, 5, "--exclusive", "--nodelist=n1")
        others.wait_for_running(whole)
        wait_for("no lease", lambda: not stage.leases(), limit_s=LIMIT_S)
        stage.cluster.run("scancel", str(whole))
        hurry.touch()
        wait_for_the_end(stage, limit_s=LIMIT_S)
    check_all(stage, reference, [NAME])


@pytest.mark.parametrize("mode", PARTITIONS)
def test_two_trainers_fill_a_node_and_give_one_gpu_back(
    stage_on: Callable[..., Stage], mode: str, reference: dict[int, float]
) -> None:
    lease, partition = f'mode = "{mode}"', PARTITIONS[mode]
    stage = stage_on(Variant.PARTS, lease=lease, partition=partition)
    others = Site(stage.cluster, stage.folder, "freetrain")
    fill(others, but={"n1"})
    hurry = stage.folder / "hurry"
    for name in TWO:
        stage.submit(
            name,
            most=2,
            nodes='gpus_per_lease = 1\ngpu_type = "a100"',
            launch=SRUN,
            DIGITS_STEP_S="1.0",
            DIGITS_HURRY=str(hurry),
        )

    def sizes() -> list[int]:
        return sorted(leases_by_node(stage, name)["n1"] for name in TWO)

    with stage.ticking(TICK_EVERY_S):
        wait_for("a full node", lambda: sizes() == [2, 2], limit_s=LIMIT_S)
        runs = [stage.trainer(name)[1] for name in TWO]
        wait_for("commits", lambda: all(map(committed_step, runs)), limit_s=LIMIT_S)
        size = ("--gres=gpu:a100:1", "--mem=200", "--cpus-per-task=1")
        others.wait_for_running(others.others_job(1, 5, *size, "--nodelist=n1"))
        wait_for("one to have left", lambda: sizes() == [1, 2], limit_s=LIMIT_S)
        assert len(stage.leases()) == 3
        hurry.touch()
        wait_for_the_end(stage, limit_s=LIMIT_S)
    check_all(stage, reference, TWO)


@pytest.mark.parametrize("mode", PARTITIONS)
def test_a_world_of_pieces_goes_on_elsewhere_where_a_node_is_drained(
    stage_on: Callable[..., Stage], mode: str, reference: dict[int, float]
) -> None:
    lease, partition = f'mode = "{mode}"', PARTITIONS[mode]
    stage = stage_on(Variant.PARTS, lease=lease, partition=partition)
    others = Site(stage.cluster, stage.folder, "freetrain")
    places = {"n1", "n2", "n3"}
    fill(others, but=places)
    for node in places:
        size = ("--gres=gpu:a100:3", "--mem=200", f"--nodelist={node}")
        others.others_running_job(1, 30, *size)
    hurry = stage.folder / "hurry"
    stage.submit(
        NAME,
        most=2,
        nodes='gpus_per_lease = 1\ngpu_type = "a100"',
        launch=SRUN,
        DIGITS_STEP_S="1.0",
        DIGITS_HURRY=str(hurry),
    )
    _, run = stage.trainer(NAME)
    drained = ""

    def set_state(node: str, state: str) -> None:
        words = (f"nodename={node}", f"state={state}", "reason=test")
        stage.cluster.run("scontrol", "update", *words)

    try:
        with stage.ticking(TICK_EVERY_S):
            wait_for(
                "two pieces", lambda: len(leases_by_node(stage)) == 2, limit_s=LIMIT_S
            )
            wait_for("a commit", lambda: committed_step(run) > 0, limit_s=LIMIT_S)
            drained = min(leases_by_node(stage))
            set_state(drained, "drain")
            wait_for(
                "two pieces elsewhere",
                lambda: leases_by_node(stage).keys() == places - {drained},
                limit_s=LIMIT_S,
            )
            wait_for(
                "the drained node to be left",
                lambda: all(lease.nodes != drained for lease in stage.leases()),
                limit_s=LIMIT_S,
            )
            hurry.touch()
            wait_for_the_end(stage, limit_s=LIMIT_S)
    finally:
        if drained:
            set_state(drained, "resume")
    check_all(stage, reference, [NAME])


def test_a_world_of_two_pieces_trains_on_profiles_of_one_gpu(
    stage_on: Callable[..., Stage], reference: dict[int, float]
) -> None:
    stage = stage_on(Variant.PARTS)
    stage.submit(
        NAME,
        most=2,
        nodes='gpus_per_lease = 2\ngpu_type = "a100_1g.5gb"',
        launch=SRUN + "\nprocesses_per_node = 1",
        DIGITS_EPOCHS=str(EPOCHS // 10),
    )
    steps = len(reference) // 10

    with stage.ticking(TICK_EVERY_S):
        wait_for(
            "both pieces", lambda: leases_by_node(stage) == {"n7": 2}, limit_s=LIMIT_S
        )
        asked = {lease.gres_per_node for lease in stage.leases()}
        wait_for_the_end(stage, limit_s=LIMIT_S)
    check_all(stage, {n: reference[n] for n in reference if n <= steps}, [NAME])
    (gres,) = asked
    assert gres.endswith("gpu:a100_1g.5gb:2")
