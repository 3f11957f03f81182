"""The batch script of leases: it runs the agent, and sweeps after it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from freetrain.agent.patience import VARIABLE as PATIENCE
from freetrain.elastic.durable import replaced
from freetrain.errors import BadConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.site.settings import Site
    from freetrain.tick.outside import Outside

MODE = 0o700
LAUNCH_AGENT = "FREETRAIN_LAUNCH_AGENT"
"""What tells the agent of the site's own launch agent."""


def lease_script(outside: Outside, site: Site) -> str:
    """Return the text of the batch script; its arguments are uuid, minutes, grace.

    The agent runs under the script, not as a step: at preemption every process of
    every step gets TERM, and its mpirun would end the world before it has committed.
    It starts a step that listens (``freetrain.agent.ear``). The script itself must
    outlive the signals at the end, so it catches TERM: caught signals are as usual
    again in what it starts, ignored ones would not be. What an agent left that did
    not come to its end is swept, and the job did not fail. Python must not take a
    module from the folder in which somebody called the tick (``-P``).

    Args:
        outside: Where programs are.
        site: Where the state is, and the site's launch agent.

    Raises:
        BadConfigurationError: A path that no script can name.
    """
    values = {"PATH": outside.path, "HOME": outside.home or "/"}
    if outside.agent_patience:
        values[PATIENCE] = outside.agent_patience
    if site.launch_agent is not None:
        values[LAUNCH_AGENT] = str(site.launch_agent)
    exports = [f"export {name}={_quoted(value)}" for name, value in values.items()]
    python, state = _quoted(outside.python), _quoted(str(site.state_directory))
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
