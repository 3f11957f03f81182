"""Shadow mode on a real Slurm: it foresees, asks for nothing, and is right."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm.records import expand
from tests.cli.commands import JOB, at_home, run
from tests.cluster.cluster import Cluster
from tests.cluster.settings import NODES, Variant
from tests.cluster.site import Site
from tests.cluster.waiting import wait_for

pytestmark = pytest.mark.slurm


PIECES = """\
name = "pieces"
command = ["python3", "train.py"]

[nodes]
max = 20
gpus_per_lease = 1
gpu_type = "a100"

[launch]
launcher = "srun"
"""


@pytest.fixture(params=[()])
def site(
    cluster_of: Callable[..., Cluster], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Site]:
    cluster = cluster_of(*request.param)
    yield Site(cluster, tmp_path, "freetrain")
    cluster.clear()


def shadow(site: Site, *words: str) -> Any:  # noqa: ANN401 - JSON
    shown = run(
        "shadow",
        *words,
        "--json",
        "--config",
        "freetrain.toml",
        cwd=site.folder,
        environ=site.cluster.environ,
    )
    assert shown.code == 0, shown.stderr
    return json.loads(shown.stdout)


def test_the_shadow_sees_its_leases_taken_and_its_holes_foretold(site: Site) -> None:
    at_home(JOB, site.folder)
    first = shadow(site, "job.toml")
    assert len(first["leases"]) == 8

    running = site.others_running_job(5, 10)
    wide = site.others_job(8, 1)
    site.whole_look_with_plan(wide)
    second = wait_for(
        "a look with the plan",
        lambda: next(
            (
                look
                for look in [shadow(site, "job.toml")]
                if any(isinstance(end, float) for _, end in look["holes"])
            ),
            None,
        ),
    )
    site.cluster.run("scancel", str(running.job_id))
    site.wait_for_running(wide)
    shadow(site, "job.toml")

    found = shadow(site, "--score")
    assert site.cluster.run("squeue", "--all", "-h", "-o", "%j").count("freetrain") == 0
    idle = {node for names, _ in second["holes"] for node in expand(names)}
    assert idle.isdisjoint(expand(running.nodes))
    assert len(idle) == 3
    assert (found["leases"], found["taken"]) == (8, 8)
    # Booked for the wide job in ten minutes, which came at once.
    assert found["foretold"]["ended_early"] == 3
    assert found["foretold"]["early_s"] > 300.0
    assert (found["open"]["booked"], found["open"]["ended"]) == (3, 5)


@pytest.mark.parametrize("site", [(Variant.PARTS,)], indirect=True)
def test_a_job_takes_the_pieces_of_a_shared_node_that_it_needs(site: Site) -> None:
    at_home(PIECES, site.folder)
    first = shadow(site, "job.toml")
    assert Counter(node for node, *_ in first["leases"]) == dict.fromkeys(NODES[:4], 4)

    site.others_running_job(1, 10, "--gres=gpu:a100:3", "--mem=100", "--nodelist=n1")
    second = shadow(site, "job.toml")

    assert [(end[0], end[-1]) for end in second["ended"]] == [("n1", "taken")] * 3
    left = {"n1": 1} | dict.fromkeys(NODES[1:4], 4)
    assert Counter(node for node, *_ in second["leases"]) == left
    assert site.cluster.run("squeue", "--all", "-h", "-o", "%j").count("freetrain") == 0
