"""The Slurm job of a lease: what sbatch is asked for, and the batch script."""

from __future__ import annotations

import math
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from freetrain.agent.seen import VARIABLE as PATIENCE
from freetrain.broker.lease import job_name
from freetrain.elastic.files import replaced
from freetrain.errors import BadConfigurationError
from freetrain.tick.observe import grace_s
from freetrain.tick.plan import written
from slurm.batch import LeaseRequest

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.broker.lease import Intent
    from freetrain.config.site import Site
    from freetrain.state.files import StateDir
    from freetrain.tick.context import TickContext
    from freetrain.tick.environment import Environment
    from freetrain.tick.observe import Observed
    from slurm.records import Requirement


OUTPUT = "lease-%j.out"
"""Name of what batch scripts print, with sbatch's pattern of the job's number."""


def lease_request(
    context: TickContext,
    observed: Observed,
    intent: Intent,
    requirement: Requirement,
    *,
    excluded: str = "",
) -> LeaseRequest:
    """Return the request that carries out *intent*, kept off the nodes *excluded*."""
    grace = grace_s(observed.config, observed.partition, observed.limits.mode)
    made = request_for(context.site, context.folder, intent, requirement, grace_s=grace)
    return replace(made, excluded=excluded)


def request_for(
    site: Site,
    folder: StateDir,
    intent: Intent,
    requirement: Requirement,
    *,
    grace_s: float,
) -> LeaseRequest:
    """Return what sbatch is asked for *intent* at *site*, whoever decided it.

    Args:
        site: How leases are submitted there.
        folder: The state directory.
        intent: How many, how long, until when.
        requirement: What they ask of their nodes.
        grace_s: How long a lease that must go has, from the first signal it hears.
    """
    lease = site.lease
    return LeaseRequest(
        name=job_name(intent.uuid),
        comment=f"freetrain {intent.uuid}",
        partition=requirement.partition,
        limit_min=intent.limit_min,
        nice=lease.nice,
        script=str(folder.lease_script),
        arguments=(intent.uuid, str(intent.limit_min), str(math.ceil(grace_s))),
        tasks=intent.tasks,
        deadline_s=intent.deadline_s,
        output=_output(str(folder.outputs)),
        exclusive=lease.exclusive,
        memory_mib=requirement.memory_mib,
        cpus=requirement.cpus,
        qos=lease.qos,
        account=lease.account,
        features="&".join(sorted(requirement.features)),
        gres=",".join(written(one) for one in requirement.gres),
    )


def output_of(folder: StateDir, job_id: int) -> Path:
    """Return the file of what the batch script of a job printed."""
    return folder.outputs / OUTPUT.replace("%j", str(job_id))


def _output(folder: str) -> str:
    """Return where batch scripts print; sbatch reads ``%`` and a backslash as signs."""
    if "\\" in folder:
        return "/dev/null"
    return f"{folder.replace('%', '%%')}/{OUTPUT}"


MODE = 0o700


LAUNCH_AGENT = "FREETRAIN_LAUNCH_AGENT"
"""What tells the agent of the site's own launch agent."""


def lease_script(environment: Environment, site: Site) -> str:
    """Return the text of the batch script; its arguments are uuid, minutes, grace.

    The agent runs under the script, not as a step: at preemption every process of
    every step gets TERM, and its mpirun would end the world before it has committed.
    It starts a step that listens (``freetrain.agent.ear``). The script itself must
    outlive the signals at the end, so it catches TERM: caught signals are as usual
    again in what it starts, ignored ones would not be. What an agent left that did
    not come to its end is swept, and the job did not fail. Python must not take a
    module from the folder in which somebody called the tick (``-P``).

    Args:
        environment: Where programs are.
        site: Where the state is, and the site's launch agent.

    Raises:
        BadConfigurationError: A path that no script can name.
    """
    values = {"PATH": environment.path, "HOME": environment.home or "/"}
    if environment.agent_patience:
        values[PATIENCE] = environment.agent_patience
    if site.launch_agent is not None:
        values[LAUNCH_AGENT] = str(site.launch_agent)
    exports = [f"export {name}={_quoted(value)}" for name, value in values.items()]
    python, state = _quoted(environment.python), _quoted(str(site.state_directory))
    agent = f"{python} -P -m freetrain.agent"
    lease = f'{state} "$1" "$task" "$2" "$3"'
    lines = [
        "#!/bin/sh",
        "# Written by freetrain tick; changes are overwritten.",
        *exports,
        f"cd {state} || exit 0",
        "trap : TERM",
        "task=${SLURM_ARRAY_TASK_ID:-0}",
        f"{agent} {lease} && exit 0",
        f'{agent} sweep {state} "$1" "$task"',
        "exit 0",
    ]
    return "".join(f"{line}\n" for line in lines)


def write_lease_script(path: Path, text: str) -> bool:
    """Write *text* to *path*, whole, if it is not there already; tell whether.

    A script that sbatch was given is copied then, so leases keep the one they had.

    Raises:
        OSError: It could not be written.
    """
    if _content(path) == text:
        return False
    temporary = path.with_name(f".{path.name}.new")
    with replaced(path, temporary=temporary) as file:
        temporary.chmod(MODE)
        file.write(text.encode("utf-8", "surrogateescape"))
    return True


def _content(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return None


def _quoted(value: str) -> str:
    if "\0" in value or "\n" in value:
        raise BadConfigurationError(
            f"no script can name {value!r}. No lease was asked for; change PATH, HOME "
            f"or the state directory."
        )
    return shlex.quote(value)
