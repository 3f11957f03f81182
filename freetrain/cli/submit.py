"""``submit``, ``cancel``, ``pause`` and ``resume``: hand in a trainer, or change it."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from freetrain.cli import options
from freetrain.cli.context import CliContext
from freetrain.cli.exits import EX_USAGE
from freetrain.cli.output import json_text, write_out
from freetrain.cli.wording import nodes_text
from freetrain.client.change import Changed, Verb, change
from freetrain.client.submit import (
    Asked,
    Begin,
    HandedIn,
    Preview,
    hand_in,
    job_of,
    preview_of,
)
from freetrain.state.files import StateDir
from freetrain.state.tables import TrainerState
from freetrain.text import one_line, render_duration
from freetrain.tick.environment import real_environment

EXAMPLES = {
    "submit": """
freetrain submit job.toml --dry-run

freetrain submit job.toml

freetrain submit longer.toml --go-on
""",
    "cancel": """
freetrain cancel digits

freetrain cancel digits resnet --json
""",
    "pause": """
freetrain pause digits

freetrain pause digits resnet
""",
    "resume": """
freetrain resume digits

freetrain resume digits resnet
""",
}


def submit(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    job: Annotated[
        Path,
        typer.Argument(
            metavar="JOB.TOML", readable=False, help="The trainer; docs/job-file.md."
        ),
    ],
    *,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", metavar="", help="Only show what would be kept and run."
        ),
    ] = False,
    go_on: Annotated[
        bool,
        typer.Option(
            "--go-on", metavar="", help="Go on from an earlier training's checkpoints."
        ),
    ] = False,
    anew: Annotated[
        bool,
        typer.Option(
            "--anew", metavar="", help="Begin from the start, under a name used before."
        ),
    ] = False,
    unchecked: Annotated[
        bool,
        typer.Option(
            "--unchecked", metavar="", help="Though directory or program is not here."
        ),
    ] = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Submit a trainer; a later tick gives it nodes. Submitted twice it is one."""
    context: CliContext = ctx.obj
    handed_in = hand_in(
        Asked(
            path=context.folder / job,
            named=str(job),
            go_on=go_on,
            anew=anew,
            is_checked=not unchecked,
            is_dry_run=dry_run,
        ),
        context.site(config),
        environ=context.environ,
        home=context.home,
        uid=context.uid,
        now_s=context.now_s(),
    )
    preview = None
    if dry_run:
        outside = real_environment(context.environ)
        preview = preview_of(handed_in.submission, handed_in.site, outside)
    if as_json:
        write_out(context, json_text(submitted_record(handed_in, preview)))
    else:
        write_out(context, submitted_text(handed_in))
        write_out(context, "" if preview is None else preview_text(preview))
        for remark in handed_in.remarks:
            context.stderr.write(f"note: {remark}\n")


def submitted_record(one: HandedIn, preview: Preview | None) -> dict[str, Any]:
    """Return *one* as ``--json`` shows it, and what would be run for it."""
    submitted = one.submitted
    would_run = None if preview is None else _preview_record(preview)
    return {
        "name": submitted.row.name,
        "began": str(submitted.begin),
        "state": str(submitted.row.state),
        "is_dry_run": one.is_dry_run,
        "run_dir": submitted.row.run_dir,
        "logs": str(one.submission.logs),
        "goes_on_from_step": _step(one),
        "put_away": str(submitted.put_away) if submitted.put_away else None,
        "was_mended": submitted.was_mended,
        "remarks": list(one.remarks),
        "would_run": would_run,
    }


def _preview_record(preview: Preview) -> dict[str, Any]:
    world = preview.world
    files = {} if world is None else {str(f.path): f.content for f in world.files}
    return {
        "sbatch": list(preview.sbatch),
        "script": preview.script,
        "launch": None if world is None else list(world.argv),
        "directory": None if world is None else str(world.directory),
        "files": files,
        "problem": preview.problem,
    }


def submitted_text(one: HandedIn) -> str:
    """Return *one* in a few lines."""
    return "".join(f"{one_line(line)}\n" for line in _lines(one))


def preview_text(preview: Preview) -> str:
    """Return what would be run, so that it can be read; words as a shell takes them."""
    lines = ["", "A lease for it; its time limit and deadline follow the hole:"]
    lines += [f"  {one_line(shlex.join(preview.sbatch))}", "Its script:"]
    lines += [f"  {one_line(line)}" for line in preview.script.splitlines()]
    world = preview.world
    if world is None:
        return "".join(f"{line}\n" for line in [*lines, one_line(preview.problem)])
    lines += ["Its smallest world, on invented nodes:"]
    lines += [f"  cd {one_line(shlex.quote(str(world.directory)))}"]
    lines += [f"  {one_line(shlex.join(world.argv))}"]
    lines += [f"with {one_line(str(file.path))}" for file in world.files]
    return "".join(f"{line}\n" for line in lines)


def _step(one: HandedIn) -> int | None:
    return one.submitted.left.step if one.submitted.begin is Begin.GO_ON else None


def _lines(one: HandedIn) -> Iterator[str]:
    name, begin = one.submitted.row.name, one.submitted.begin
    if begin is Begin.SAME:
        yield from _said_before(one)
        return
    done = "would be submitted" if one.is_dry_run else "submitted"
    yield f"{name}: {done}, {_from_where(one)}."
    yield f"run directory: {one.submitted.row.run_dir}"
    yield f"what it prints: {one.submission.logs}"
    if one.submitted.put_away is not None:
        yield f"the earlier {name} is kept in {one.submitted.put_away}"
    if not one.is_dry_run:
        yield f"The next tick looks for nodes. `freetrain status {name}` follows it."


def _from_where(one: HandedIn) -> str:
    step = _step(one)
    if step is not None:
        return f"to go on from step {step}"
    if one.submitted.begin is Begin.GO_ON:
        return "to begin from the start: nothing is committed there"
    if one.submitted.begin is Begin.ANEW:
        return "to begin anew"
    return "to begin from the start"


def _said_before(one: HandedIn) -> Iterator[str]:
    row = one.submitted.row
    mended = " Its files were missing and were written again."
    nothing = " Nothing was done."
    yield (
        f"{row.name} was submitted before with the same job file; it is {row.state}."
        f"{mended if one.submitted.was_mended else nothing}"
    )
    if row.state is TrainerState.PAUSED:
        yield f"`freetrain resume {row.name}` lets it go on."
    elif row.state is not TrainerState.WANTED:
        yield "Submit with --go-on to go on from its last commit, or with --anew."


def cancel(
    ctx: typer.Context,
    names: options.Names,
    *,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Stop trainers for good: each commits, and gives up its nodes."""
    change_and_show(ctx.obj, Verb.CANCEL, names, as_json=as_json, config=config)


def pause(
    ctx: typer.Context,
    names: options.Names,
    *,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Take trainers off their nodes until they are resumed; each commits first."""
    change_and_show(ctx.obj, Verb.PAUSE, names, as_json=as_json, config=config)


def resume(
    ctx: typer.Context,
    names: options.Names,
    *,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Let paused, cancelled or failed trainers go on from their last commits."""
    change_and_show(ctx.obj, Verb.RESUME, names, as_json=as_json, config=config)


def change_and_show(
    context: CliContext,
    verb: Verb,
    names: Sequence[str],
    *,
    as_json: bool,
    config: Path | None,
) -> None:
    """Do *verb* to the trainers *names*, and say what will happen when.

    Raises:
        typer.Exit: It makes no sense for one of them; the others were changed.
        FreeTrainError: Nothing was changed, unless the message says so.
    """
    site = context.site(config)
    state = StateDir(site.state_directory)
    changed = change(state, verb, names, now_s=context.now_s(), uid=context.uid)
    if as_json:
        write_out(context, json_text([_record(one) for one in changed]))
    else:
        write_out(context, "".join(f"{_line(one, verb)}\n" for one in changed))
    if not all(one.is_possible or verb is Verb.CANCEL for one in changed):
        raise typer.Exit(EX_USAGE)


def _record(one: Changed) -> dict[str, Any]:
    return {
        "name": one.row.name,
        "before": str(one.before),
        "state": str(one.row.state),
        "stopping_nodes": one.stopping_nodes,
    }


def _line(one: Changed, verb: Verb) -> str:
    name = one.row.name
    if not one.is_possible:
        return f"{name} is {one.before}: there is nothing to {verb}.{_advice(one)}"
    what = _becomes(one, verb)
    if one.stopping_nodes:
        nodes = nodes_text(one.stopping_nodes)
        return f"{what}: it commits and leaves {nodes} now{_at_most(one)}."
    return f"{what}; it runs nowhere." if verb is not Verb.RESUME else f"{what}."


def _at_most(one: Changed) -> str:
    """Return how long that may take, where its job file tells."""
    job = job_of(one.row)
    if job is None:
        return ""
    longest = render_duration(job.stop.kill_after_s)
    return f", within seconds; it is killed after {longest}"


def _becomes(one: Changed, verb: Verb) -> str:
    name, state = one.row.name, one.row.state
    if not one.is_change:
        return f"{name} was {state} before"
    if verb is Verb.RESUME:
        return f"{name} is {state} again; the next tick looks for nodes for it"
    return f"{name} is {state}"


def _advice(one: Changed) -> str:
    if one.before is TrainerState.FINISHED:
        return " To train it further, submit it with more work and --go-on."
    return ""
