"""Where a cluster is refused, what is installed, and which daemons live."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.cluster.machine import (
    PACKAGES,
    ClusterRefusedError,
    Machine,
    plugin_folder,
    prepare,
    programs_of,
    write_programs,
)
from tests.cluster.processes import is_running, mentioning, remove_unused
from tests.cluster.settings import NODES, Layout, Variant, config_files
from tests.cluster.waiting import wait_for


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


LOADER = "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
PROGRAMS = ("sbatch", "scancel", "scontrol", "sdiag", "sinfo", "squeue", "srun")


def test_without_a_release_the_installed_one_is_meant() -> None:
    assert programs_of("", {}) is None
    assert plugin_folder(None) is None


def test_a_release_that_nobody_packages_is_refused_with_those_there_are(
    tmp_path: Path,
) -> None:
    with pytest.raises(ClusterRefusedError, match=r"only 24\.11 and 26\.05"):
        programs_of("25.05", {"XDG_CACHE_HOME": str(tmp_path)})

    assert list(tmp_path.iterdir()) == []


def test_programs_are_started_by_their_own_loader_with_their_own_libraries(
    tmp_path: Path,
) -> None:
    root = tmp_path / "a debian"
    daemons = ("slurmctld-wlm", "slurmd-wlm", "slurmstepd-wlm", "slurmdbd")
    for name in (*daemons, "sacctmgr", *PROGRAMS):
        folder = root / ("usr/sbin" if name in daemons else "usr/bin")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    loader = root / LOADER
    (loader.parent / "slurm-wlm").mkdir(parents=True)
    loader.write_text('#!/bin/sh\nfor word; do echo "$word"; done\n')
    loader.chmod(0o755)

    write_programs(root)

    programs = root / "programs"
    slurmd = str(programs / "slurmd")
    done = subprocess.run([slurmd, "-N", "a b"], capture_output=True, check=True)  # noqa: S603
    libraries = f"{loader.parent}:{loader.parent}/slurm-wlm"
    own = ["--argv0", slurmd, "--library-path", libraries]
    told = done.stdout.decode().splitlines()
    assert told == [*own, f"{root}/usr/sbin/slurmd-wlm", "-N", "a b"]
    assert plugin_folder(programs) == loader.parent / "slurm-wlm"
    assert {path.name for path in programs.iterdir()} > set(PROGRAMS)


def test_a_cluster_of_another_release_has_its_plugins_and_no_cgroups() -> None:
    layout = Layout(Path("/x"), 1, tuple(range(2, 2 + len(NODES))))

    files = config_files(layout, (), plugins=Path("/cache/slurm-wlm"))

    assert files["slurm.conf"].endswith("PluginDir=/cache/slurm-wlm\n")
    assert files["cgroup.conf"] == "CgroupPlugin=disabled\n"
    assert "PluginDir" not in config_files(layout, ())["slurm.conf"]


KERNEL_THREAD = 2
"""Lives, and has no command line, like a process in the middle of its exec."""


@pytest.fixture
def zombie() -> Iterator[int]:
    """A process that has ended and that nobody has asked about."""
    pid = os.posix_spawn("/bin/true", ["true"], {})
    stat = Path(f"/proc/{pid}/stat")
    wait_for("a zombie", lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z")
    yield pid
    os.waitpid(pid, 0)


def pid_file(folder: Path, pid: int) -> Path:
    path = folder / "daemon.pid"
    path.write_text(str(pid), encoding="ascii")
    return path


def test_one_that_has_ended_does_not_run(tmp_path: Path, zombie: int) -> None:
    assert not is_running(pid_file(tmp_path, zombie), folder=tmp_path)


def test_somebody_elses_process_is_not_the_daemon(tmp_path: Path) -> None:
    assert not is_running(pid_file(tmp_path, os.getpid()), folder=tmp_path / "x")


def test_one_in_the_middle_of_its_exec_runs(tmp_path: Path) -> None:
    command = Path(f"/proc/{KERNEL_THREAD}/cmdline")
    if not command.exists() or command.read_bytes():
        pytest.skip("no kernel thread is to be seen here")

    assert is_running(pid_file(tmp_path, KERNEL_THREAD), folder=tmp_path)


def test_a_folder_is_removed_once_no_process_has_it_in_words_or_variables(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "state"
    late = "sleep 1; mkdir -p $STATE/late"
    with subprocess.Popen(["/bin/sh", "-c", late], env={"STATE": str(folder)}) as job:  # noqa: S603 -- a test's own words
        folder.mkdir()
        wait_for("its process", lambda: job.pid in mentioning(str(folder)))

        remove_unused(folder)

        assert job.wait(10) == 0
    assert not folder.exists()
