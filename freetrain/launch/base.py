"""The interface of launchers: one class says everything about one way to start worlds.

A world is the set of processes that train together in one generation of a trainer.
``freetrain.launchers`` finds the class by the name in the job file. A launcher decides
what is run, and starts nothing itself: ``freetrain.launch.local`` does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from freetrain.launch import starter
from freetrain.launch.request import CannotLaunchError, WorldPlan, launcher_environment
from freetrain.launchers import find_launcher
from freetrain.plugins import UnusablePluginError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from signal import Signals

    from freetrain.config.job import LaunchSettings, TrainerJob
    from freetrain.launch.request import HeadNode, PlannedFile, WorldRequest

_STARTER = Path(starter.__file__).resolve()
# Keys of [launch] that only some launchers understand, and the one they are made for.
_KEYS_FOR = {"pack": "pack", "command": "custom"}


@dataclass(frozen=True, slots=True)
class Tool:
    """The program that launches, as it was found on the head node.

    Attributes:
        path: The program, absolute; empty where the launcher needs none.
        flavour: Which of several programs of that name it is, where that matters.
    """

    path: str
    flavour: str = ""


class ToolFinder(Protocol):
    """Looks for programs where a world would find them."""

    def find(self, name: str, *, advice: str) -> str:
        """Return the absolute path of the program *name*.

        Args:
            name: A name to look for on the PATH, or a path.
            advice: How to get the program, for the message; ``install ...``.

        Raises:
            CannotLaunchError: It is not there.
        """
        ...

    def version(self, path: str) -> str:
        """Return the output of ``path --version``.

        Raises:
            CannotLaunchError: It cannot be run.
        """
        ...


class Launcher(ABC):
    """One way to start the processes of a world on its nodes.

    Subclasses must be importable quickly: every agent and tick imports them.
    """

    usual_program: ClassVar[str] = ""
    """The program that is run where ``[launch] executable`` names none."""

    keys: ClassVar[frozenset[str]] = frozenset()
    """Keys of ``[launch]`` that it understands and most launchers do not."""

    needs_command: ClassVar[bool] = True
    """Whether a job file must say ``command``, the program of the user's."""

    def problems(self, job: TrainerJob) -> Iterator[tuple[str, str]]:
        """Yield what is wrong with a job file, the table before each problem.

        The table is ``""`` for the keys above all tables. A problem says what was
        found and what is expected, without the final full stop.
        """
        for key, owner in _KEYS_FOR.items():
            if getattr(job.launch, key) and key not in self.keys:
                name = job.launch.launcher
                yield "launch", f'{key} is for launcher = "{owner}", and it is {name}'

    def program(self, launch: LaunchSettings) -> str:
        """Return the program that nodes need; ``submit`` looks for it. May be empty."""
        return launch.executable or self.usual_program

    def find_tool(self, job: TrainerJob, head: HeadNode, finder: ToolFinder) -> Tool:
        """Return the program that launches, on the node that launches.

        Args:
            job: The trainer.
            head: That node.
            finder: Looks for programs on it.

        Raises:
            CannotLaunchError: There is none, or none that can be used.
        """
        del job, head, finder
        return Tool("")

    @abstractmethod
    def plan(self, request: WorldRequest, tool: Tool) -> WorldPlan:
        """Return how *tool* starts the world of *request*.

        Raises:
            CannotLaunchError: The generation's nodes are not fit for it.
        """


def launcher_of(job: TrainerJob) -> Launcher:
    """Return the launcher that *job* names.

    Raises:
        CannotLaunchError: It is not installed here, or cannot be used.
    """
    name = job.launch.launcher
    try:
        launcher: Launcher = find_launcher(name)
    except (LookupError, UnusablePluginError) as error:
        raise CannotLaunchError(
            f"{job.name} needs the launcher {name!r}, which cannot be used here: "
            f"{error}. Nothing was started. Install the package that has it beside "
            f"FreeTrain."
        ) from error
    return launcher


def plan_world(request: WorldRequest, tool: Tool) -> WorldPlan:
    """Return how the world of *request* is started by *tool*.

    Raises:
        CannotLaunchError: The generation's nodes are not fit for it.
    """
    return launcher_of(request.job).plan(request, tool)


def assemble_plan(
    request: WorldRequest,
    argv: tuple[str, ...],
    *,
    files: tuple[PlannedFile, ...],
    stop_signal: Signals | None,
) -> WorldPlan:
    """Return the plan that runs *argv* with what all launchers have alike."""
    return WorldPlan(
        argv=argv,
        environment=launcher_environment(request),
        directory=request.job.directory,
        log=request.log,
        files=files,
        stop_signal=stop_signal,
        stop_file=request.stop_file,
    )


def starter_argv(request: WorldRequest, orders: Path) -> tuple[str, ...]:
    """Return the command that carries out *orders*, whatever Python's paths are."""
    return (request.head.python, "-I", "-S", str(_STARTER), str(orders))
