"""Words of a program's command that a launcher would take for its own."""

from __future__ import annotations

import pytest

from freetrain.config.job import StopSignal
from freetrain.launch.base import Tool, plan_world
from freetrain.launch.mpirun import Flavour
from freetrain.launch.starter import parse_orders
from tests.launch.launch_records import job, request

MPIRUN = {flavour: Tool("/mpi/bin/mpirun", flavour) for flavour in Flavour}
COMMAND = ("python", "train.py", "a", ":", "b")


@pytest.mark.parametrize("flavour", [Flavour.OPEN_MPI_5, Flavour.MPICH])
@pytest.mark.parametrize("wanted", [StopSignal.USR2, StopSignal.TERM])
def test_mpirun_never_sees_a_colon_which_begins_another_program(
    flavour: Flavour, wanted: StopSignal
) -> None:
    plan = plan_world(request(job(command=COMMAND, signal=wanted)), MPIRUN[flavour])

    (around,) = (one for one in plan.files if one.path.name == "rank.json")
    orders = parse_orders(around.content)
    assert ":" not in plan.argv
    assert orders.commands[0].argv == COMMAND
    heard = set(orders.hears)
    assert heard == ({plan.stop_signal.name[3:]} if plan.stop_signal else set())


def test_a_colon_inside_a_word_is_nothing_to_mpirun() -> None:
    plan = plan_world(request(job(command=("python", "a:b"))), MPIRUN[Flavour.MPICH])
    assert plan.argv[-2:] == ("python", "a:b")
