"""Other releases of Slurm: where they are refused, and what is made of a Debian."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cluster.machine import ClusterRefusedError
from tests.cluster.releases import plugin_folder, programs_of, write_programs
from tests.cluster.settings import NODES, Layout, config_files

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
    for name in ("slurmctld-wlm", "slurmd-wlm", "slurmstepd-wlm", *PROGRAMS):
        folder = root / ("usr/sbin" if name.endswith("-wlm") else "usr/bin")
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
