"""One fragment of a pack: begun, run and ended as elastic programs are."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from signal import SIGKILL
from typing import TYPE_CHECKING

from freetrain.elastic.ahead import wait_for_predecessor
from freetrain.elastic.end import fail
from freetrain.elastic.launch import read_launch
from freetrain.elastic.outcome import Ending, Outcome, write_outcome
from freetrain.elastic.run_dir import RunDir
from freetrain.elastic.setting import Setting
from freetrain.elastic.stop import Stop, StopFile, StopSignals
from freetrain.elastic.store import CheckpointStore
from freetrain.elastic.world import LoneWorld
from freetrain.pack.cgroup import groups_where, remove_group
from freetrain.pack.cgroup_place import own_places
from freetrain.pack.choose import choose
from freetrain.pack.crew import KILLED_WITHIN_S, Crew, Node
from freetrain.pack.file import read_pack
from freetrain.pack.folders import KernelFolders
from freetrain.pack.intake import Files
from freetrain.pack.loop import Loop
from freetrain.pack.processes import left_behind, tell, this_packer
from freetrain.pack.record import End, read_record
from freetrain.pack.sharing import sharing_of
from freetrain.pack.tries import how_it_failed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from freetrain.elastic.clock import Clock
    from freetrain.pack.pack import Pack
    from freetrain.pack.processes import Packer

DEFAULT_RUN_DIR = "freetrain-run"


class MembersFailedError(Exception):
    """Members failed; the others are over."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """One launch of a pack.

    Attributes:
        pack: What its user wrote.
        setting: What it works with.
        generation: Its number.
        environment: This process' variables.
        say: Where it tells people how it goes.
    """

    pack: Pack
    setting: Setting
    generation: int
    environment: Mapping[str, str]
    say: Callable[[str], None]


def run_pack(
    path: Path,
    environment: Mapping[str, str],
    *,
    clock: Clock,
    say: Callable[[str], None],
) -> Ending:
    """Run the pack of the file at *path* until it is over or is asked to stop.

    Writes the outcome, as docs/training-program.md has it. Call it on the main
    thread, where Python lets signals be handled.

    Args:
        path: The pack file, absolute.
        environment: This process' variables.
        clock: The clocks to go by.
        say: Where it tells people how it goes.

    Raises:
        LaunchError: The launch is wrong; nothing was started.
        FreeTrainError: The pack or a job file is wrong; nothing was started.
        MembersFailedError: Members failed. Those that did not are over.
    """
    launch = read_launch(environment)
    run = RunDir(Path(launch.run_dir or DEFAULT_RUN_DIR).absolute())
    setting = Setting(launch, run, 0.0, 0.0, clock)
    signals = StopSignals(launch.stop_signals)
    try:
        pack = read_pack(path, home=_home(environment))
        stop, why = wait_for_predecessor(setting, LoneWorld(), signals)
        generation = launch.generation or run.newest_generation() + 1
        fragment = Fragment(pack, setting, generation, environment, say)
        if stop:
            given_up = stop is Stop.FOR_GOOD
            ending = Ending.DO_NOT_RESTART if given_up else Ending.RESCALED
            return _end(fragment, ending, why)
        # From now on a failure is this generation's.
        setting = replace(setting, launch=replace(launch, generation=generation))
        CheckpointStore(run, generation=generation).claim()
        return _end(fragment, _run(fragment, signals), "")
    except BaseException as error:
        fail(setting, None, None, error)
        raise
    finally:
        signals.ignore()


def _run(fragment: Fragment, signals: StopSignals) -> Ending:
    run, clock = fragment.setting.run, fragment.setting.clock
    file = StopFile(run.stop_request(fragment.generation), clock=clock)
    home = _home(fragment.environment)
    intake = Files(fragment.pack, home=home, say=fragment.say)
    node, record = _node(fragment), read_record(run)
    loop = Loop(
        fragment.pack,
        node,
        crew=Crew(node),
        intake=intake,
        sharing=sharing_of(fragment.pack, record.sharing),
        record=record,
        say=fragment.say,
    )

    def is_superseded() -> bool:
        with suppress(OSError):
            return run.newest_generation() > fragment.generation
        return False

    is_over = loop.run(lambda: signals.came or file.is_there() or is_superseded())
    if is_superseded():
        return Ending.SUPERSEDED
    failed = [
        f"{name} {how_it_failed(line)}"
        for name, line in record.members.items()
        if line.end == End.FAILED
    ]
    if is_over and failed:
        raise MembersFailedError(f"{'; '.join(failed)}. Their logs are in {run.path}")
    return Ending.FINISHED if is_over else Ending.RESCALED


def _home(environment: Mapping[str, str]) -> Path | None:
    home = environment.get("HOME")
    return Path(home) if home else None


def _node(fragment: Fragment) -> Node:
    run = fragment.setting.run
    packer = this_packer(pack_id(run))
    cpus = sorted(os.sched_getaffinity(0))[: fragment.pack.cpus]
    os.sched_setaffinity(0, cpus)  # members inherit it
    sweep(packer, fragment.setting.clock)
    means = choose(
        fragment.pack.means,
        places=own_places(),
        folders=KernelFolders(),
        packer=packer,
        cpus=cpus,
    )
    fragment.say(f"sharing {len(cpus)} CPUs by {means.name}")
    return Node(
        run=run,
        generation=fragment.generation,
        packer=packer,
        means=means,
        cpus=len(cpus),
        environment=fragment.environment,
        clock=fragment.setting.clock,
    )


def pack_id(run: RunDir) -> str:
    """Return what tells the pack of *run* from all others, the same at each start."""
    return sha256(os.fsencode(run.path)).hexdigest()[:16]


def sweep(packer: Packer, clock: Clock) -> None:
    """End what earlier packers of this pack left on this node, and did not end."""
    until_s = clock.elapsed_s() + KILLED_WITHIN_S
    while (left := left_behind(packer)) and clock.elapsed_s() < until_s:
        tell(left, SIGKILL)
        clock.sleep(0.01)
    folders = KernelFolders()
    for place in own_places():
        for group in groups_where(place, folders, packer.has_left):
            remove_group(folders, group, kills=True)


def _end(fragment: Fragment, ending: Ending, message: str) -> Ending:
    # What members have done is for each of them to commit.
    lines = read_record(fragment.setting.run).members.values()
    steps = sum(line.steps for line in lines)
    with suppress(OSError):  # the launcher has the exit code to go by
        write_outcome(
            fragment.setting.run,
            Outcome(
                ending=ending,
                generation=fragment.generation,
                step=steps,
                committed_step=steps,
                message=message,
                t=fragment.setting.clock.unix_s(),
            ),
        )
    return ending
