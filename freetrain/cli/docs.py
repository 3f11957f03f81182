"""The verb ``docs``: shows the documents, which are installed with FreeTrain."""

from collections.abc import Mapping
from pathlib import Path

from freetrain.cli.context import CliContext, write_out
from freetrain.errors import UsageError
from freetrain.text import closest

BESIDE = Path(__file__).resolve().parents[1] / "docs"
"""Where a wheel puts them."""

IN_SOURCES = Path(__file__).resolve().parents[2] / "docs"

SHELVES = ("guide", "reference", "notes", "")
"""Folders, "" for pages in none: where several have a page of one name, the first."""


def show_page(context: CliContext, name: str | None) -> None:
    """Show the page called *name*, or list all pages for None.

    Raises:
        UsageError: There is no such page.
    """
    found = pages()
    if name is None:
        width = max(map(len, found))
        lines = [f"{page:{width}}  {_title(path)}" for page, path in found.items()]
        write_out(context, "\n".join([*lines, "", "freetrain docs PAGE", ""]))
        return
    text = _find(name, found).read_text(encoding="utf-8")
    if not context.is_out_terminal:
        write_out(context, text)
        return
    from rich.markdown import Markdown  # noqa: PLC0415 - only where it is seen

    console = context.out()
    with console.pager(styles=True):
        console.print(Markdown(text))


def pages() -> dict[str, Path]:
    """Return the pages by name, such as ``guide/job-file``."""
    folder = BESIDE if BESIDE.is_dir() else IN_SOURCES
    return {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for shelf in SHELVES
        for path in sorted((folder / shelf).glob("*.md"))
    }


def _find(name: str, found: Mapping[str, Path]) -> Path:
    asked = name.removeprefix("docs/").removesuffix(".md")
    for page, path in found.items():
        if asked in {page, path.stem}:
            return path
    near = closest(asked, [*found, *(path.stem for path in found.values())])
    raise UsageError(
        f"there is no page {name!r}.{near} Nothing was shown. `freetrain docs` lists "
        f"all pages."
    )


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as lines:
        return next(lines).removeprefix("# ").replace("`", "").strip()
