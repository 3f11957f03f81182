"""Options that would change nothing: refused, or a figure is taken for another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.cli.request import is_drawn
from freetrain.errors import UsageError
from freetrain.quality.outlook import Better

if TYPE_CHECKING:
    from freetrain.cli.request import ReplayRequest


def refuse_unused(request: ReplayRequest) -> None:
    """Refuse what *request* was given beside what would make use of it.

    Raises:
        UsageError: There is such an option.
    """
    for needed, given in _unused(request).items():
        for option, is_given in given.items():
            if is_given:
                raise UsageError(
                    f"{option} is for {needed}; nothing was replayed. Leave it out."
                )


def _unused(request: ReplayRequest) -> dict[str, dict[str, bool]]:
    """Return by what is missing which options, that need it, are given."""
    has_log, has_draw = request.log is not None, is_drawn(request.trainers)
    has_curves, is_lower = request.curves is not None, request.better is Better.LOWER
    return {
        "replays of a log": {
            "--schedule": not has_log and request.schedule != "recorded",
            "--nodes": not has_log and request.nodes is not None,
            "--start": not has_log and request.start_s > 0,
            "--skip-bad": not has_log and request.skip_bad > 0,
        },
        "--trainers quality:N": {
            "--load": not has_draw and request.load != 1.0,
            "--curves": not has_draw and has_curves,
        },
        "--curves": {"--better": is_lower and not has_curves},
    }
