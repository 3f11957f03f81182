"""A pack in leases: real agents and trainings, and a stand-in for Slurm."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from freetrain.standin.installing import at_work, install
from freetrain.standin.records import Job
from tests.pack.leased import leased_pack, loses_its_lease_and_goes_on, now_s

if TYPE_CHECKING:
    from pathlib import Path


def test_members_of_a_pack_lose_nothing_with_a_lease(tmp_path: Path) -> None:
    slurm = tmp_path / "slurm"
    slurm.mkdir()
    with at_work(install(slurm, now_s=now_s())) as standin:

        def take_away(node: str) -> None:
            theirs = Job(
                job_id=0,
                name="theirs",
                user="others",
                partition="main",
                limit_s=3_600.0,
                submit_s=now_s(),
                due_s=now_s(),
                wanted=[node],
                run_s=600.0,
            )
            standin.add([theirs])

        path = f"{standin.path}:{os.environ.get('PATH', '')}"
        environ = {**os.environ, "PATH": path}
        pack = leased_pack(tmp_path, environ, longest_s=240.0)
        loses_its_lease_and_goes_on(pack, take_away)
