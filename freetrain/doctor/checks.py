"""All checks of ``freetrain doctor``, in the order in which one needs the last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.doctor import cluster
from freetrain.doctor.findings import Check, skipped
from freetrain.doctor.host import (
    look_at_mpi,
    look_at_python,
    look_at_state,
    look_at_ticks,
)
from freetrain.doctor.test_job import run_one_step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.doctor.cluster import Observation
    from freetrain.doctor.findings import Finding, Subject


def examine(subject: Subject) -> Iterator[Finding]:
    """Yield what all checks find, each as soon as it is known."""
    yield from Check("FreeTrain", look_at_python).findings()
    yield from Check("state directory", lambda: look_at_state(subject)).findings()
    yield from Check("MPI", lambda: look_at_mpi(subject)).findings()
    yield from Check("ticks", lambda: look_at_ticks(subject)).findings()
    yield from _slurm(subject)


def _slurm(subject: Subject) -> Iterator[Finding]:
    programs = Check("Slurm", lambda: cluster.look_at_programs(subject))
    yield from programs.findings()
    if not cluster.has_slurm(subject):
        yield skipped("cluster", "there is no Slurm here to ask")
        return
    seen: list[Observation] = []

    def look() -> Iterator[Finding]:
        seen.append(cluster.observe(subject))
        yield from cluster.look_at_cluster(subject, seen[0])
        yield cluster.look_at_json(subject)
        yield from cluster.look_at_rights(subject, seen[0])

    yield from Check("cluster", look).findings()
    last = seen[0] if seen else None
    step = Check("one-step run", lambda: run_one_step(subject, last))
    yield from step.findings()
