"""The command that a lease runs: the agent, and the sweep after it."""

from __future__ import annotations

import math
import os
import re
import socket
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

from freetrain.agent.agent import Agent, OwnLease
from freetrain.agent.board import Board, Listing
from freetrain.agent.environment import (
    Environment,
    Journal,
    Node,
    PreemptionListener,
    unix_s,
)
from freetrain.agent.observation import PATIENCE_VARIABLE, read_patience
from freetrain.broker.lease import LeaseKey
from freetrain.errors import FreeTrainError, UsageError
from freetrain.launch.local import LocalLauncher, this_node
from freetrain.state.files import AgentState, StateDir
from slurm.backend import CommandLine
from slurm.records import JobKey
from slurm.runner import (
    SubprocessRunner,
    scrubbed,
    user_name,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from freetrain.agent.observation import Patience

USAGE = """\
usage: python -m freetrain.agent STATE_DIR UUID TASK LIMIT_MIN GRACE_S
       python -m freetrain.agent sweep STATE_DIR UUID TASK
"""
LAUNCH_AGENT = "FREETRAIN_LAUNCH_AGENT"
"""Names the site's own launch agent, if it has one."""

TO_SWEEP = 75
"""The exit status of an agent that could not end everything of its lease."""

_UUID = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
_SLURM_TIMEOUT_S = 10.0
_ARGUMENTS = {"run": 5, "sweep": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The arguments of the command line.

    Attributes:
        state: The state directory.
        key: The lease.
        limit_s: Its time limit; 0 for a sweep.
        grace_s: How long it has from Slurm's notice to the kill.
        is_sweep: Whether only its processes that are left are to be ended.
    """

    state: StateDir
    key: LeaseKey
    limit_s: float = 0.0
    grace_s: float = 0.0
    is_sweep: bool = False


def main(argv: Sequence[str]) -> int:
    """Do what *argv* says, in this process' environment; return the exit status."""
    if argv and argv[0] in {"-h", "--help"}:
        sys.stdout.write(USAGE)
        return 0
    try:
        call = read_call(argv)
        patience = read_patience(os.environ.get(PATIENCE_VARIABLE, ""))
        if call.is_sweep:
            _sweep(call, patience)
        elif not _run(call, patience):
            return TO_SWEEP
    except FreeTrainError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except OSError as error:
        sys.stderr.write(
            f"error: {error}. The agent did not start, and its lease is given back; "
            f"make the state directory readable and writable on compute nodes.\n"
        )
        return 73
    return 0


def read_call(argv: Sequence[str]) -> Call:
    """Return the arguments of the command line.

    Raises:
        UsageError: They make no sense.
    """
    is_sweep = bool(argv) and argv[0] == "sweep"
    words = argv[1:] if is_sweep else argv
    if len(words) != _ARGUMENTS["sweep" if is_sweep else "run"]:
        raise _wrong("the number of arguments is wrong")
    folder, uuid, task, *times = words
    if not Path(folder).is_absolute():
        raise _wrong(f"STATE_DIR {folder[:80]!r} is no absolute path")
    if _UUID.fullmatch(uuid) is None or not re.fullmatch("[0-9]{1,10}", task):
        raise _wrong(f"{uuid[:80]!r} and {task[:80]!r} name no lease")
    key = LeaseKey(uuid, int(task))
    if is_sweep:
        return Call(state=StateDir(Path(folder)), key=key, is_sweep=True)
    limit_min, grace_s = map(_number, times)
    return Call(
        state=StateDir(Path(folder)), key=key, limit_s=limit_min * 60, grace_s=grace_s
    )


def own_job(environment: Mapping[str, str]) -> JobKey | None:
    """Return this lease's job, by Slurm's variables; None outside of one.

    Of an array task scancel wants ``18_0``, and does nothing for its raw number.
    """
    raw = environment.get("SLURM_JOB_ID", "")
    array = environment.get("SLURM_ARRAY_JOB_ID", "")
    task = environment.get("SLURM_ARRAY_TASK_ID", "")
    if not raw.isdecimal():
        return None
    is_task = array.isdecimal() and task.isdecimal()
    return JobKey(int(raw), f"{array}_{task}" if is_task else raw)


def _run(call: Call, patience: Patience) -> bool:
    """Run the agent; return whether nothing is left that must be swept."""
    folder = call.state.lease(call.key)
    folder.create()
    environment = _environment(call, is_listening=True)
    environment.handle_signals()
    lease = OwnLease(
        key=call.key,
        node=os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        host=socket.gethostname(),
        pid=os.getpid(),
        limit_s=call.limit_s,
        grace_s=call.grace_s,
    )
    environment.log(f"began on {lease.node} for {call.limit_s / 60:g} min")
    if not Agent(lease, _board(call), environment, patience).run():
        return False
    _remove_groups()
    return True


def _sweep(call: Call, patience: Patience) -> None:
    """End what the lease left, and write that it is gone if its agent did not."""
    environment, board = _environment(call), _board(call)
    node = Node(call.key, board, environment, patience)
    until_s = time.monotonic() + patience.sweep_grace_s
    while not node.end_all() and time.monotonic() < until_s:
        environment.wait(patience.poll_s)
    node.kill_all()
    _remove_groups()
    last = board.heartbeat(call.key)
    if last is not None and last.state is not AgentState.ENDED:
        ended = replace(last, beat=last.beat + 1, state=AgentState.ENDED)
        board.write_heartbeat(call.key, ended)


def _remove_groups() -> None:
    # Imported here: an agent's start is waited for, and only its end needs them.
    from freetrain.pack.cpu_controllers import (  # noqa: PLC0415
        KernelCgroups,
        own_cgroups,
        remove_empty_groups,
    )

    remove_empty_groups(own_cgroups(), KernelCgroups())


def _environment(call: Call, *, is_listening: bool = False) -> Environment:
    agent = os.environ.get(LAUNCH_AGENT)
    head = this_node(os.environ, launch_agent=Path(agent) if agent else None)
    scrubbed_variables = scrubbed(os.environ)
    runner = SubprocessRunner(scrubbed_variables)
    job = own_job(os.environ)
    listener = None
    if is_listening and job is not None and "SLURM_STEP_ID" not in os.environ:
        listener = PreemptionListener(
            job.job_id, scrubbed_variables, elapsed_s=time.monotonic
        )
    return Environment(
        LocalLauncher(call.state, head, SystemRandom()),
        CommandLine(runner, user=user_name(), timeout_s=_SLURM_TIMEOUT_S),
        own_job=job,
        listener=listener,
        journal=Journal(
            call.state.lease(call.key).log, unix_s=unix_s, elapsed_s=time.monotonic
        ),
    )


def _board(call: Call) -> Board:
    listing = Listing(time.monotonic)
    return Board(call.state, listing, elapsed_s=time.monotonic)


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise _wrong(f"{text[:80]!r} is no time")
    return number


def _wrong(why: str) -> UsageError:
    return UsageError(f"{why}. Nothing was started.\n{USAGE.rstrip()}")
