"""The real cluster by way of pyslurm, where there is one that fits."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from slurm.backend import CommandLine
from slurm.pyslurm import Pyslurm, find_pyslurm
from slurm.runner import SubprocessRunner

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from slurm.backend import SlurmBackend
    from tests.cluster.cluster import Cluster

USER = pwd.getpwuid(os.getuid()).pw_name


@dataclass(frozen=True, slots=True)
class PyslurmWorld:
    """A real cluster, and the pyslurm that fits it.

    Attributes:
        cluster: The cluster.
        module: pyslurm.
    """

    cluster: Cluster
    module: ModuleType

    @property
    def programs(self) -> CommandLine:
        """The same cluster by Slurm's programs."""
        return CommandLine(SubprocessRunner(self.cluster.environ), user=USER)

    def connect(self, max_requests: int | None) -> SlurmBackend:
        """Make a back end, with a cap on its requests or None."""
        runner = SubprocessRunner(self.cluster.environ)
        programs = CommandLine(runner, user=USER, max_requests=max_requests)
        return Pyslurm(self.module, programs)


@pytest.fixture
def pyslurm_world(
    cluster_of: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> PyslurmWorld:
    """Skips, with the reason, where no pyslurm fits the cluster's Slurm."""
    cluster = cluster_of()
    # libslurm reads it when pyslurm is first imported, and never again
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    world = PyslurmWorld(cluster, os)
    module, reason = find_pyslurm(world.programs.release())
    if module is None:
        pytest.skip(reason)
    return PyslurmWorld(cluster, module)
