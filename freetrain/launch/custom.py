"""The launcher ``custom``: a command of the user's starts the world."""

from __future__ import annotations

import string
from signal import Signals
from typing import TYPE_CHECKING

from freetrain.launch.base import Launcher, PlannedFile, agent_files, assemble_plan
from freetrain.text import closest, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.config.job import LaunchSettings, TrainerJob
    from freetrain.launch.base import Tool, WorldPlan, WorldRequest

PLACEHOLDERS = ("hostfile", "hosts", "nodes", "processes", "agent")
"""Names that ``{...}`` in the command may have."""


class CustomLauncher(Launcher):
    """Runs ``[launch] command`` with its placeholders filled in, then the program."""

    keys = frozenset({"command"})

    def problems(self, job: TrainerJob) -> Iterator[tuple[str, str]]:
        """Yield the problems of the command."""
        yield from super().problems(job)
        launch = job.launch
        if launch.options or launch.executable:
            yield "launch", 'with launcher = "custom" all goes into command'
        if not launch.command:
            example = '["mpiexec", "-f", "{hostfile}", "-n", "{processes}"]'
            yield "launch", f'launcher = "custom" needs command, such as {example}'
        for word in launch.command:
            for problem in _problems_of_word(word):
                yield "launch", problem

    def program(self, launch: LaunchSettings) -> str:
        """Return the first word of the command."""
        return launch.command[0]

    def plan(self, request: WorldRequest, tool: Tool) -> WorldPlan:
        """Return the plan with the user's command."""
        del tool
        lines = "".join(f"{host}\n" for host in request.hosts)
        hostfile = PlannedFile(request.hostfile, lines)
        values = {
            "hostfile": str(hostfile.path),
            "hosts": ",".join(request.hosts),
            "nodes": str(len(request.hosts)),
            "processes": str(request.processes),
            "agent": str(request.agent_path),
        }
        words = (word.format_map(values) for word in request.job.launch.command)
        # How the command handles a signal is unknown, so an elastic program is
        # asked to stop by its control file alone.
        elastic = request.job.elastic
        return assemble_plan(
            request,
            (*words, *request.command),
            files=(*agent_files(request), hostfile),
            stop_signal=None if elastic else Signals[f"SIG{request.job.stop.signal}"],
        )


def _problems_of_word(word: str) -> Iterator[str]:
    try:
        parsed = list(string.Formatter().parse(word))
    except ValueError as error:
        yield f"command has {shown(word)}: {error}; write {{{{ for {{"
        return
    for _, name, form, conversion in parsed:
        if name is None:
            continue
        written = name + (f"!{conversion}" if conversion else "") + (form or "")
        if written not in PLACEHOLDERS:
            hint = closest(written, PLACEHOLDERS)
            known = ", ".join(f"{{{placeholder}}}" for placeholder in PLACEHOLDERS)
            yield (
                f"command has {shown(f'{{{written}}}')}, expected one of {known}.{hint}"
            )
