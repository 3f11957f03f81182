"""``freetrain drill``: rehearse a preemption."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from freetrain.broker.lease import job_name
from freetrain.cli.context import (
    AsJson,
    CliContext,
    Config,
    above_zero,
    json_text,
    nodes_text,
    write_out,
)
from freetrain.client.drill import Drill, DrillMark, Watch, choose, verdict
from freetrain.client.status import overview
from freetrain.client.trainers import author_text
from freetrain.errors import TryLaterError
from freetrain.state.files import StateDir
from freetrain.text import one_line
from freetrain.tick.environment import slurm_connector
from freetrain.tick.leases import NOTICE
from slurm.backend import SlurmBackend
from slurm.records import JobRecord

EXAMPLES = {
    "drill": """
freetrain drill digits

freetrain drill digits --lease n3 --patience 60
""",
}


EVERY_S = 0.1
ASK_EVERY_S = 2.0
"""Slurm is asked no more often than that, and only until the lease is gone."""

MOST_REQUESTS = 200
FAILED = 1


def drill(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    trainer: Annotated[str, typer.Argument(metavar="TRAINER", help="It must train.")],
    *,
    lease: Annotated[
        str,
        typer.Option(
            metavar="NODE",
            help="The lease, by its node or name; without it the last one.",
            show_default=False,
        ),
    ] = "",
    patience_s: Annotated[
        float,
        typer.Option(
            "--patience",
            metavar="S",
            help="Seconds that it may take to train again.",
            callback=above_zero,
        ),
    ] = 120.0,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Take one node from a trainer as Slurm would, and watch what it does."""
    context: CliContext = ctx.obj
    state = StateDir(context.site(config).state_directory)
    view = overview(state, name=trainer, uid=context.uid, now_s=context.now_s())
    chosen = choose(state, view.standings[0], lease=lease)
    backend = slurm_connector(context.environ)(MOST_REQUESTS)
    job = _job(backend, chosen, context.uid)
    if not as_json:
        write_out(context, _opening(chosen))
    watch = Watch(chosen)
    begun_s = context.clock()
    backend.signal([job.key], NOTICE)
    watch.note(DrillMark.TOLD, 0.0)
    for marks in _follow(
        watch, backend, context, begun_s=begun_s, patience_s=patience_s
    ):
        for mark in () if as_json else marks:
            line = f"{watch.seen_s[mark]:7.1f} s  {mark}{_details(watch, mark)}"
            write_out(context, f"{line}\n")
    problems = verdict(watch, patience_s=patience_s)
    if as_json:
        write_out(context, json_text(_record(watch, problems)))
    else:
        lines = [f"{one_line(line)}\n" for line in _closing(watch, problems)]
        write_out(context, "".join(lines))
    if problems:
        raise typer.Exit(FAILED)


def _job(backend: SlurmBackend, drill: Drill, uid: int) -> JobRecord:
    """Return the lease's job as Slurm has it now: ours, and running."""
    for job in backend.find_by_name(job_name(drill.member.key.uuid)):
        is_it = job.display_id == drill.member.display_id
        if is_it and job.uid == uid and job.holds_nodes:
            return job
    raise TryLaterError(
        f"Slurm does not show the lease on {drill.member.node} "
        f"({drill.member.display_id}) as running. Nothing was done. Try again after "
        f"the next tick."
    )


def _follow(
    watch: Watch,
    backend: SlurmBackend,
    context: CliContext,
    *,
    begun_s: float,
    patience_s: float,
) -> Iterator[tuple[DrillMark, ...]]:
    """Yield what was seen since the last look, until all is seen or time is up."""
    yield (DrillMark.TOLD,)
    asked_s = 0.0
    while (now_s := context.clock() - begun_s) < patience_s:
        marks = watch.look(now_s)
        if now_s - asked_s >= ASK_EVERY_S and DrillMark.GONE not in watch.seen_s:
            asked_s = now_s
            if _is_gone(backend, watch.drill):
                watch.note(DrillMark.GONE, context.clock() - begun_s)
                marks = (*marks, DrillMark.GONE)
        yield marks
        if watch.is_complete:
            return
        context.sleep(EVERY_S)


def _is_gone(backend: SlurmBackend, drill: Drill) -> bool:
    found = backend.find_by_name(job_name(drill.member.key.uuid))
    same = [job for job in found if job.display_id == drill.member.display_id]
    return all(job.has_ended for job in same)


def _details(watch: Watch, mark: DrillMark) -> str:
    match mark:
        case DrillMark.RE_FORMED if watch.next is not None:
            made = watch.next
            nodes = nodes_text(len(made.members))
            text = f": {made.generation}, on {nodes}, by {author_text(made.author)}"
        case DrillMark.OVER if watch.ending is not None:
            ending = watch.ending
            text = f": {ending.ended.words}, step {ending.step:,}"
            text += f", committed {ending.committed_step:,}"
        case DrillMark.BACK:
            text = f", from step {watch.restored_step or 0:,} on"
        case _:
            text = ""
    return one_line(text) if text else ""


def _opening(drill: Drill) -> str:
    name, nodes = drill.assigned.trainer, nodes_text(len(drill.assigned.members))
    text = (
        f"{name} trains on {nodes}; the lease on {drill.member.node} (job "
        f"{drill.member.display_id}) is told to leave, as on a preemption."
    )
    if not drill.nodes_left:
        text += " It is at its smallest size: it will need a tick to go on."
    return f"{one_line(text)}\n"


def _closing(watch: Watch, problems: tuple[str, ...]) -> list[str]:
    pause = "" if watch.pause_s is None else f"Pause {watch.pause_s:.1f} s. "
    if problems:
        return [f"{pause}The drill failed:", *problems]
    return [f"{pause}No work was lost."]


def _record(watch: Watch, problems: tuple[str, ...]) -> dict[str, Any]:
    """Return what ``--json`` shows; what was not seen is null."""
    return {
        "trainer": watch.drill.assigned.trainer,
        "generation": watch.drill.generation,
        "lease": watch.drill.member.display_id,
        "node": watch.drill.member.node,
        "nodes_before": len(watch.drill.assigned.members),
        "nodes_after": None if watch.next is None else len(watch.next.members),
        "seen_s": {mark.name.lower(): watch.seen_s.get(mark) for mark in DrillMark},
        "pause_s": watch.pause_s,
        "last_step": watch.last_step,
        "restored_step": watch.restored_step,
        "lost_steps": watch.lost_steps,
        "problems": list(problems),
    }
