"""The command ``freetrain``: its verbs, and how errors end it.

A function here is one verb of a site: its name, its options and what ``-h`` says. It
imports the module that does the work when it is called; verbs with many options of
their own, such as ``replay``, stand in modules that are imported when one is called or
explains itself. So ``freetrain --version``, ``-h`` and completion stay quick, and need
no NumPy and no tick (tests/cli/test_app.py).
"""

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from freetrain.cli.context import (
    EX_IOERR,
    EXPECTED,
    INTERRUPTED,
    PIPE_CLOSED,
    AsJson,
    CliContext,
    Config,
    Force,
    Names,
    above_zero,
    duration_s,
    error_line,
    exit_code,
    process_context,
    write_out,
)
from freetrain.errors import UsageError


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


# The verbs of a site and their options.

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
    "status": """
freetrain status

freetrain status digits --watch

freetrain status --json
""",
    "holes": """
freetrain holes

freetrain holes --partition gpu --nodes

freetrain holes --json
""",
    "explain": """
freetrain explain digits

freetrain explain

freetrain explain --json
""",
    "curves": """
freetrain curves

freetrain curves digits --out curves.html

freetrain curves digits --json

freetrain curves --try logs/metrics.csv
""",
    "drill": """
freetrain drill digits

freetrain drill digits --lease n3 --patience 60
""",
    "logs": """
freetrain logs digits --tail 50

freetrain logs -f digits

freetrain logs digits --generation 3 --agent
""",
    "top": """
freetrain top
""",
    "web": """
freetrain web

freetrain web --port 8642
""",
    "tick": """
freetrain tick --dry-run

freetrain tick --follow-up 55s --config ~/.config/freetrain/freetrain.toml
""",
    "docs": """
freetrain docs

freetrain docs job-file
""",
    "schema": """
freetrain schema job

freetrain schema site
""",
    "doctor": """
freetrain doctor

freetrain doctor --no-run --json
""",
    "show": """
freetrain cron show

freetrain cron show --kind systemd --every 30s
""",
    "install": """
freetrain cron install --every 30s --config freetrain.toml

freetrain cron install --kind systemd
""",
    "remove": """
freetrain cron remove

freetrain cron remove --kind systemd
""",
}


def submit(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    job: Annotated[
        Path,
        typer.Argument(
            metavar="JOB.TOML",
            readable=False,
            help="The trainer; `freetrain docs job-file`.",
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
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Submit a trainer; a later tick gives it nodes. Submitted twice it is one."""
    from freetrain.cli.submit import submit_and_show  # noqa: PLC0415
    from freetrain.client.submit import SubmitRequest  # noqa: PLC0415

    context: CliContext = ctx.obj
    request = SubmitRequest(
        path=context.folder / job,
        named=str(job),
        go_on=go_on,
        anew=anew,
        is_checked=not unchecked,
        is_dry_run=dry_run,
    )
    submit_and_show(context, config, request, as_json=as_json)


KindOfFile = Annotated[
    Literal["job", "site"],  # the values of freetrain.config.schema.Described
    typer.Argument(metavar="job|site", help="Of job.toml, or of freetrain.toml."),
]


def schema(ctx: typer.Context, kind: KindOfFile) -> None:
    """Show the JSON Schema by which editors complete and check a file."""
    from freetrain.config.schema import Described, schema_text  # noqa: PLC0415

    write_out(ctx.obj, schema_text(Described(kind)))


def cancel(
    ctx: typer.Context,
    names: Names,
    *,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Stop trainers for good: each commits, and gives up its nodes."""
    from freetrain.cli.submit import change_and_show  # noqa: PLC0415
    from freetrain.client.trainers import Verb  # noqa: PLC0415

    change_and_show(ctx.obj, config, Verb.CANCEL, names, as_json=as_json)


def pause(
    ctx: typer.Context,
    names: Names,
    *,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Take trainers off their nodes until they are resumed; each commits first."""
    from freetrain.cli.submit import change_and_show  # noqa: PLC0415
    from freetrain.client.trainers import Verb  # noqa: PLC0415

    change_and_show(ctx.obj, config, Verb.PAUSE, names, as_json=as_json)


def resume(
    ctx: typer.Context,
    names: Names,
    *,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Let paused, cancelled or failed trainers go on from their last commits."""
    from freetrain.cli.submit import change_and_show  # noqa: PLC0415
    from freetrain.client.trainers import Verb  # noqa: PLC0415

    change_and_show(ctx.obj, config, Verb.RESUME, names, as_json=as_json)


def status(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Only this trainer.")
    ] = None,
    *,
    watch: Annotated[
        bool,
        typer.Option("--watch", metavar="", help="Show it anew every two seconds."),
    ] = False,
    ended: Annotated[
        bool, typer.Option("--all", metavar="", help="Those that ended long ago too.")
    ] = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show trainers: state, nodes, progress, and why. Slurm is not asked."""
    from freetrain.cli.status import show_status  # noqa: PLC0415

    show_status(ctx.obj, config, name, watch=watch, ended=ended, as_json=as_json)


def holes(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    *,
    partition: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Another partition than leases are submitted to.",
            show_default=False,
        ),
    ] = "",
    nodes: Annotated[
        bool, typer.Option("--nodes", metavar="", help="A row for each node.")
    ] = False,
    gpus: Annotated[
        bool,
        typer.Option(
            "--gpus", metavar="", help="Pieces of 1, 2, 4, ... GPUs, by kind of GPU."
        ),
    ] = False,
    job: Annotated[
        Path | None,
        typer.Option(
            "--for",
            metavar="JOB_FILE",
            help="Holes for this trainer, and why other nodes have none.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show the node × time holes of this cluster, now. Needs no state."""
    if gpus and (job is not None or nodes):
        raise UsageError(
            "--gpus goes with neither --for nor --nodes. Nothing was shown; leave one "
            "of them out."
        )
    if gpus:
        from freetrain.cli.holes import show_gpus  # noqa: PLC0415

        show_gpus(ctx.obj, config, partition=partition, as_json=as_json)
        return
    from freetrain.cli.holes import show_holes  # noqa: PLC0415

    show_holes(
        ctx.obj, config, partition=partition, job=job, each=nodes, as_json=as_json
    )


def explain(
    ctx: typer.Context,
    trainer: Annotated[
        str | None,
        typer.Argument(metavar="[TRAINER]", help="Without it all, and every hole."),
    ] = None,
    *,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Say why trainers have the nodes they have, and what holes are used for."""
    from freetrain.cli.explain import explain_and_show  # noqa: PLC0415

    explain_and_show(ctx.obj, config, trainer, as_json=as_json)


def curves(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    trainer: Annotated[
        str | None,
        typer.Argument(metavar="[TRAINER]", help="Without it all that are not over."),
    ] = None,
    *,
    as_json: AsJson = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw them, too: a page without network."),
    ] = None,
    tried: Annotated[
        Path | None,
        typer.Option(
            "--try",
            metavar="FILE",
            help="Show what is understood of a job's progress, or of a file of it.",
        ),
    ] = None,
    force: Force = False,
    config: Config = None,
) -> None:
    """Show measured values, fits and forecasts, and when targets are expected."""
    from freetrain.cli.explain import show_curves, show_tried  # noqa: PLC0415

    if tried is not None:
        if trainer is not None or out is not None:
            raise UsageError("--try goes with neither a trainer nor --out")
        show_tried(ctx.obj, config, tried, as_json=as_json)
        return
    show_curves(ctx.obj, config, trainer, out=out, force=force, as_json=as_json)


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
    from freetrain.cli.drill import run_drill  # noqa: PLC0415

    run_drill(
        ctx.obj, config, trainer, lease=lease, patience_s=patience_s, as_json=as_json
    )


def logs(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The trainer.")],
    *,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", metavar="", help="Go on as it prints more."),
    ] = False,
    generation: Annotated[
        int | None,
        typer.Option(
            metavar="G", min=1, help="Only this one.", show_default="all of them"
        ),
    ] = None,
    tail: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, help="Only the last N lines.", show_default="all"
        ),
    ] = None,
    agent: Annotated[
        bool,
        typer.Option("--agent", metavar="", help="What its agents did instead."),
    ] = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show what a trainer's program printed, generation by generation."""
    from freetrain.cli.trainer_logs import show_logs  # noqa: PLC0415

    show_logs(
        ctx.obj,
        config,
        name,
        follow=follow,
        generation=generation,
        tail=tail,
        agent=agent,
        as_json=as_json,
    )


def top(ctx: typer.Context, *, config: Config = None) -> None:
    """Watch trainers on the whole terminal, with keys to pause, resume and read."""
    try:
        from freetrain.cli.top import watch  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("textual"):
            raise
        raise UsageError(
            "`freetrain top` needs Textual, which is not installed. Nothing was shown. "
            "pip install 'freetrain[top]'; `freetrain status --watch` shows the table "
            "without it."
        ) from error

    watch(ctx.obj, config)


def web(
    ctx: typer.Context,
    *,
    port: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, max=65535, help="Listen here.", show_default="any free"
        ),
    ] = 0,
    config: Config = None,
) -> None:
    """Show the status page in a browser: on this host alone, until interrupted."""
    from freetrain.cli.web import serve  # noqa: PLC0415

    serve(ctx.obj, config, port=port)


Wait = Annotated[
    float,
    typer.Option(
        metavar="TIME",
        parser=duration_s,
        help="Stay so long, to tick again once new leases have begun, and where "
        "leases make room for others before each look of Slurm's backfill.",
    ),
]


def tick(
    ctx: typer.Context,
    *,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", metavar="", help="Show what would be done; write nothing."
        ),
    ] = False,
    follow_up: Wait = "0s",  # type: ignore[assignment] # Typer parses the default
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Look at Slurm, plan, and act: once. cron calls it every minute."""
    from freetrain.cli.tick import tick_and_show  # noqa: PLC0415

    tick_and_show(
        ctx.obj, config, is_dry=dry_run, follow_up_s=follow_up, as_json=as_json
    )


def docs(
    ctx: typer.Context,
    page: Annotated[
        str | None,
        typer.Argument(
            show_default="a list of all", help="Such as guide/job-file, or job-file."
        ),
    ] = None,
) -> None:
    """Show a page of the documents; without a name, list them."""
    from freetrain.cli.docs import show_page  # noqa: PLC0415

    show_page(ctx.obj, page)


NoRun = Annotated[
    bool, typer.Option("--no-run", metavar="", help="Run no job on a compute node.")
]


def doctor(
    ctx: typer.Context,
    *,
    config: Config = None,
    no_run: NoRun = False,
    as_json: AsJson = False,
) -> None:
    """Look at this cluster, and at FreeTrain on it; run one short job to prove it."""
    from freetrain.cli.installation import examine_and_show  # noqa: PLC0415

    examine_and_show(ctx.obj, config, may_run=not no_run, as_json=as_json)


KindName = Literal["crontab", "systemd", "scrontab"]
"""The values of ``freetrain.cron.Kind``."""


def _interval_s(text: str) -> int:
    every_s = duration_s(text)
    if every_s != int(every_s) or every_s < 1:
        raise typer.BadParameter(f"{text} is not a whole number of seconds")
    return int(every_s)


Every = Annotated[
    int,
    typer.Option(
        metavar="TIME", parser=_interval_s, help="Time between two ticks, such as 60s."
    ),
]
Which = Annotated[
    KindName | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="crontab, systemd or scrontab.",
        show_default="the first of them that is here",
    ),
]


def show(
    ctx: typer.Context,
    *,
    kind: Which = None,
    every: Every = "60s",  # type: ignore[assignment] # Typer parses the default
    config: Config = None,
) -> None:
    """Show what install would write, and what is installed; change nothing."""
    from freetrain.cli.installation import show_entry  # noqa: PLC0415

    show_entry(ctx.obj, config, kind, every_s=every)


def install(
    ctx: typer.Context,
    *,
    kind: Which = None,
    every: Every = "60s",  # type: ignore[assignment] # Typer parses the default
    config: Config = None,
) -> None:
    """Have `freetrain tick` run by itself; twice is no mistake."""
    from freetrain.cli.installation import install_entry  # noqa: PLC0415

    install_entry(ctx.obj, config, kind, every_s=every)


def remove(ctx: typer.Context, *, kind: Which = None, config: Config = None) -> None:
    """Take the entry out again; without --kind from wherever it is."""
    from freetrain.cli.installation import remove_entry  # noqa: PLC0415

    remove_entry(ctx.obj, config, kind)


# All verbs, by who needs them and in the order of ``freetrain -h``.

_HELP = {"help_option_names": ["-h", "--help"]}

Verbs = Mapping[str, tuple[str, str] | Callable[..., None]]
"""By name: a verb's function here; or its module, whose function of that name is the
verb, and its summary."""

TRAIN = "Train"
LOOK = "Look"
OPERATE = "Operate"
REPLAY = "Replay"

VERBS: Mapping[str, Verbs] = {
    TRAIN: {
        "run": (
            "freetrain.cli.run",
            "Make a job file of a command, submit it, and follow what it prints.",
        ),
        "init": (
            "freetrain.cli.run",
            "Write a commented job file for a script or command; ask the rest.",
        ),
        "submit": submit,
        "cancel": cancel,
        "pause": pause,
        "resume": resume,
    },
    LOOK: {
        "status": status,
        "top": top,
        "logs": logs,
        "explain": explain,
        "curves": curves,
        "holes": holes,
        "web": web,
        "schema": schema,
        "docs": docs,
    },
    OPERATE: {
        "doctor": doctor,
        "tick": tick,
        "shadow": (
            "freetrain.cli.shadow",
            "Plan as a tick does, submit nothing, and note what was foreseen.",
        ),
        "drill": drill,
    },
    REPLAY: {
        "demo": (
            "freetrain.cli.demo",
            "Replay the two sample weeks that ship; or, --live, train here.",
        ),
        "assess": (
            "freetrain.cli.assess",
            "Say on one page what FreeTrain would do on the machine of a log.",
        ),
        "replay": (
            "freetrain.cli.replay",
            "Replay a scheduler log and compare policies for training in its holes.",
        ),
    },
}
TRACE_VERBS: Verbs = {
    "info": ("freetrain.cli.trace", "Say what a scheduler log holds."),
    "convert": ("freetrain.cli.trace", "Write a scheduler log in another format."),
    "generate": (
        "freetrain.cli.trace",
        "Generate a workload by the Lublin-Feitelson model, as SWF or CSV of GPUs.",
    ),
    "holes": (
        "freetrain.cli.trace",
        "Find the node × time holes that a log's jobs leave idle.",
    ),
}
CRON_VERBS: Verbs = {"show": show, "install": install, "remove": remove}


class LazyVerb(TyperCommand):
    """A verb whose module is imported when it is called or explains itself."""

    def __init__(
        self, name: str, module: str, summary: str, *, role: str | None
    ) -> None:
        """Take what lists of verbs show, and the module to import later."""
        super().__init__(
            name=name, help=summary, rich_help_panel=role, context_settings=_HELP
        )
        self._module = module

    @cached_property
    def loaded(self) -> TyperCommand:
        """The verb itself, with its options."""
        module, name = importlib.import_module(self._module), str(self.name)
        alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
        epilog = _examples(module.EXAMPLES[name])
        settings = getattr(module, "CONTEXT_SETTINGS", {}).get(name)
        alone.command(name, epilog=epilog, context_settings=settings)(
            getattr(module, name)
        )
        command = typer.main.get_command(alone)
        assert isinstance(command, TyperCommand)  # noqa: S101 - for mypy
        for group, options in getattr(module, "OPTION_GROUPS", {}).items():
            for param in command.params:
                if isinstance(param, TyperOption) and param.name in options:
                    param.rich_help_panel = group
        return command

    def make_context(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Typer's
        """Parse a command line as the verb itself does."""
        return self.loaded.make_context(*args, **kwargs)


def command_line() -> TyperGroup:
    """Return the whole command, its verbs not yet imported."""
    group = _as_group(_freetrain())
    for role, verbs in VERBS.items():
        _add(group, verbs, role)
    for app, verbs, role in (
        (_cron(), CRON_VERBS, OPERATE),
        (_trace(), TRACE_VERBS, REPLAY),
    ):
        nested = _as_group(app)
        nested.rich_help_panel = role
        _add(nested, verbs)
        group.add_command(nested)
    return group


def _as_group(app: typer.Typer) -> TyperGroup:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)  # noqa: S101 - for mypy
    return group


def _add(group: TyperGroup, verbs: Verbs, role: str | None = None) -> None:
    for name, verb in verbs.items():
        module, summary = (__name__, verb.__doc__ or "") if callable(verb) else verb
        group.add_command(LazyVerb(name, module, summary, role=role))


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
