"""The command ``freetrain``: its verbs, and one way out for whatever goes wrong."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from freetrain.cli import (
    cancel,
    contest,
    cron,
    curves,
    demo,
    doctor,
    drill,
    exits,
    explain,
    holes,
    logs,
    pause,
    replay,
    resume,
    status,
    submit,
    tick,
    trace_convert,
    trace_generate,
    trace_holes,
    trace_info,
)
from freetrain.cli.output import write_out
from freetrain.cli.world import World, real_world

_HELP = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    name="freetrain",
    context_settings=_HELP,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _examples(lines: str) -> str:
    return f"[bold]Examples[/bold]\n\n{lines.strip()}"


def _show_version(ctx: typer.Context, value: bool) -> None:  # noqa: FBT001 - Typer's
    if value:
        import importlib.metadata  # noqa: PLC0415 - it takes as long as all the rest

        version = importlib.metadata.version("freetrain")
        write_out(ctx.obj, f"freetrain {version}\n")
        raise typer.Exit


@app.callback(
    invoke_without_command=True,
    epilog=_examples("freetrain demo\n\nfreetrain replay LOG --out report"),
)
def freetrain(
    ctx: typer.Context,
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            metavar="",
            is_eager=True,
            callback=_show_version,
            help="Show the version.",
        ),
    ] = False,
) -> None:
    """Train neural networks on the nodes that Slurm leaves idle."""
    del version
    if ctx.invoked_subcommand is None:
        write_out(ctx.obj, f"{ctx.get_help()}\n")


trace = typer.Typer(rich_markup_mode="rich")


@trace.callback(
    invoke_without_command=True,
    epilog=_examples("freetrain trace info KTH-SP2.swf.gz"),
)
def trace_verbs(ctx: typer.Context) -> None:
    """Read, convert and generate scheduler logs; find their holes."""
    if ctx.invoked_subcommand is None:
        write_out(ctx.obj, f"{ctx.get_help()}\n")


app.command(epilog=_examples(replay.EXAMPLES))(replay.replay)
app.command(epilog=_examples(contest.EXAMPLES))(contest.contest)
app.command(epilog=_examples(demo.EXAMPLES))(demo.demo)
app.command(epilog=_examples(doctor.EXAMPLES))(doctor.doctor)
app.command(epilog=_examples(submit.EXAMPLES))(submit.submit)
app.command(epilog=_examples(status.EXAMPLES))(status.status)
app.command(epilog=_examples(holes.EXAMPLES))(holes.holes)
app.command(epilog=_examples(explain.EXAMPLES))(explain.explain)
app.command(epilog=_examples(curves.EXAMPLES))(curves.curves)
app.command(epilog=_examples(drill.EXAMPLES))(drill.drill)
app.command(epilog=_examples(logs.EXAMPLES))(logs.logs)
app.command(epilog=_examples(cancel.EXAMPLES))(cancel.cancel)
app.command(epilog=_examples(pause.EXAMPLES))(pause.pause)
app.command(epilog=_examples(resume.EXAMPLES))(resume.resume)
app.command(epilog=_examples(tick.EXAMPLES))(tick.tick)
app.add_typer(trace, name="trace")
trace.command(epilog=_examples(trace_info.EXAMPLES))(trace_info.info)
trace.command(epilog=_examples(trace_convert.EXAMPLES))(trace_convert.convert)
trace.command(epilog=_examples(trace_generate.EXAMPLES))(trace_generate.generate)
trace.command(epilog=_examples(trace_holes.EXAMPLES))(trace_holes.holes)

schedule = typer.Typer(rich_markup_mode="rich")


@schedule.callback(
    invoke_without_command=True,
    epilog=_examples("freetrain cron install"),
)
def cron_verbs(ctx: typer.Context) -> None:
    """Have the tick run by itself: crontab, systemd or scrontab."""
    if ctx.invoked_subcommand is None:
        write_out(ctx.obj, f"{ctx.get_help()}\n")


app.add_typer(schedule, name="cron")
schedule.command(epilog=_examples(cron.SHOW_EXAMPLES))(cron.show)
schedule.command(epilog=_examples(cron.INSTALL_EXAMPLES))(cron.install)
schedule.command(epilog=_examples(cron.REMOVE_EXAMPLES))(cron.remove)


def main(argv: Sequence[str] | None = None, *, world: World | None = None) -> int:
    """Run one command and return its exit code; docs/commands.md lists them.

    Args:
        argv: Words after the program's name; None for those of this process.
        world: What is outside; None for the real one.
    """
    words = sys.argv[1:] if argv is None else argv
    outside = real_world() if world is None else world
    try:
        code = app(words, prog_name="freetrain", standalone_mode=False, obj=outside)
    except exits.EXPECTED as error:
        exits.show_error(outside, error)
        code = exits.exit_code(error)
    except KeyboardInterrupt:
        code = exits.INTERRUPTED
    except SystemExit as left:
        # Rich's way out, exit code 1, where the reader of a help text went away.
        if not isinstance(left.__context__, BrokenPipeError):
            raise
        code = exits.PIPE_CLOSED
    if code == exits.INTERRUPTED:
        outside.stderr.write("error: interrupted before the end; no file written.\n")
    if code in (exits.PIPE_CLOSED, exits.EX_IOERR):
        _forget(outside)
    return int(code or 0)


def _forget(world: World) -> None:
    """Point standard output nowhere, so that Python's own last flush stays quiet.

    What could not be written is still in its buffer; a second failure would turn
    the exit code into 120.

    Source: the note on SIGPIPE in the documentation of Python's ``signal``.
    """
    if world.stdout is sys.stdout:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
