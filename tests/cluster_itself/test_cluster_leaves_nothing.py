"""Clusters beside each other, and what is left of those whose owner was killed."""

import secrets
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from freetrain.processes import process_ids, status_of
from tests.cluster.cluster import Cluster, node_states, resume_drained
from tests.cluster.holding import running_cluster
from tests.cluster.processes import mentioning
from tests.cluster.settings import Variant
from tests.cluster.waiting import wait_for

pytestmark = pytest.mark.slurm

TOP = Path(__file__).resolve().parent.parent.parent
OWNER = """
import sys
from tests.cluster.holding import running_cluster
with running_cluster(()) as cluster:
    print(cluster.name, flush=True)
    sys.stdin.read()
"""


def test_two_clusters_run_beside_each_other_and_end_alone(
    cluster_of: Callable[..., Cluster],
) -> None:
    first = cluster_of()
    with running_cluster([Variant.GRES]) as second:
        second.run("sbatch", "--nodes=1", "--output=/dev/null", "--wrap=sleep 600")
        assert first.run("squeue", "--noheader") == ""
        assert (first.is_up, second.is_up) == (True, True)
        assert second.variants == {Variant.GRES}

    assert first.is_up
    assert not second.exists
    assert not mentioning(str(second.folder))


def test_even_a_detached_child_with_no_environment_ends_with_the_cluster(
    cluster_of: Callable[..., Cluster],
) -> None:
    cluster_of()
    seconds = f"{600 + secrets.randbelow(10**6) / 10**6:.6f}"  # ours, nobody else's
    mark = f"sleep\x00{seconds}"
    job = f"setsid env -i sleep {seconds} & exec sleep {seconds}"
    with running_cluster(()) as cluster:
        cluster.run("sbatch", "--nodes=1", "--output=/dev/null", f"--wrap={job}")
        wait_for("both to run", lambda: len(mentioning(mark)) == 2)

    assert not mentioning(mark)


def test_ended_jobs_leave_the_process_table_while_a_cluster_runs() -> None:
    """Agents look through all processes, dead ones too, several times a second."""

    def dead() -> list[int]:
        found = ((pid, status_of(pid)) for pid in process_ids())
        return [pid for pid, s in found if s and s.has_ended and s.parent in holders]

    with running_cluster(()) as cluster:
        holders = mentioning(f"hold\x00--name\x00{cluster.name}")
        assert holders
        for _ in range(5):
            cluster.run("sbatch", "--nodes=1", "--output=/dev/null", "--wrap=true")
        wait_for("all to end", lambda: cluster.run("squeue", "--noheader") == "")
        wait_for("them to be gone", lambda: not dead())


def test_nothing_is_left_when_the_owner_is_killed(
    cluster_of: Callable[..., Cluster],
) -> None:
    cluster_of()
    with subprocess.Popen(  # noqa: S603 -- our own interpreter
        [sys.executable, "-c", OWNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=TOP,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        cluster = Cluster(owner.stdout.readline().strip())
        assert cluster.is_up
        owner.send_signal(signal.SIGKILL)

    wait_for("the folder to go", lambda: not cluster.exists)
    wait_for("all to end", lambda: not mentioning(str(cluster.folder)))


def test_the_command_may_be_run_twice_and_says_where_the_cluster_is(
    cluster_of: Callable[..., Cluster],
) -> None:
    cluster_of()
    name = f"test-{secrets.token_hex(4)}"

    def command(verb: str) -> str:
        return subprocess.run(  # noqa: S603 -- our own interpreter
            [sys.executable, "-m", "tests.cluster", verb, "--name", name],
            check=True,
            capture_output=True,
            text=True,
            cwd=TOP,
        ).stdout

    try:
        first = command("up")
        assert "8 idle\nexport SLURM_CONF=" in first
        assert command("up") == command("status") == first
    finally:
        command("down")
    assert command("down") == command("status")


def test_drained_nodes_and_held_jobs_are_named_with_the_reason_and_go_on(
    cluster_of: Callable[..., Cluster],
) -> None:
    cluster = cluster_of()
    for node, why in (("n2", "launch failed"), ("n5", "Kill task failed")):
        words = (f"nodename={node}", "state=drain", f"reason={why}")
        cluster.run("scontrol", "update", *words)

    assert resume_drained(cluster) == [
        ("n2", "launch failed"),
        ("n5", "Kill task failed"),
    ]

    all_idle = ["idle"] * len(cluster.nodes)
    wait_for("all nodes idle", lambda: node_states(cluster) == all_idle)
    assert resume_drained(cluster) == []
