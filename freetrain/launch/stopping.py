"""Which signal asks a world to stop: the one that its launcher passes on.

Seen with Open MPI 4.1.4 and 5.0.11: mpirun passes USR2 on within 0.01 s; by TERM,
INT, HUP and QUIT it ends its ranks. MPICH 4.0.2: mpiexec passes TERM, INT and QUIT on;
USR2 and HUP end it.
"""

from __future__ import annotations

from signal import Signals
from typing import TYPE_CHECKING

from freetrain.jobfile.job import StopSignal
from freetrain.launch.starter import Command, Orders, render_orders

if TYPE_CHECKING:
    from collections.abc import Collection

    from freetrain.jobfile.job import TrainerJob
    from freetrain.launch.request import WorldRequest

# In this order of liking. The contract has TERM for every elastic program.
_LIKED = (StopSignal.USR2, StopSignal.TERM)


def asked_by(job: TrainerJob, passed_on: Collection[StopSignal]) -> Signals | None:
    """Return the signal for a launcher that passes on those of *passed_on*.

    An elastic program that none of them would reach has its control file.
    """
    if job.stop.signal in passed_on:
        return _number(job.stop.signal)
    if job.elastic:
        return Signals.SIGTERM if StopSignal.TERM in passed_on else None
    return next((_number(one) for one in _LIKED if one in passed_on), None)


def must_translate(job: TrainerJob, passed_on: Collection[StopSignal]) -> bool:
    """Tell whether ranks get another signal than the one that the program wants."""
    return not job.elastic and job.stop.signal not in passed_on


def around_rank(request: WorldRequest, hears: Signals | None) -> str:
    """Return the orders of a starter around each rank that passes on what it wants.

    The contract has each signal do for an elastic program.
    """
    return render_orders(
        Orders(
            commands=(Command(request.command),),
            hears=() if hears is None else (hears.name.removeprefix("SIG"),),
            sends=str(request.job.stop.signal),
            has_groups=True,
        )
    )


def _number(name: StopSignal) -> Signals:
    return Signals[f"SIG{name}"]
