"""All checks, in the order in which one understands them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.doctor import slurm_checks
from freetrain.doctor.finding import Check, skipped
from freetrain.doctor.mpi_checks import look_at_mpi
from freetrain.doctor.one_step import run_one_step
from freetrain.doctor.python_checks import look_at_python
from freetrain.doctor.state_checks import look_at_state
from freetrain.doctor.tick_checks import look_at_ticks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.doctor.finding import Finding
    from freetrain.doctor.slurm_checks import Seen
    from freetrain.doctor.subject import Subject


def examine(subject: Subject) -> Iterator[Finding]:
    """Yield what all checks find, each as soon as it is known."""
    yield from Check("FreeTrain", look_at_python).findings()
    yield from Check("state directory", lambda: look_at_state(subject)).findings()
    yield from Check("MPI", lambda: look_at_mpi(subject)).findings()
    yield from Check("ticks", lambda: look_at_ticks(subject)).findings()
    yield from _slurm(subject)


def _slurm(subject: Subject) -> Iterator[Finding]:
    programs = Check("Slurm", lambda: slurm_checks.look_at_programs(subject))
    yield from programs.findings()
    if not slurm_checks.has_slurm(subject):
        yield skipped("cluster", "there is no Slurm here to ask")
        return
    told: list[Seen] = []

    def look() -> Iterator[Finding]:
        told.append(slurm_checks.look(subject))
        yield from slurm_checks.look_at_cluster(subject, told[0])
        yield slurm_checks.look_at_json(subject)
        yield from slurm_checks.look_at_rights(subject, told[0])

    yield from Check("cluster", look).findings()
    seen = told[0] if told else None
    step = Check("one-step run", lambda: run_one_step(subject, seen))
    yield from step.findings()
