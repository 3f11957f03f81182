"""All checks of ``freetrain doctor``, in the order in which one needs the last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.doctor import cluster
from freetrain.doctor.findings import UNAVAILABLE, bad, skipped
from freetrain.doctor.host import (
    look_at_mpi,
    look_at_python,
    look_at_state,
    look_at_ticks,
)
from freetrain.doctor.test_job import run_one_step
from freetrain.errors import FreeTrainError
from slurm.errors import SlurmError, SlurmUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from freetrain.doctor.cluster import Observation
    from freetrain.doctor.findings import Finding, Subject


def examine(subject: Subject) -> Iterator[Finding]:
    """Yield what all checks find, each as soon as it is known."""
    yield from findings_of("FreeTrain", look_at_python)
    yield from findings_of("state directory", lambda: look_at_state(subject))
    yield from findings_of("MPI", lambda: look_at_mpi(subject))
    yield from findings_of("ticks", lambda: look_at_ticks(subject))
    yield from _slurm(subject)


def _slurm(subject: Subject) -> Iterator[Finding]:
    yield from findings_of("Slurm", lambda: cluster.look_at_programs(subject))
    if not cluster.has_slurm(subject):
        yield skipped("cluster", "there is no Slurm here to ask")
        return
    seen: list[Observation] = []

    def look() -> Iterator[Finding]:
        seen.append(cluster.observe(subject))
        yield from cluster.look_at_cluster(subject, seen[0])
        yield cluster.look_at_json(subject)
        yield from cluster.look_at_rights(subject, seen[0])

    yield from findings_of("cluster", look)
    last = seen[0] if seen else None
    yield from findings_of("one-step run", lambda: run_one_step(subject, last))


def findings_of(name: str, look: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield what *look* finds; a failure is a finding called *name*, and ends it."""
    try:
        yield from look()
    except SlurmUnavailableError as error:
        yield bad(name, str(error), "", exit_code=UNAVAILABLE)
    except FreeTrainError as error:
        yield bad(name, str(error), "", exit_code=error.exit_code)
    except (SlurmError, OSError, ValueError) as error:
        yield bad(name, str(error), "")
