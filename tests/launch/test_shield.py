"""What keeps Slurm's TERM from MPI's daemons, which end a world by it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from freetrain.launch.base import Tool, plan_world
from freetrain.launch.mpirun import Flavour
from tests.launch.launch_records import job, request


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="no bash: nothing blocks")
def test_a_daemon_begins_with_term_blocked_whatever_sh_is(tmp_path: Path) -> None:
    plan = plan_world(
        request(job(), python=sys.executable), Tool("mpirun", Flavour.OPEN_MPI_5)
    )
    (node,) = (one for one in plan.files if one.path.name == "node")
    script = tmp_path / "node"
    script.write_text(node.content)

    status = "A='a b'; export A; exec cat /proc/self/status"
    said = subprocess.run(  # noqa: S603 -- our own script
        ["/bin/sh", str(script), status], check=True, capture_output=True, text=True
    ).stdout

    (blocked,) = (line for line in said.splitlines() if line.startswith("SigBlk:"))
    assert int(blocked.split()[1], 16) & 1 << signal.SIGTERM - 1
