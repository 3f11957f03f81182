"""``freetrain drill``: rehearse a preemption."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from freetrain.broker.lease import job_name
from freetrain.cli import options
from freetrain.cli.context import CliContext
from freetrain.cli.output import json_text, write_out
from freetrain.cli.wording import maker_text, nodes_text
from freetrain.client.drill import Drill, Mark, Watch, choose, verdict
from freetrain.client.status import overview
from freetrain.errors import TryLaterError
from freetrain.state.files import StateDir
from freetrain.text import one_line
from freetrain.tick.act import NOTICE
from freetrain.tick.environment import slurm_connector
from slurm.backend import SlurmBackend
from slurm.records import JobRecord

EXAMPLES = {
    "drill": """
freetrain drill digits

freetrain drill digits --lease n3 --patience 60
""",
}


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
            callback=options.above_zero,
        ),
    ] = 120.0,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Take one node from a trainer as Slurm would, and watch what it does."""
    context: CliContext = ctx.obj
    request = DrillRequest(
        state=StateDir(context.site(config).state_directory),
        trainer=trainer,
        lease=lease,
        patience_s=patience_s,
        as_json=as_json,
    )
    rehearse(request, context)


EVERY_S = 0.1
ASK_EVERY_S = 2.0
"""Slurm is asked no more often than that, and only until the lease is gone."""

MOST_REQUESTS = 200
FAILED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillRequest:
    """What is to be rehearsed.

    Attributes:
        state: The state directory.
        trainer: The trainer's name.
        lease: The lease that is to leave, or its node; empty for the last one.
        patience_s: How long it may take to train again.
        as_json: Whether programs read the result.
    """

    state: StateDir
    trainer: str
    lease: str
    patience_s: float
    as_json: bool


def rehearse(request: DrillRequest, context: CliContext) -> None:
    """Tell one lease to leave, watch, and say what came of it.

    Raises:
        typer.Exit: Work was lost, or it did not come back in time.
        UsageError: There is no such trainer or lease; nothing was done.
        TryLaterError: There is nothing to rehearse now; nothing was done.
        SlurmError: Slurm did not answer; the lease may have been told.
    """
    seen = overview(
        request.state, name=request.trainer, uid=context.uid, now_s=context.now_s()
    )
    drill = choose(request.state, seen.standings[0], lease=request.lease)
    backend = slurm_connector(context.environ)(MOST_REQUESTS)
    watch = Watch(drill)
    job = _job(backend, drill, context.uid)
    if not request.as_json:
        write_out(context, _opening(drill))
    begun_s = context.clock()
    backend.signal([job.key], NOTICE)
    watch.note(Mark.TOLD, 0.0)
    _follow(watch, backend, request, context, begun_s=begun_s)
    problems = verdict(watch, patience_s=request.patience_s)
    if request.as_json:
        write_out(context, json_text(drill_record(watch, problems)))
    else:
        write_out(
            context, "".join(f"{one_line(x)}\n" for x in _closing(watch, problems))
        )
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
    request: DrillRequest,
    context: CliContext,
    *,
    begun_s: float,
) -> None:
    _show(watch, (Mark.TOLD,), request, context)
    asked_s = 0.0
    while (now_s := context.clock() - begun_s) < request.patience_s:
        marks = watch.look(now_s)
        if now_s - asked_s >= ASK_EVERY_S and Mark.GONE not in watch.seen_s:
            asked_s = now_s
            if _is_gone(backend, watch.drill):
                watch.note(Mark.GONE, context.clock() - begun_s)
                marks = (*marks, Mark.GONE)
        _show(watch, marks, request, context)
        if watch.is_complete:
            return
        context.sleep(EVERY_S)


def _is_gone(backend: SlurmBackend, drill: Drill) -> bool:
    found = backend.find_by_name(job_name(drill.member.key.uuid))
    mine = [one for one in found if one.display_id == drill.member.display_id]
    return all(one.has_ended for one in mine)


def _show(
    watch: Watch, marks: tuple[Mark, ...], request: DrillRequest, context: CliContext
) -> None:
    if request.as_json:
        return
    for mark in marks:
        line = f"{watch.seen_s[mark]:7.1f} s  {mark}{_more(watch, mark)}"
        write_out(context, f"{line}\n")


def _more(watch: Watch, mark: Mark) -> str:
    match mark:
        case Mark.RE_FORMED if watch.next is not None:
            made = watch.next
            nodes = nodes_text(len(made.members))
            said = f": {made.generation}, on {nodes}, by {maker_text(made.author)}"
        case Mark.OVER if watch.ending is not None:
            one = watch.ending
            said = f": {one.ended.words}, step {one.step:,}"
            said += f", committed {one.committed_step:,}"
        case Mark.BACK:
            said = f", from step {watch.restored_step or 0:,} on"
        case _:
            said = ""
    return one_line(said) if said else ""


def _opening(drill: Drill) -> str:
    name, nodes = drill.assigned.trainer, nodes_text(len(drill.assigned.members))
    said = (
        f"{name} trains on {nodes}; the lease on {drill.member.node} (job "
        f"{drill.member.display_id}) is told to leave, as on a preemption."
    )
    if not drill.nodes_left:
        said += " It is at its smallest size: it will need a tick to go on."
    return f"{one_line(said)}\n"


def _closing(watch: Watch, problems: tuple[str, ...]) -> list[str]:
    pause = "" if watch.pause_s is None else f"Pause {watch.pause_s:.1f} s. "
    if problems:
        return [f"{pause}The drill failed:", *problems]
    return [f"{pause}No work was lost."]


def drill_record(watch: Watch, problems: tuple[str, ...]) -> dict[str, Any]:
    """Return a drill for programs; what was not seen is null."""
    return {
        "trainer": watch.drill.assigned.trainer,
        "generation": watch.drill.generation,
        "lease": watch.drill.member.display_id,
        "node": watch.drill.member.node,
        "nodes_before": len(watch.drill.assigned.members),
        "nodes_after": None if watch.next is None else len(watch.next.members),
        "seen_s": {mark.name.lower(): watch.seen_s.get(mark) for mark in Mark},
        "pause_s": watch.pause_s,
        "last_step": watch.last_step,
        "restored_step": watch.restored_step,
        "lost_steps": watch.lost_steps,
        "problems": list(problems),
    }
