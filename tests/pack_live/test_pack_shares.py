"""Shares that growth earns, as the kernel gives them to a pack of real trainers."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from freetrain.errors import BadConfigurationError
from freetrain.pack.cpu_controllers import (
    PREFIX,
    KernelCgroups,
    choose_controller,
    marked_processes,
    own_cgroups,
    this_packer,
    used_s,
    whole_cpus,
)
from freetrain.pack.pack import ControllerName
from freetrain.pack.run import pack_id
from tests.pack.packs import PROGRESS, Stage, staged, until

TRAINS = """
import time
step = 0
while True:
    end_s = time.process_time() + 0.005
    while time.process_time() < end_s:
        pass
    print("step", step, "loss", {loss}, flush=True)
    step += 1
"""
CPUS = {ControllerName.AFFINITY: 2}  # whole ones; the others share one
FLAT = tuple(f"flat{k}" for k in range(9))
"""Trainers whose loss does not fall any more."""
WEIGHT = {
    ControllerName.CGROUP_V1: "cpu.shares",
    ControllerName.CGROUP_V2: "cpu.weight",
}
ENOUGH_S = 1.5


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A pack of one trainer whose loss falls ever quicker, and of nine flat ones."""
    with staged(tmp_path) as found:
        found.job("falls", TRAINS.format(loss="-(1.01**step)"), more=PROGRESS)
        for name in FLAT:
            found.job(name, TRAINS.format(loss="10 if step < 5 else 1"), more=PROGRESS)
        yield found


@pytest.fixture(
    params=[name for name in ControllerName if name is not ControllerName.AUTO]
)
def controller(request: pytest.FixtureRequest) -> ControllerName:
    """A controller that this machine has."""
    name = ControllerName(request.param)
    cpus = sorted(os.sched_getaffinity(0))[: CPUS.get(name, 1)]
    if len(cpus) < CPUS.get(name, 1):
        pytest.skip(f"{name} needs two CPUs to tell members apart")
    try:
        choose_controller(
            name,
            parents=own_cgroups(),
            cgroups=KernelCgroups(),
            packer=this_packer(f"probe{os.getpid()}"),
            cpus=cpus,
        ).close()
    except BadConfigurationError as error:
        pytest.skip(str(error))
    return name


@pytest.mark.long
def test_the_trainer_that_grows_is_given_most_of_the_cpus(
    stage: Stage, controller: ControllerName
) -> None:
    names = ("falls", *FLAT)
    members = ", ".join(f'"{name}.toml"' for name in names)
    stage.start(
        f'members = [{members}]\nmeans = "{controller}"\nsharing = "flowcon"\n'
        'interval = "0.5s"\n'
        f"cpus = {CPUS.get(controller, 1)}\n"
    )
    part = 1 / (2 * len(names))
    expected = dict.fromkeys(names, part) | {"falls": 1 - len(FLAT) * part}
    # The share of the one that grows may pass a half before the others' settle.
    until(lambda: shares(stage) == pytest.approx(expected))
    kept, pids = stage.record(), processes(stage)
    assert kept["means"] == controller
    assert kept["sharing"]["tracks"]
    assert kept["shares"] == pytest.approx(expected)

    begun = {name: used_s((pid,)) for name, pid in pids.items()}
    stopped = dict.fromkeys(names, 0)

    def used() -> dict[str, float]:
        return {name: used_s((pid,)) - begun[name] for name, pid in pids.items()}

    def has_run() -> bool:
        for name, pid in pids.items():
            stopped[name] += is_stopped(pid)
        return sum(used().values()) > ENOUGH_S

    until(has_run)
    assert shares(stage) == kept["shares"]  # no share changed meanwhile
    is_held_by_the_kernel(stage, controller, kept["shares"], pids)
    assert any(stopped.values()) == (controller is ControllerName.DUTY_CYCLE)
    # Weights and turns divide what the machine leaves to the pack: eleven times as much
    # for one, less on a busy machine. A CPU of its own may be busy with other programs,
    # whatever is done here: there only the masks can be held, which they were above.
    if controller is not ControllerName.AFFINITY:
        found = used()
        assert found["falls"] > 2 * max(found[name] for name in FLAT)


def shares(stage: Stage) -> dict[str, float]:
    """The shares that the pack keeps; none before it kept any."""
    return dict(stage.record().get("shares", {}))


def processes(stage: Stage) -> dict[str, int]:
    """The one process of each member."""
    pack = pack_id(stage.run)
    return {
        name: pid for pid, label, name in marked_processes() if label.startswith(pack)
    }


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def is_held_by_the_kernel(
    stage: Stage,
    controller: ControllerName,
    parts: Mapping[str, float],
    pids: Mapping[str, int],
) -> None:
    """Compare *parts* with what the kernel has; of turns it knows nothing."""
    if controller is ControllerName.AFFINITY:
        cpus = sorted(os.sched_getaffinity(0))[:2]
        dealt = {name: set(own) for name, own in whole_cpus(parts, cpus).items()}
        assert dealt["falls"].isdisjoint(dealt["flat0"])
        assert {name: os.sched_getaffinity(pid) for name, pid in pids.items()} == dealt
    elif controller in WEIGHT:
        (parent,) = (p for version, p in own_cgroups() if version is controller)
        (group,) = parent.glob(f"{PREFIX}{pack_id(stage.run)}-*")
        found: dict[str, Any] = {
            name: int((group / name / WEIGHT[controller]).read_text()) for name in parts
        }
        assert found == {name: round(10_000 * part) for name, part in parts.items()}
        for name, pid in pids.items():
            assert str(pid) in (group / name / "cgroup.procs").read_text().split()
