"""Where things are in the state directory; docs/operating.md says the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.elastic.run_dir import RunDir

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.broker.lease import LeaseKey

_PRIVATE = 0o700


def generation_name(generation: int) -> str:
    """Return how files name *generation*: ten digits, so that names sort."""
    return f"{generation:010d}"


def lease_name(key: LeaseKey) -> str:
    """Return how files name a lease."""
    return f"{key.uuid}-{key.task}"


@dataclass(frozen=True, slots=True)
class TrainerDir:
    """The folder of one trainer.

    Attributes:
        path: The folder itself.
    """

    path: Path

    @property
    def job(self) -> Path:
        """Its job file, canonical, as submitted."""
        return self.path / "job.toml"

    @property
    def environment(self) -> Path:
        """The variables of whoever submitted it, JSON."""
        return self.path / "environment.json"

    @property
    def assignments(self) -> Path:
        """One file a generation."""
        return self.path / "assignments"

    @property
    def endings(self) -> Path:
        """One file for each generation that is over."""
        return self.path / "endings"

    @property
    def notices(self) -> Path:
        """One file for each lease that must leave a generation."""
        return self.path / "notices"

    @property
    def logs(self) -> Path:
        """What its worlds print, unless job.toml names another folder."""
        return self.path / "logs"

    @property
    def run(self) -> RunDir:
        """Its run directory, unless job.toml names another."""
        return RunDir(self.path / "run")

    def assignment(self, generation: int) -> Path:
        """The file that says which leases make up *generation*."""
        return self.assignments / f"{generation_name(generation)}.json"

    def ending(self, generation: int) -> Path:
        """The file that says that, and how, *generation* is over."""
        return self.endings / f"{generation_name(generation)}.json"

    def notice(self, generation: int, key: LeaseKey) -> Path:
        """The file whose being there says that a lease leaves *generation*."""
        return self.notices / f"{generation_name(generation)}.{lease_name(key)}"

    def world(self, generation: int) -> Path:
        """The folder of what the launcher of *generation* needs: hostfile, agent."""
        return self.path / "worlds" / generation_name(generation)

    def create(self) -> None:
        """Create the folders that are missing, open to their owner only.

        Raises:
            OSError: They cannot be created.
        """
        folders = (self.assignments, self.endings, self.notices, self.logs)
        for folder in (self.path, *folders, self.path / "worlds"):
            folder.mkdir(parents=True, exist_ok=True, mode=_PRIVATE)


@dataclass(frozen=True, slots=True)
class LeaseDir:
    """The folder of one lease; its agent alone writes there.

    Attributes:
        path: The folder itself.
    """

    path: Path

    @property
    def heartbeat(self) -> Path:
        """What the agent says of itself, anew every few seconds."""
        return self.path / "heartbeat.json"

    @property
    def log(self) -> Path:
        """What the agent did, a line each."""
        return self.path / "agent.log"

    @property
    def spare(self) -> Path:
        """Names the trainer whose spare waits on the lease's node; missing for none."""
        return self.path / "spare"

    @property
    def spare_log(self) -> Path:
        """What spares print before they join."""
        return self.path / "spare.log"

    def create(self) -> None:
        """Create the folder, open to its owner only.

        Raises:
            OSError: It cannot be created.
        """
        self.path.mkdir(parents=True, exist_ok=True, mode=_PRIVATE)


@dataclass(frozen=True, slots=True)
class StateDir:
    """The state directory, which login nodes and compute nodes share.

    Attributes:
        path: The folder itself.
    """

    path: Path

    @property
    def trainers(self) -> Path:
        """One folder a trainer."""
        return self.path / "trainers"

    @property
    def past(self) -> Path:
        """Folders of trainers whose names were used again."""
        return self.path / "past"

    @property
    def leases(self) -> Path:
        """One folder a lease."""
        return self.path / "leases"

    @property
    def lease_script(self) -> Path:
        """The batch script of leases."""
        return self.path / "lease.sh"

    @property
    def outputs(self) -> Path:
        """What batch scripts print: nothing, where all is well."""
        return self.path / "outputs"

    @property
    def evidence(self) -> Path:
        """Answers of Slurm's that could not be read."""
        return self.path / "evidence"

    @property
    def log(self) -> Path:
        """One line a tick."""
        return self.path / "tick.log"

    @property
    def page(self) -> Path:
        """What the last tick saw, did and why; JSON."""
        return self.path / "page.json"

    @property
    def metrics(self) -> Path:
        """The same in numbers, in the text format of Prometheus."""
        return self.path / "metrics.prom"

    def trainer(self, name: str) -> TrainerDir:
        """The folder of the trainer *name*, a checked name (``toml.kind``)."""
        return TrainerDir(self.trainers / name)

    def lease(self, key: LeaseKey) -> LeaseDir:
        """The folder of one lease."""
        return LeaseDir(self.leases / lease_name(key))
