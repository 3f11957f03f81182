"""Asking the site's priority: with what the store remembers, and what was learned."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from freetrain.errors import BadConfigurationError, UsageError
from freetrain.priority.registry import priority_named
from freetrain.store.memory import memory_of
from freetrain.store.outlooks import outlook_kept
from freetrain.store.pasts import latest_scalings
from freetrain.tick.outlooks import KeptOutlooks
from freetrain.tick.rating import Asking, Candidate, rate
from freetrain.tick.worth import AsSaid

if TYPE_CHECKING:
    from freetrain.priority.interface import Priority
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
    outlooks = KeptOutlooks(lambda name, told: outlook_kept(run.state, name, told=told))
    asking = Asking(
        settings=settings,
        priority=priority,
        memory=memory_of(run.state, priority.name),
        fit=outlooks.look,
        speeds=_speeds(run, observed),
        nodes=nodes,
        now_s=observed.now_s,
    )
    return replace(rate(candidates, asking), fresh=tuple(outlooks.fresh))


def _speeds(run: Run, observed: Observed) -> Speeds:
    settings = run.site.planner
    if not settings.learn:
        return AsSaid()
    # Imported here: who does not learn needs none of it.
    from freetrain.scaling.caution import deviations_for  # noqa: PLC0415
    from freetrain.scaling.profiling import Profiling  # noqa: PLC0415
    from freetrain.tick.measured import measured_by  # noqa: PLC0415

    profiling = Profiling(trial_s=settings.t_fwd_s) if settings.profile else None
    scalings = latest_scalings(run.state)
    return measured_by(
        scalings,
        now_s=observed.now_s,
        profiling=profiling,
        deviations=deviations_for(settings.priority),
    )


def priority_of(settings: PlannerSettings) -> Priority:
    """Return the priority that *settings* name.

    Raises:
        BadConfigurationError: There is none of that name, or it has no such setting.
    """
    try:
        return priority_named(settings.priority, dict(settings.priority_settings))
    except UsageError as error:
        raise BadConfigurationError(f"freetrain.toml: [planner]: {error}") from error
