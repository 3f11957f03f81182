"""How often: intervals that a crontab can hold, as its five fields and a delay."""

from __future__ import annotations

from dataclasses import dataclass

from freetrain.cron.errors import CronUnfitError

MINUTE_S = 60
HOUR_S = 3_600
SHORTEST_S = 10
LONGEST_S = HOUR_S


@dataclass(frozen=True, slots=True)
class Entry:
    """One line's time.

    Attributes:
        fields: The five fields.
        delay_s: How long the command then sleeps.
    """

    fields: str
    delay_s: int


def entries(every_s: int, *, jitter_s: int) -> tuple[Entry, ...]:
    """Return the lines that start something every *every_s*, *jitter_s* late.

    Below a minute there are several lines, which sleep to their own second.

    Args:
        every_s: 10, 12, 15, 20 or 30, or minutes that divide the hour, in seconds.
        jitter_s: 0 or more, less than *every_s*.

    Raises:
        CronUnfitError: An interval that a crontab keeps only roughly.
    """
    if every_s < MINUTE_S:
        _check(every_s >= SHORTEST_S and MINUTE_S % every_s == 0, every_s)
        starts = range(jitter_s, MINUTE_S, every_s)
        return tuple(Entry("* * * * *", delay_s) for delay_s in starts)
    _check(every_s % MINUTE_S == 0 and HOUR_S % every_s == 0, every_s)
    minute, delay_s = divmod(jitter_s, MINUTE_S)
    return (Entry(f"{_minutes(minute, every_s // MINUTE_S)} * * * *", delay_s),)


def _minutes(first: int, step: int) -> str:
    if step == 1:
        return "*"
    if step == MINUTE_S:
        return str(first)
    return f"{first}-59/{step}"


def _check(is_good: object, every_s: int) -> None:
    if not is_good:
        raise CronUnfitError(
            f"a crontab cannot start something every {every_s} s. Nothing was "
            f"installed; use 10s, 15s, 20s, 30s, or minutes that divide the hour "
            f"(1min, 2min, 5min, …)."
        )
