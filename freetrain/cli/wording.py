"""Times, nodes, packs and reasons in words that several screens share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from freetrain.broker.decide import TrainerReason
from freetrain.client.status import Doing, Overview, Standing
from freetrain.pack.pack import End, Line, Record, how_it_failed
from freetrain.state.files import BROKER, USER
from freetrain.state.tables import Delivery, Stage, TrainerState
from freetrain.text import counted, one_line, per_cent
from slurm.hostlist import collapse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from freetrain.tick.status_report import TrainerLine

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_FEW = 10
"""Below so many of a unit the next smaller one is shown as well."""


def age_text(seconds: float) -> str:
    """Return *seconds* roughly, such as ``45 s``, ``2 min 5 s`` or ``13 h``."""
    left = max(0, int(seconds))
    for number, (size, unit) in enumerate(_UNITS):
        if left >= size:
            count, rest = divmod(left, size)
            smaller = _UNITS[number + 1 :][:1] if count < _FEW else ()
            extra = [f"{rest // s} {u}" for s, u in smaller if rest >= s]
            return " ".join([f"{count} {unit}", *extra])
    return "0 s"


def short_age(seconds: float) -> str:
    """Return *seconds* in one unit, such as ``45 s`` or ``2 min``."""
    count, unit, *_ = age_text(seconds).split(" ")
    return f"{count} {unit}"


def ago(time_s: float, now_s: float) -> str:
    """Return how long before *now_s* *time_s* was."""
    return f"{age_text(now_s - time_s)} ago"


def clock_text(time_s: float) -> str:
    """Return *time_s* as a date and time of the day in UTC, to the second.

    Times outside of the calendar are shown as a number.
    """
    try:
        return f"{datetime.fromtimestamp(time_s, tz=UTC):%Y-%m-%d %H:%M:%S}Z"
    except (OverflowError, ValueError, OSError):
        return f"{time_s:g}"


def nodes_text(nodes: int) -> str:
    """Return ``1 node``, ``3 nodes`` or ``no node``."""
    return counted(nodes, "node") if nodes else "no node"


def nodes_named(names: Iterable[str]) -> str:
    """Return ``n[1-3]``; one by one where a name is none; empty for no names."""
    names = tuple(names)
    try:
        return one_line(collapse(names))
    except ValueError:
        return one_line(", ".join(names))


def maker_text(author: str) -> str:
    """Return who *author* is: a lease's name, two lines long, tells nobody anything."""
    return author if author in {BROKER, USER} else "its agents"


def reason_of(one: Standing, seen: Overview) -> str:
    """Return why *one* is as it is; empty where there is nothing to explain."""
    if one.problem:
        return one.problem
    if one.doing is Doing.FAILED:
        return one.row.message or _last_words(one)
    if one.row.state is not TrainerState.WANTED or one.doing is Doing.FINISHED:
        return one.row.message
    if one.doing is Doing.STOPPING and one.worlds.newest is not None:
        return one.worlds.newest.reason
    return _told(one, seen.of_trainer(one.row.name))


def _told(one: Standing, line: TrainerLine | None) -> str:
    """Return what the last tick said of it, but where all is as it should be."""
    if line is None or line.problem:
        return "" if line is None else line.problem
    if line.reason in {"", TrainerReason.AS_PLANNED}:
        return ""
    if line.reason == TrainerReason.RE_FORMS and one.nodes == line.planned_nodes:
        return ""  # the tick moved it after it had looked
    return f"{line.reason}{f' ({line.brake})' if line.brake else ''}."


def _last_words(one: Standing) -> str:
    ending = one.worlds.ending
    return "" if ending is None else f"{ending.ended.words}: {ending.message}"


def aim_lines(one: Standing, seen: Overview) -> Iterator[str]:
    """Yield what there is to know of the quality of *one*, a sentence a line."""
    line = seen.of_trainer(one.row.name)
    if line is not None and line.is_diverging:
        yield (
            "it is diverging: its last values are no numbers, or far worse than its "
            "best."
        )
    delivery = seen.delivery_of(one.row)
    if delivery is not None:
        yield from _delivery(one, delivery)


def _delivery(one: Standing, delivery: Delivery) -> Iterator[str]:
    metric = "" if one.job is None else f"{one.job.measure.metric} "
    at = f"{metric}{delivery.value:.6g}"
    step = "" if delivery.step is None else f", step {delivery.step:,}"
    if delivery.stage is Stage.DELIVERED:
        target = None if one.job is None else one.job.target
        place = target.publish if target is not None and delivery.checkpoint else None
        where = "" if place is None else f", in {place}"
        yield f"delivered at {at}{step}{where}."
    else:
        yield f"its target is reached at {at}{step}; it is being delivered."
    if delivery.problem:
        yield f"{delivery.problem}."


def pack_line(pack: Record) -> str:
    """Return how many of its members are over."""
    lines = pack.members.values()
    if not lines:
        return "no member was started so far"
    failed = [(name, line) for name, line in pack.members.items() if _failed(line)]
    over = f"{sum(line.is_over for line in lines)} of {len(lines)} members are over"
    if not failed:
        return over
    # Those that are tried again may be well in a moment.
    ended = [
        f"; {name} {how_it_failed(line)}"
        for name, line in failed
        if line.again_s is None
    ]
    return f"{over}, {len(failed)} failed{''.join(ended)}"


def member_lines(pack: Record) -> Iterator[str]:
    """Yield how each member stands, in the order in which they came."""
    for name, line in pack.members.items():
        yield f"{name}: {_stand(line, pack.shares.get(name))}"


def pack_record(pack: Record) -> dict[str, Any]:
    """Return the members of *pack*, for ``--json``; what is not known is null."""
    return {
        "means": pack.means or None,
        "members": [
            {
                "name": name,
                "end": line.end or None,
                "is_over": line.is_over,
                "step": line.steps,
                "samples": line.samples,
                "share": None if line.end else pack.shares.get(name),
                "failures": line.failures,
                "message": line.message or None,
                "is_tried_again": line.again_s is not None,
            }
            for name, line in pack.members.items()
        ],
    }


def _stand(line: Line, share: float | None) -> str:
    step = f"step {line.steps:,}"
    if _failed(line):
        again = "is tried again, " if line.again_s is not None else ""
        return f"{again}{step}, {how_it_failed(line)}"
    if line.end:
        return f"{line.end}, {step}"
    return step if share is None else f"{step}, {per_cent(share)} of the CPUs"


def _failed(line: Line) -> bool:
    return line.end == End.FAILED
