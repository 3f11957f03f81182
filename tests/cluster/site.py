"""A real cluster as a test sees it: our back end, and somebody else's jobs."""

import os
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from uuid import uuid4

from slurm.backend import CommandLine, SlurmBackend
from slurm.batch import LeaseRequest
from slurm.holes import Hole, Snapshot, find_holes
from slurm.records import JobRecord, Requirement
from slurm.runner import SubprocessRunner
from tests.cluster.cluster import Cluster
from tests.cluster.waiting import wait_for

OTHER_USER = "games"  # 26.05 refuses nobody by name
LEASES = "freetrain-test-lease"


@dataclass(frozen=True, slots=True)
class Site:
    """One cluster; leases go to *partition*, scripts and their files to *folder*."""

    cluster: Cluster
    folder: Path
    partition: str

    def backend(self) -> CommandLine:
        return CommandLine(SubprocessRunner(self.cluster.environ))

    def script(self, body: str) -> str:
        path = self.folder / f"script-{uuid4()}"
        # Jobs get no environment of ours; their srun must be this cluster's.
        search = quote(self.cluster.environ.get("PATH", os.defpath))
        text = f"#!/bin/sh\nexport PATH={search}\n{body}\n"
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    def others_job(self, nodes: int, minutes: int, *options: str) -> int:
        """Submit a job of somebody else to the main partition."""
        words = (f"--uid={OTHER_USER}", "--partition=main", "--chdir=/", "--parsable")
        size = (f"--nodes={nodes}", f"--time={minutes}", "--output=/dev/null")
        script = self.script("exec sleep 3600")
        return int(self.cluster.run("sbatch", *words, *size, *options, script))

    def others_running_job(self, nodes: int, minutes: int, *options: str) -> JobRecord:
        """Submit a job of somebody else and return it once it runs."""
        return self.wait_for_running(self.others_job(nodes, minutes, *options))

    def wait_for_running(self, *job_ids: int) -> JobRecord:
        """Return the first of these jobs that holds nodes, once one does."""

        def look() -> JobRecord | None:
            jobs = self.backend().snapshot().jobs
            asked = (job for job in jobs if job.job_id in job_ids)
            return next((job for job in asked if job.holds_nodes), None)

        return wait_for(f"one of the jobs {job_ids} to run", look)

    def lease(
        self, script: str, *, tasks: int = 1, minutes: int = 2, nice: int = 10_000
    ) -> LeaseRequest:
        return LeaseRequest(
            name=LEASES,
            comment="",
            partition=self.partition,
            limit_min=minutes,
            nice=nice,
            script=script,
            tasks=tasks,
        )

    def holes(
        self,
        look: Snapshot,
        asked: Requirement | None = None,
        *,
        margin_s: float = 0.0,
    ) -> tuple[Hole, ...]:
        """Return the holes for leases of *asked*; without it, of whole nodes."""
        config = self.backend().config()
        return find_holes(
            look,
            asked or Requirement(partition=self.partition),
            is_ours=is_ours,
            margin_s=margin_s,
            sharing=config.sharing,
        )

    def whole_look_with_plan(self, job_id: int) -> tuple[Snapshot, JobRecord]:
        """Return a look that backfill did not overlap, and *job_id* with its plan."""
        backend = self.backend()

        def look() -> tuple[Snapshot, JobRecord] | None:
            seen = backend.snapshot()
            planned = (j for j in seen.jobs if j.job_id == job_id and j.is_planned)
            job = None if seen.is_torn else next(planned, None)
            return None if job is None else (seen, job)

        return wait_for(f"a whole look with a plan for job {job_id}", look)


def whole_look(backend: SlurmBackend) -> Snapshot:
    """Return a look that no backfill cycle overlapped."""

    def look() -> Snapshot | None:
        seen = backend.snapshot()
        return None if seen.is_torn else seen

    return wait_for("a look between two cycles", look)


def is_ours(job: JobRecord) -> bool:
    return job.name == LEASES
