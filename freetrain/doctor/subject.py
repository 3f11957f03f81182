"""What is examined, and all that doing so takes from outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from freetrain.cron.programs import Programs
    from freetrain.site.settings import Site
    from slurm.backend import SlurmBackend
    from slurm.runner import Runner


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Subject:
    """A user's FreeTrain on a cluster.

    Attributes:
        site: Its configuration.
        environ: The user's variables.
        uid: The user's number.
        python: The Python that has us, absolute.
        programs: Finds and runs programs other than Slurm's.
        runner: Runs Slurm's programs, in a scrubbed environment.
        backend: Slurm, as the tick asks it.
        now_s: Unix time of this host.
        clock: Seconds from any moment on.
        sleep: Waits so many seconds.
        new_uuid: Makes up a name that no other job has.
        may_run: Whether a job may be run.
    """

    site: Site
    environ: Mapping[str, str]
    uid: int
    python: Path
    programs: Programs
    runner: Runner
    backend: SlurmBackend
    now_s: Callable[[], float]
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    new_uuid: Callable[[], str]
    may_run: bool = True
