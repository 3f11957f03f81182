"""``freetrain assess``: one page on what FreeTrain would do on the machine of a log."""

import importlib.metadata
import shlex
from pathlib import Path
from typing import Annotated

import typer

from freetrain.api.writing import write_file
from freetrain.cli.context import (
    AsJson,
    CliContext,
    CoresPerNode,
    Force,
    GpusPerNode,
    SkipBad,
    given_log,
    json_text,
    write_out,
)
from freetrain.text import option_words

EXAMPLES = {
    "assess": """
freetrain assess sacct.txt

freetrain assess sacct.txt --gpus-per-node 8 --out gpus.html

freetrain assess KTH-SP2.swf.gz --json
""",
}
DEFAULT_PAGE = Path("freetrain-assess.html")


def assess(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    log: Annotated[
        Path,
        typer.Argument(
            metavar="LOG",
            readable=False,  # opening it fails with exit code 66
            help="A scheduler log, as sacct prints it or another that is read.",
        ),
    ],
    *,
    cores_per_node: CoresPerNode = None,
    gpus_per_node: GpusPerNode = None,
    skip_bad: SkipBad = 0,
    as_json: AsJson = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The page.", show_default=str(DEFAULT_PAGE)),
    ] = None,
    force: Force = False,
) -> None:
    """Say on one page what FreeTrain would do on the machine of a log."""
    # Imported here, so that `freetrain assess -h` stays quick.
    from freetrain.api.assess import assess as assess_log  # noqa: PLC0415
    from freetrain.report.assessment import (  # noqa: PLC0415
        render_page,
        summary_lines,
    )

    context: CliContext = ctx.obj
    found = given_log(context, log, cores_per_node, gpus_per_node, skip_bad)
    assessment = assess_log(found, context)
    page = out or (None if as_json else DEFAULT_PAGE)
    if page is not None:
        text = render_page(
            assessment,
            command=_command(log, cores_per_node, gpus_per_node, skip_bad),
            version=importlib.metadata.version("freetrain"),
        )
        # Our own page of an earlier log may go: run twice is fine.
        force = force or out is None
        write_file(context.cwd / page, text.encode("utf-8"), force=force)
    if as_json:
        write_out(context, json_text(assessment, indent=2, allow_nan=False))
        return
    lines = [*summary_lines(assessment), "", f"What a log cannot tell: {page}"]
    write_out(context, "".join(f"{line}\n" for line in lines))


def _command(
    log: Path, cores_per_node: int | None, gpus_per_node: int | None, skip_bad: int
) -> str:
    """Return the command line that makes the page again."""
    given = {
        "cores-per-node": cores_per_node,
        "gpus-per-node": gpus_per_node,
        "skip-bad": skip_bad or None,
    }
    return shlex.join(["freetrain", "assess", str(log), *option_words(given)])
