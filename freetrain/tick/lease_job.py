"""The Slurm job of a lease: what sbatch is asked for, and the batch script it runs."""

from __future__ import annotations

import math
import shlex
from typing import TYPE_CHECKING

from freetrain.agent.observation import PATIENCE_VARIABLE as PATIENCE
from freetrain.broker.lease import job_name
from freetrain.elastic.files import replaced
from freetrain.errors import BadConfigurationError
from slurm.batch import LeaseRequest, gres_argument

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.broker.lease import Intent
    from freetrain.config.site import Site
    from freetrain.state.files import StateDir
    from freetrain.tick.environment import TickEnvironment
    from slurm.records import Requirement

OUTPUT = "lease-%j.out"
"""Name of the batch script's output, with sbatch's pattern of the job's number."""

MODE = 0o700
"""Of the batch script."""

LAUNCH_AGENT = "FREETRAIN_LAUNCH_AGENT"
"""The variable that names the site's own launch agent to ours."""


def request_for(
    site: Site,
    folder: StateDir,
    intent: Intent,
    requirement: Requirement,
    *,
    grace_s: float,
) -> LeaseRequest:
    """Return what sbatch is asked for *intent* at *site*.

    Args:
        site: How leases are submitted there.
        folder: The state directory.
        intent: How many leases, how long, until when.
        requirement: What they require of their nodes.
        grace_s: How long a lease that must go has, from the first signal it gets.
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
        output=_output_pattern(str(folder.outputs)),
        exclusive=lease.exclusive,
        memory_mib=requirement.memory_mib,
        cpus=requirement.cpus,
        qos=lease.qos,
        account=lease.account,
        features="&".join(sorted(requirement.features)),
        gres=",".join(map(gres_argument, requirement.gres)),
    )


def output_of(folder: StateDir, job_id: int) -> Path:
    """Return the file with the output of a job's batch script."""
    return folder.outputs / OUTPUT.replace("%j", str(job_id))


def _output_pattern(folder: str) -> str:
    """Return ``sbatch --output``, which gives ``%`` and backslashes a meaning."""
    if "\\" in folder:
        return "/dev/null"
    return f"{folder.replace('%', '%%')}/{OUTPUT}"


def lease_script(environment: TickEnvironment, site: Site) -> str:
    """Return the text of the batch script; its arguments are uuid, minutes, grace.

    The agent runs under the script, not as a step: at preemption every process of every
    step gets TERM, and its mpirun would end the world before it has committed. It
    starts a step that listens. The script itself must outlive the signals at the end,
    so it catches TERM: a caught signal has its default effect in what the script
    starts, an ignored one would not. What an agent left that did not come to its end
    is swept, and the job did not fail. Python must not take a module from the folder
    in which the tick was called (``-P``).

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
    """Write *text* to *path*, whole, unless it is there already; tell whether.

    sbatch copies the script it is given, so leases keep the one they had.

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
