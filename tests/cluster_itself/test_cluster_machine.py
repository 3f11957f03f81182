"""Where a cluster is refused, what is installed, and what its configuration says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster.machine import PACKAGES, ClusterRefusedError, Machine, prepare
from tests.cluster.settings import NODES, Layout, Variant, config_files

if TYPE_CHECKING:
    from collections.abc import Sequence


class FakeApt:
    """Installs Slurm at the second try, as in a container without package lists."""

    def __init__(self, *, failures: int) -> None:
        self.failures = failures
        self.commands: list[list[str]] = []

    def run(self, argv: Sequence[str]) -> tuple[int, str]:
        self.commands.append(list(argv))
        if argv[-1] == "update":
            return 0, ""
        self.failures -= 1
        return (100, "E: Unable to locate package") if self.failures >= 0 else (0, "")


def machine(*, is_root: bool, programs: Sequence[str], apt: FakeApt) -> Machine:
    return Machine(is_root, lambda p: f"/x/{p}" if p in programs else None, apt.run)


def test_a_machine_that_has_all_is_left_alone() -> None:
    apt = FakeApt(failures=0)

    prepare(machine(is_root=True, programs=list(PACKAGES), apt=apt))

    assert apt.commands == []


def test_what_is_missing_is_installed_after_fetching_package_lists() -> None:
    apt = FakeApt(failures=1)

    prepare(machine(is_root=True, programs=["apt-get", "setpriv"], apt=apt))

    assert [command[-1] for command in apt.commands][1] == "update"
    assert {"slurmctld", "slurmd", "munge"} <= set(apt.commands[-1])
    assert "util-linux" not in apt.commands[-1]


@pytest.mark.parametrize(
    ("is_root", "programs", "said"),
    [
        (False, list(PACKAGES), "needs root"),
        (False, [], "needs root, and the packages munge slurm-client"),
        (True, [], "there is no apt-get here"),
        (True, ["apt-get"], "Unable to locate package"),
    ],
)
def test_elsewhere_it_is_refused_and_what_is_missing_is_told(
    is_root: bool,  # noqa: FBT001 -- a parameter of the test
    programs: list[str],
    said: str,
) -> None:
    apt = FakeApt(failures=9)

    with pytest.raises(ClusterRefusedError, match=said) as caught:
        prepare(machine(is_root=is_root, programs=programs, apt=apt))

    assert "othing was started" in str(caught.value)


def test_variants_change_what_they_name() -> None:
    layout = Layout(Path("/x"), 1, tuple(range(2, 2 + len(NODES))))
    plain = config_files(layout, ())["slurm.conf"]
    gres = config_files(layout, (Variant.GRES,))

    assert "PreemptType=preempt/partition_prio" in plain
    assert "GraceTime=10" in plain
    shared = config_files(layout, (Variant.SHARED,))["slurm.conf"]
    assert "PartitionName=freetrain" not in shared
    assert "PreemptType=preempt/none" in shared
    assert "Gres=gpu:a100:2" in gres["slurm.conf"]
    assert "NodeName=n8 Name=gpu Type=a100" in gres["gres.conf"]
    memory = config_files(layout, (Variant.MEMORY,))["slurm.conf"]
    assert "OverMemoryKill" in memory
    waits = config_files(layout, (Variant.COMPLETE_WAIT,))
    assert "CompleteWait=20" in waits["slurm.conf"]
    assert "sleep 8" in waits["epilog"]
    tree = config_files(layout, (Variant.TREE,))
    assert "TopologyPlugin=topology/tree" in tree["slurm.conf"]
    assert "SwitchName=rack2 Nodes=n[5-8]" in tree["topology.conf"]
    block = config_files(layout, (Variant.BLOCK,))
    assert "TopologyPlugin=topology/block" in block["slurm.conf"]
    assert "BlockSizes=4,8" in block["topology.conf"]
    assert "Topology" not in plain
