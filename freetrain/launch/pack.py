"""The launcher ``pack``: several small trainers share the node of one lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.launch.base import Launcher, agent_files, assemble_plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.config.job import LaunchSettings, TrainerJob
    from freetrain.launch.base import Tool
    from freetrain.launch.request import WorldPlan, WorldRequest


class PackLauncher(Launcher):
    """Runs ``python -m freetrain.pack``, which starts the members of a pack file."""

    keys = frozenset({"pack"})
    needs_command = False

    def problems(self, job: TrainerJob) -> Iterator[tuple[str, str]]:
        """Yield what a pack cannot have; most of it its members' job files can say."""
        yield from super().problems(job)
        launch = job.launch
        if launch.pack is None:
            yield "launch", 'launcher = "pack" needs pack, such as "pack.toml"'
        if launch.options or launch.executable or launch.processes_per_node > 1:
            yield "launch", "a pack takes no options, executable or processes_per_node"
        if job.command:
            yield "", "members of a pack have commands, the pack itself has none"
        if not job.elastic:
            yield "", "elastic = false, and a pack stops and goes on by itself"
        if launch.spare:
            yield (
                "launch",
                "spare = true, and a pack has no ranks that could begin in one",
            )
        if job.nodes.sizes != (1,):
            yield "nodes", "a pack is on one node, expected max = 1"
        tables = {"quality": job.quality, "target": job.target}
        for table, said in tables.items():
            if said is not None:
                yield (
                    table,
                    "a pack tells no metrics; its members' job files can say this",
                )

    def program(self, launch: LaunchSettings) -> str:
        """Return nothing: FreeTrain's own Python runs the pack."""
        del launch
        return ""

    def plan(self, request: WorldRequest, tool: Tool) -> WorldPlan:
        """Return the command that runs the pack.

        Its Python is the agent's, whatever the submitter's variables (``-E``) and the
        job's directory (``-P``) hold for the members.
        """
        del tool
        pack = str(request.job.launch.pack)
        return assemble_plan(
            request,
            (request.head.python, "-E", "-P", "-m", "freetrain.pack", pack),
            files=agent_files(request),
            # Python takes a moment until it handles signals, and dies of them until
            # then, so the control file alone asks it to stop.
            stop_signal=None,
        )
