"""A progress bar where somebody watches, nothing where nobody does."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from freetrain.cli.world import World


@contextmanager
def progress(world: World, what: str) -> Iterator[Callable[[float], None] | None]:
    """Give a function that takes the fraction done, or None where nobody watches."""
    if not world.is_terminal:
        yield None
        return
    from rich.progress import Progress  # noqa: PLC0415 - only where it is seen

    with Progress(console=world.err(), transient=True) as shown:
        task = shown.add_task(what, total=1.0)
        yield lambda fraction: shown.update(task, completed=fraction)
