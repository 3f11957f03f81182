"""Looking at the ticks: what starts them, when was the last one, what they plan by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.cron.surroundings import ticks_of
from freetrain.doctor.finding import ok, skipped, warn
from freetrain.errors import FreeTrainError
from freetrain.exchange.layout import StateDir
from freetrain.forecast.interface import DEFAULT_FORECASTER
from freetrain.site.settings import PolicyName
from freetrain.toml.duration import render_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.doctor.finding import Finding
    from freetrain.doctor.subject import Subject
    from freetrain.site.settings import PlannerSettings

_OLD_S = 600.0
_INSTALL = "Run `freetrain cron install` when you want it to work by itself."


def look_at_ticks(subject: Subject) -> Iterator[Finding]:
    """Find what starts ticks, the age of the last one, and what plans are made by."""
    yield _look_at_entries(subject)
    yield _look_at_last(subject)
    yield _look_at_planner(subject.site.planner)


def _look_at_entries(subject: Subject) -> Finding:
    name = "regular ticks"
    ticks = ticks_of(
        subject.site,
        python=subject.python,
        environ=subject.environ,
        uid=subject.uid,
        programs=subject.programs,
    )
    found, unseen = [], []
    for kind in ticks.kinds_here():
        try:
            if ticks.installed(kind):
                found.append(str(kind))
        except FreeTrainError as error:
            unseen.append(f"{kind}: {error}")
    if found:
        return ok(name, f"installed ({', '.join(found)}) on this host")
    if unseen:
        return warn(name, "; ".join(unseen), _INSTALL)
    if not ticks.kinds_here():
        return skipped(name, "no crontab, systemctl or scrontab on this host")
    return warn(name, "not installed on this host", _INSTALL)


def _look_at_last(subject: Subject) -> Finding:
    name = "last tick"
    try:
        last_s = StateDir(subject.site.state_directory).log.stat().st_mtime
    except FileNotFoundError:
        return skipped(name, "there was none yet")
    age_s = max(0.0, subject.now_s() - last_s)
    seen = f"{render_duration(age_s)} ago"
    if age_s > _OLD_S:
        return warn(name, seen, "Run `freetrain tick` and read what it says.")
    return ok(name, seen)


def _look_at_planner(planner: PlannerSettings) -> Finding:
    name = "planner"
    seen = f'policy "{planner.policy}", priority "{planner.priority}"'
    if planner.policy is PolicyName.LOOKAHEAD:
        return ok(name, f'{seen}, forecaster "{planner.forecaster}"')
    if planner.forecaster != DEFAULT_FORECASTER:
        return warn(
            name,
            f'the policy "{planner.policy}" asks no forecaster, and '
            f'"{planner.forecaster}" is named',
            'Set policy = "lookahead" under [planner], or leave forecaster out.',
        )
    return ok(name, seen)
