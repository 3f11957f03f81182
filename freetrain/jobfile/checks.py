"""What keys of a job file say about each other."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

from freetrain.jobfile.job import PLACEHOLDERS, Launcher, ProgressFormat
from freetrain.toml.wording import closest, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.jobfile.aims import Target
    from freetrain.jobfile.job import Launch, Nodes, Progress, TrainerJob
    from freetrain.toml.table import Table


def check(job: TrainerJob, document: Table) -> None:
    """Refuse *document* where what it says cannot all be true.

    Raises:
        BadConfigurationError: The message names the keys.
    """
    _check_nodes(job.nodes, document.inner("nodes"))
    _check_launch(job.launch, document.inner("launch"))
    if job.launch.spare and not job.elastic:
        document.inner("launch").refuse(
            "spare = true is for programs that join, and elastic = false"
        )
    if job.launch.launcher is Launcher.PACK:
        _check_pack(job, document)
    else:
        document.require("command")
    if job.work.samples is not None and job.work.epochs is not None:
        document.inner("work").refuse("expected either samples or epochs, not both")
    if job.progress is not None:
        _check_progress(job, job.progress, document.inner("progress"))
    if job.quality is not None:
        _check_is_told(job, document.inner("quality"))
    if job.target is not None:
        _check_target(job, job.target, document.inner("target"))


def _check_nodes(nodes: Nodes, table: Table) -> None:
    if nodes.min_nodes > nodes.max_nodes:
        table.refuse(f"min = {nodes.min_nodes} is above max = {nodes.max_nodes}")
    within = f"from min = {nodes.min_nodes} to max = {nodes.max_nodes}"
    if not nodes.sizes:
        table.refuse_value("sizes", f"a node count {within}")
    listed = isinstance(table.values.get("sizes"), list)
    if listed and nodes.sizes != nodes.only:
        table.refuse_value("sizes", f"only node counts {within}")


def _check_pack(job: TrainerJob, document: Table) -> None:
    launch, table = job.launch, document.inner("launch")
    if launch.pack is None:
        table.refuse('launcher = "pack" needs pack, such as "pack.toml"')
    if launch.options or launch.executable or launch.processes_per_node > 1:
        table.refuse("a pack takes no options, executable or processes_per_node")
    if job.command:
        document.refuse("members of a pack have commands, the pack itself has none")
    if not job.elastic:
        document.refuse("elastic = false, and a pack stops and goes on by itself")
    if launch.spare:
        table.refuse("spare = true, and a pack has no ranks that could begin in one")
    if job.nodes.sizes != (1,):
        document.inner("nodes").refuse("a pack is on one node, expected max = 1")


def _check_launch(launch: Launch, table: Table) -> None:
    if launch.pack is not None and launch.launcher is not Launcher.PACK:
        table.refuse(f'pack is for launcher = "pack", and it is {launch.launcher}')
    if launch.launcher is not Launcher.CUSTOM:
        if launch.command:
            table.refuse(
                f'command is for launcher = "custom", and it is {launch.launcher}'
            )
        return
    if launch.options or launch.executable:
        table.refuse('with launcher = "custom" all goes into command')
    if not launch.command:
        table.refuse(
            'launcher = "custom" needs command, such as '
            '["mpiexec", "-f", "{hostfile}", "-n", "{processes}"]'
        )
    for name in _placeholders(launch.command, table):
        if name not in PLACEHOLDERS:
            hint = closest(name, PLACEHOLDERS)
            known = ", ".join(f"{{{one}}}" for one in PLACEHOLDERS)
            table.refuse(
                f"command has {shown(f'{{{name}}}')}, expected one of {known}.{hint}"
            )


def _placeholders(command: tuple[str, ...], table: Table) -> Iterator[str]:
    for word in command:
        try:
            parsed = list(string.Formatter().parse(word))
        except ValueError as error:
            table.refuse(f"command has {shown(word)}: {error}; write {{{{ for {{")
        for _, name, form, conversion in parsed:
            if name is not None:
                yield name + (f"!{conversion}" if conversion else "") + (form or "")


def _check_progress(job: TrainerJob, progress: Progress, table: Table) -> None:
    if job.elastic:
        table.refuse(
            "a program that uses freetrain.elastic tells its progress itself; leave "
            "this table out, or set elastic = false above"
        )
    if progress.form is ProgressFormat.PATTERN:
        if not progress.pattern or progress.fields:
            table.refuse('format = "pattern" needs pattern, and takes no fields')
    elif not (progress.file and progress.fields) or progress.pattern:
        table.refuse(
            f'format = "{progress.form}" needs file and fields, and takes no pattern'
        )


def _check_target(job: TrainerJob, target: Target, table: Table) -> None:
    _check_is_told(job, table)
    final, better = target.final, job.measure.better
    if final is not None and not job.measure.is_reached(target.deliver, final):
        table.refuse(
            f"final = {final:g} comes before deliver = {target.deliver:g}, where "
            f"{better} is better"
        )
    if target.publish is not None and not job.elastic:
        table.refuse(
            "publish is for programs that use freetrain.elastic, whose checkpoints "
            "can be checked; let hook fetch what this one writes"
        )


def _check_is_told(job: TrainerJob, table: Table) -> None:
    """Refuse a metric that the program cannot tell; an elastic one may tell any."""
    if job.launch.launcher is Launcher.PACK:
        table.refuse("a pack tells no metrics; its members' job files can say this")
    if job.elastic:
        return
    if job.progress is None:
        table.refuse("nobody knows the metric without a table [progress]")
    names = job.progress.told
    name = job.measure.metric
    if name not in names:
        table.refuse(
            f"the metric {shown(name)} is no field of [progress].{closest(name, names)}"
        )
