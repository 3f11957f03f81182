"""Asking the site's priority: with what the store remembers, and what was learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.errors import BadConfigurationError, UsageError
from freetrain.priority.registry import priority_named
from freetrain.store.memory import memory_of
from freetrain.store.pasts import latest_scalings
from freetrain.tick.rating import Asking, Candidate, rate
from freetrain.tick.worth import AsSaid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.priority.interface import Priority
    from freetrain.quality.outlook import Better, Outlook, Point
    from freetrain.site.settings import PlannerSettings
    from freetrain.tick.deserts import Deserts
    from freetrain.tick.observe import Observed
    from freetrain.tick.run import Run
    from freetrain.tick.worth import Speeds


def deserts_of(run: Run, observed: Observed, *, nodes: int) -> Deserts:
    """Return what the trainers that want nodes deserve.

    Args:
        run: The tick.
        observed: What is so.
        nodes: Idle nodes, held ones included.

    Raises:
        BadConfigurationError: There is no such priority.
        StoreError: What it remembers cannot be read.
        MalformedProblemError: A trainer's speeds make no sense.
    """
    settings = run.site.planner
    priority = priority_of(settings)
    candidates = [
        Candidate(standing=one, job=one.job, learned=observed.learned.get(one.row.name))
        for one in observed.trainers
        if one.job is not None and one.is_wanted
    ]
    asking = Asking(
        settings=settings,
        priority=priority,
        memory=memory_of(run.state, priority.name),
        fit=_outlook_of,
        speeds=_speeds(run, observed),
        nodes=nodes,
        now_s=observed.now_s,
    )
    return rate(candidates, asking)


def _speeds(run: Run, observed: Observed) -> Speeds:
    if not run.site.planner.learn:
        return AsSaid()
    from freetrain.tick.measured import measured_by  # noqa: PLC0415 - only here

    return measured_by(latest_scalings(run.state), now_s=observed.now_s)


def priority_of(settings: PlannerSettings) -> Priority:
    """Return the priority that *settings* name.

    Raises:
        BadConfigurationError: There is none of that name, or it has no such setting.
    """
    try:
        return priority_named(settings.priority, dict(settings.priority_settings))
    except UsageError as error:
        raise BadConfigurationError(f"freetrain.toml: [planner]: {error}") from error


def _outlook_of(points: Sequence[Point], better: Better) -> Outlook | None:
    # Imported here: fits need SciPy, which takes longer than all of a quiet tick.
    from freetrain.quality.broken import broken_outlook  # noqa: PLC0415
    from freetrain.quality.estimate import outlook_from  # noqa: PLC0415
    from freetrain.quality.history import History  # noqa: PLC0415

    history = History(points)
    return outlook_from(history, better) or broken_outlook(history, better)
