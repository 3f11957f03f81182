"""Other users' jobs on the stand-in for Slurm."""

from collections.abc import Sequence

from freetrain.demo.fake_slurm.cluster import FakeJob
from freetrain.demo.fake_slurm.processes import FakeSlurmFolder


def take_nodes(
    slurm: FakeSlurmFolder, nodes: Sequence[str], *, run_s: float, now_s: float
) -> None:
    """Let a job of another user have *nodes* at once."""
    theirs = FakeJob(
        job_id=0,
        name="theirs",
        user="others",
        partition="main",
        limit_s=3_600.0,
        submit_s=now_s,
        due_s=now_s,
        wanted=list(nodes),
        run_s=run_s,
    )
    slurm.add([theirs])
