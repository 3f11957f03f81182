"""A state directory on a real cluster, and ticks over both."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from freetrain.config.document import BaseFolders
from freetrain.config.job import TrainerJob, parse_job, render_job
from freetrain.config.site import LeaseSettings, PlannerSettings, Site
from freetrain.state.database import open_store, transaction
from freetrain.state.files import StateDir, render_environment
from freetrain.state.tables import TrainerRow, TrainerState, put_trainers, trainers
from freetrain.tick.environment import real_environment
from freetrain.tick.status_report import StatusReport
from freetrain.tick.tick import tick
from tests.cluster.cluster import Cluster
from tests.cluster.waiting import PATIENCE_S, wait_for


class LiveBroker:
    """A state directory, and ticks on a cluster.

    Trainers get all their nodes at once, or try sizes with *profile*.
    """

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        *,
        partition: str = "freetrain",
        profile: bool = False,
    ) -> None:
        self.cluster = cluster
        self.folder = StateDir(folder)
        self.site = Site(
            planner=PlannerSettings(profile=profile),
            state_directory=folder,
            lease=LeaseSettings(partition=partition, longest_s=600.0),
        )
        self.environment = real_environment(cluster.environ)

    def tick(self) -> StatusReport:
        return tick(self.site, self.environment).status

    def submit(self, most: int) -> None:
        self._submit("true", f"min = {most}\nmax = {most}")

    def submit_a_sleeper(self, most: int) -> None:
        """Submit a program that does nothing, on as many nodes as there are.

        It needs no MPI: mpirun refuses to run as root, and a trainer that fails three
        times gives its leases back.
        """
        launch = '[launch]\nlauncher = "custom"\ncommand = ["env"]'
        more = f"elastic = false\n{launch}"
        self._submit("sleep 600", f"max = {most}", more=more)

    def _submit(self, command: str, nodes: str, *, more: str = "") -> None:
        text = f'name = "a"\ncommand = "{command}"\n{more}\n[nodes]\n{nodes}'
        job = parse_job(text.encode(), path="job.toml", places=BaseFolders(Path("/")))
        self.submit_job(job)

    def submit_job(self, job: TrainerJob) -> None:
        """Do what ``freetrain submit`` does."""
        self.folder.path.mkdir(mode=0o700, exist_ok=True)
        folder = self.folder.trainer(job.name)
        folder.create()
        folder.job.write_text(render_job(job), encoding="utf-8")
        folder.environment.write_bytes(render_environment(os.environ))
        run_dir = str(folder.run.path)
        state = TrainerState.WANTED
        self.put(TrainerRow(job.name, render_job(job), run_dir, state, 1.0, 1.0))

    def put(self, row: TrainerRow) -> None:
        with open_store(self.folder.path, uid=os.getuid()) as state, transaction(state):
            put_trainers(state, [row])

    def pause(self, name: str) -> None:
        with open_store(self.folder.path, uid=os.getuid()) as state:
            (row,) = (one for one in trainers(state) if one.name == name)
        self.put(replace(row, state=TrainerState.PAUSED))

    def ticks_until(
        self,
        what: str,
        happened: Callable[[StatusReport], object],
        *,
        limit_s: float = PATIENCE_S,
        pause_s: float = 0.05,
    ) -> StatusReport:
        def look() -> StatusReport | None:
            page = self.tick()
            return page if happened(page) else None

        return wait_for(what, look, limit_s=limit_s, pause_s=pause_s)

    def until_leased(self, count: int) -> StatusReport:
        """Tick until so many leases run and their agents beat."""

        def are_up(page: StatusReport) -> bool:
            up = [lease for lease in page.leases if not lease.is_silent]
            return sum(lease.state == "running" for lease in up) == count

        return self.ticks_until(f"{count} leases", are_up)
