"""Options that would change nothing: refused, or a figure is taken for another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.cli.request import DRAWN, is_drawn
from freetrain.errors import UsageError
from freetrain.losscurve.outlook import Better
from freetrain.planning.settings import RATED_POLICIES
from freetrain.replay.settings import DEFAULT_PRIORITY
from freetrain.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from freetrain.cli.request import ReplayRequest
    from freetrain.replay.trainers import TrainerSpec


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


def refuse_against(request: ReplayRequest, trainers: Iterable[TrainerSpec]) -> None:
    """Refuse a baseline where none of *trainers* has what is held against it.

    Raises:
        UsageError: None has a quality curve.
    """
    if request.against is None or any(one.quality is not None for one in trainers):
        return
    raise UsageError(
        f"--against is for trainers with quality curves, and of "
        f"{one_line(request.trainers)} none has one; nothing was replayed. Leave it "
        f"out, or say --trainers {DRAWN}20."
    )


def _unused(request: ReplayRequest) -> dict[str, dict[str, bool]]:
    """Return by what is missing which options, that need it, are given."""
    has_log, has_draw = request.log is not None, is_drawn(request.trainers)
    has_curves, is_lower = request.curves is not None, request.better is Better.LOWER
    rates = not set(RATED_POLICIES).isdisjoint(request.policies)
    plans = rates or "static" in request.policies
    return {
        "replays of a log": {
            "--schedule": not has_log and request.schedule != "recorded",
            "--nodes": not has_log and request.nodes is not None,
            "--start": not has_log and request.start_s > 0,
            "--skip-bad": not has_log and request.skip_bad > 0,
            "--topology": not has_log and request.topology is not None,
        },
        "the policy lookahead": {
            "--topology": not request.looks_ahead and request.topology is not None,
            "--forecaster": not request.looks_ahead and bool(request.forecasters),
        },
        "--trainers quality:N": {
            "--load": not has_draw and request.load != 1.0,
            "--curves": not has_draw and has_curves,
        },
        "--curves": {"--better": is_lower and not has_curves},
        f"the policies {', '.join((*RATED_POLICIES, 'static'))}": {
            "--priority": not plans and request.priorities != (DEFAULT_PRIORITY,)
        },
        f"the policies {', '.join(RATED_POLICIES)}": {
            "a second --priority": not rates and len(request.priorities) > 1,
            "--learned": not rates and request.settings.learns_speeds,
        },
    }
