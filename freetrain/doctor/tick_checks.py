"""Looking at the ticks: does anything start them, and when was the last one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.cron.surroundings import ticks_of
from freetrain.doctor.finding import ok, skipped, warn
from freetrain.errors import FreeTrainError
from freetrain.exchange.layout import StateDir
from freetrain.toml.duration import render_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.doctor.finding import Finding
    from freetrain.doctor.subject import Subject

_OLD_S = 600.0
_INSTALL = "Run `freetrain cron install` when you want it to work by itself."


def look_at_ticks(subject: Subject) -> Iterator[Finding]:
    """Find what starts ticks, and the age of the last one."""
    yield _look_at_entries(subject)
    yield _look_at_last(subject)


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
