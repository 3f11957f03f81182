"""The command ``freetrain``: its verbs, and how errors end it.

A verb's module is imported when the verb is called or explains itself, so that
``freetrain --version``, ``freetrain -h`` and completion stay quick.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from freetrain.cli.context import (
    EX_IOERR,
    EXPECTED,
    INTERRUPTED,
    PIPE_CLOSED,
    CliContext,
    error_line,
    exit_code,
    process_context,
    write_out,
)
from freetrain.errors import UsageError

_HELP = {"help_option_names": ["-h", "--help"]}

VERBS = {
    "replay": (
        "freetrain.cli.replay",
        "Replay a scheduler log and compare policies for training in its holes.",
    ),
    "demo": (
        "freetrain.cli.demo",
        (
            "Replay the sample week that ships under four policies; or, --live, train "
            "here."
        ),
    ),
    "doctor": (
        "freetrain.cli.verbs",
        "Look at this cluster, and at FreeTrain on it; run one short job to prove it.",
    ),
    "submit": (
        "freetrain.cli.verbs",
        "Submit a trainer; a later tick gives it nodes. Submitted twice it is one.",
    ),
    "status": (
        "freetrain.cli.verbs",
        "Show trainers: state, nodes, progress, and why. Slurm is not asked.",
    ),
    "holes": (
        "freetrain.cli.verbs",
        "Show the node × time holes of this cluster, now. Needs no state.",
    ),
    "explain": (
        "freetrain.cli.verbs",
        "Say why trainers have the nodes they have, and what holes are used for.",
    ),
    "curves": (
        "freetrain.cli.verbs",
        "Show measured values, fits and forecasts, and when targets are expected.",
    ),
    "drill": (
        "freetrain.cli.verbs",
        "Take one node from a trainer as Slurm would, and watch what it does.",
    ),
    "logs": (
        "freetrain.cli.verbs",
        "Show what a trainer's program printed, generation by generation.",
    ),
    "cancel": (
        "freetrain.cli.verbs",
        "Stop trainers for good: each commits, and gives up its nodes.",
    ),
    "pause": (
        "freetrain.cli.verbs",
        "Take trainers off their nodes until they are resumed; each commits first.",
    ),
    "resume": (
        "freetrain.cli.verbs",
        "Let paused, cancelled or failed trainers go on from their last commits.",
    ),
    "tick": (
        "freetrain.cli.verbs",
        "Look at Slurm, plan, and act: once. cron calls it every minute.",
    ),
}
"""Each verb's module, whose function of that name is the verb, and its summary."""

TRACE_VERBS = {
    "info": ("freetrain.cli.trace", "Say what a scheduler log holds."),
    "convert": ("freetrain.cli.trace", "Write a scheduler log in another format."),
    "generate": (
        "freetrain.cli.trace",
        "Generate a workload by the Lublin-Feitelson model, as SWF.",
    ),
    "holes": (
        "freetrain.cli.trace",
        "Find the node × time holes that a log's jobs leave idle.",
    ),
}
CRON_VERBS = {
    "show": (
        "freetrain.cli.verbs",
        "Show what install would write, and what is installed; change nothing.",
    ),
    "install": (
        "freetrain.cli.verbs",
        "Have `freetrain tick` run by itself; twice is no mistake.",
    ),
    "remove": (
        "freetrain.cli.verbs",
        "Take the entry out again; without --kind from wherever it is.",
    ),
}
RENAMED = {
    "contest": "freetrain replay --pool N --priority NAME --seeds N --loads X",
}
"""Verbs of earlier releases, and their successors."""


class LazyVerb(TyperCommand):
    """A verb whose module is imported when it is called or explains itself."""

    def __init__(self, name: str, module: str, summary: str) -> None:
        """Take name and summary for lists of verbs, and the module to import later."""
        super().__init__(name=name, help=summary, context_settings=_HELP)
        self._module = module

    @cached_property
    def loaded(self) -> TyperCommand:
        """The verb itself, with its options."""
        module, name = importlib.import_module(self._module), str(self.name)
        alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
        epilog = _examples(module.EXAMPLES[name])
        alone.command(name, epilog=epilog)(getattr(module, name))
        command = typer.main.get_command(alone)
        assert isinstance(command, TyperCommand)  # noqa: S101 - for mypy
        return command

    def make_context(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Typer's
        """Parse a command line as the verb itself does."""
        return self.loaded.make_context(*args, **kwargs)


class RenamedVerb(TyperCommand):
    """A verb of an earlier release: refused, and its successor named."""

    def make_context(self, *_args: Any, **_kwargs: Any) -> NoReturn:  # noqa: ANN401
        """Refuse the verb, whatever its options.

        Raises:
            UsageError: Always.
        """
        old = str(self.name)
        raise UsageError(
            f"`freetrain {old}` is now `{RENAMED[old]}`. Nothing was done. "
            f"`freetrain replay -h` shows how."
        )


def command_line() -> TyperGroup:
    """Return the whole command, its verbs not yet imported."""
    group = _group(_freetrain(), VERBS)
    for name, (app, verbs) in {
        "trace": (_trace(), TRACE_VERBS),
        "cron": (_cron(), CRON_VERBS),
    }.items():
        group.add_command(_group(app, verbs), name)
    for name in RENAMED:
        group.add_command(RenamedVerb(name=name, hidden=True))
    return group


def _group(app: typer.Typer, verbs: dict[str, tuple[str, str]]) -> TyperGroup:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)  # noqa: S101 - for mypy
    for name, (module, summary) in verbs.items():
        group.add_command(LazyVerb(name, module, summary))
    return group


def _freetrain() -> typer.Typer:
    app = typer.Typer(name="freetrain", context_settings=_HELP, rich_markup_mode="rich")

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
        _show_help(ctx)

    return app


def _trace() -> typer.Typer:
    app = typer.Typer(name="trace", add_completion=False, rich_markup_mode="rich")

    @app.callback(
        invoke_without_command=True,
        epilog=_examples("freetrain trace info KTH-SP2.swf.gz"),
    )
    def trace(ctx: typer.Context) -> None:
        """Read, convert and generate scheduler logs; find their holes."""
        _show_help(ctx)

    return app


def _cron() -> typer.Typer:
    app = typer.Typer(name="cron", add_completion=False, rich_markup_mode="rich")

    @app.callback(
        invoke_without_command=True, epilog=_examples("freetrain cron install")
    )
    def cron(ctx: typer.Context) -> None:
        """Have the tick run by itself: crontab, systemd or scrontab."""
        _show_help(ctx)

    return app


def _examples(lines: str) -> str:
    return f"[bold]Examples[/bold]\n\n{lines.strip()}"


def _show_help(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        write_out(ctx.obj, f"{ctx.get_help()}\n")


def _show_version(ctx: typer.Context, value: bool) -> None:  # noqa: FBT001 - Typer's
    if value:
        import importlib.metadata  # noqa: PLC0415 - it takes as long as all the rest

        version = importlib.metadata.version("freetrain")
        write_out(ctx.obj, f"freetrain {version}\n")
        raise typer.Exit


def main(
    argv: Sequence[str] | None = None, *, context: CliContext | None = None
) -> int:
    """Run one command and return its exit code; docs/guide/commands.md lists them.

    Args:
        argv: Words after the program's name; None for those of this process.
        context: What commands read and write; None for this process's own.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    context = process_context() if context is None else context
    try:
        code = command_line().main(
            words, prog_name="freetrain", standalone_mode=False, obj=context
        )
    except EXPECTED as error:
        _show_error(context, error)
        code = exit_code(error)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except SystemExit as left:
        # Rich's way out, exit code 1, where the reader of a help text went away.
        if not isinstance(left.__context__, BrokenPipeError):
            raise
        code = PIPE_CLOSED
    if code == INTERRUPTED:
        context.stderr.write("error: interrupted before the end; no file written.\n")
    if code in (PIPE_CLOSED, EX_IOERR):
        _discard_output(context)
    return int(code or 0)


def _show_error(context: CliContext, error: Exception) -> None:
    """Write *error* to standard error, on one line however long."""
    line = error_line(error)
    if not context.is_terminal:
        context.stderr.write(f"error: {line}\n")
        return
    from rich.text import Text  # noqa: PLC0415 - only where colour is seen

    shown = Text.assemble(("error:", "bold red"), " ", line)
    context.err().print(shown, soft_wrap=True)


def _discard_output(context: CliContext) -> None:
    """Point standard output to /dev/null, so that Python's last flush stays quiet.

    What could not be written is still in its buffer; a second failure would turn
    the exit code into 120.

    Source: the note on SIGPIPE in the documentation of Python's ``signal``.
    """
    if context.stdout is sys.stdout:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
