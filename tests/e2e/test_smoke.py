"""The main path: submit, hole, lease, grow, preemption, shrink, finish, nothing left.

``make test`` runs it on a plain cluster, ``make test-all`` on others too.
"""

from collections.abc import Callable

import pytest

from tests.cluster.settings import Variant
from tests.cluster.waiting import wait_for
from tests.e2e.faults import check_all, wait_for_the_end
from tests.e2e.others import USER
from tests.e2e.outcome import losses, rescales
from tests.e2e.stage import EPOCHS, Stage

pytestmark = pytest.mark.slurm

NAME = "dora"
LIMIT_S = 300.0
OCCUPIED = "n[1-6,8]"  # n7 is the hole; n7 and n8 are those with GPUs


@pytest.mark.parametrize(
    ("variants", "nodes"),
    [
        pytest.param((), "", marks=pytest.mark.main_path),
        ((Variant.MEMORY,), 'memory = "1500MiB"'),
        ((Variant.GRES,), 'gres = "gpu:a100:1"'),
    ],
    ids=["plain", "memory", "gres"],
)
def test_a_trainer_gets_a_hole_grows_shrinks_when_preempted_and_finishes(
    stage_on: Callable[..., Stage],
    reference: dict[int, float],
    variants: tuple[Variant, ...],
    nodes: str,
) -> None:
    stage = stage_on(*variants)
    hurry = stage.folder / "hurry"
    sbatch = ("sbatch", f"--uid={USER}", "--chdir=/", "--output=/dev/null")
    where = (f"--nodelist={OCCUPIED}", "--partition=main", "--time=60", "--parsable")

    def occupy() -> str:
        return stage.cluster.run(*sbatch, *where, "--wrap=sleep 3600").strip()

    other = occupy()
    stage.submit(
        NAME,
        most=2,
        nodes=nodes,
        DIGITS_EPOCHS=str(EPOCHS),
        DIGITS_STEP_S="0.5",
        DIGITS_HURRY=str(hurry),
    )
    folder, run = stage.trainer(NAME)

    with stage.ticking(3):
        wait_for("steps in the hole", lambda: losses(run), limit_s=LIMIT_S)
        stage.cluster.run("scancel", other)
        wait_for("it to grow", lambda: rescales(folder, run).grows, limit_s=LIMIT_S)
        other = occupy()
        wait_for("it to shrink", lambda: rescales(folder, run).shrinks, limit_s=LIMIT_S)
        hurry.touch()
        wait_for_the_end(stage, limit_s=LIMIT_S)

    check_all(stage, reference, [NAME])
