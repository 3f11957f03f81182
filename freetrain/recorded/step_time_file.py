"""The table of step times to typed records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.recorded.curve import StepTime
from freetrain.recorded.sheet import read_sheet

if TYPE_CHECKING:
    from collections.abc import Collection

    from freetrain.recorded.sheet import Line

COLUMNS = (
    "name",
    "cpu_percent",
    "step_ms",
    "low_ms",
    "high_ms",
    "used_percent",
    "steps",
    "method",
)


def parse_step_times(
    text: str, *, file: str, names: Collection[str]
) -> dict[str, tuple[StepTime, ...]]:
    """Return the step times of each training, the largest share first.

    Args:
        text: The table.
        file: For messages.
        names: Trainings that there are.

    Raises:
        BadDataError: It is not such a table, or tells of another training, or
            twice of one share; names file, line and reason.
    """
    sheet = read_sheet(text, file=file)
    sheet.expect(COLUMNS)
    found: dict[str, dict[float, StepTime]] = {}
    for line in sheet.rows:
        name, time = line.text("name"), _step_time(line)
        if name not in names:
            line.refuse("name", "the name of a recorded training")
        shares = found.setdefault(name, {})
        if time.cpu_percent in shares:
            line.refuse("cpu_percent", f"every share of {name} once")
        shares[time.cpu_percent] = time
    return {
        name: tuple(shares[share] for share in sorted(shares, reverse=True))
        for name, shares in found.items()
    }


def _step_time(line: Line) -> StepTime:
    low_s, step_s, high_s = (
        line.positive(column) / 1000 for column in ("low_ms", "step_ms", "high_ms")
    )
    if not low_s <= step_s <= high_s:
        line.refuse("step_ms", "a time from low_ms to high_ms")
    return StepTime(
        cpu_percent=line.positive("cpu_percent"),
        step_s=step_s,
        low_s=low_s,
        high_s=high_s,
        used_percent=line.positive("used_percent"),
        steps=line.whole("steps"),
        method=line.text("method"),
    )
