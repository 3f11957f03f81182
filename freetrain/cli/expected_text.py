"""What was expected of nodes and what came, for people."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from freetrain.cli.node_names import nodes_named
from freetrain.cli.times import ago, clock_text, nodes_text, short_age
from freetrain.text import per_cent

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from freetrain.lookahead.base import Expected
    from freetrain.lookahead.calibration import Interval
    from freetrain.tick.page import CameLine, Page

_MOST_CAME = 6


def expected_lines(
    page: Page, now_s: float, *, nodes: Collection[str] | None = None
) -> Iterator[str]:
    """Yield what is expected of nodes, those alike in one line.

    Args:
        page: The last tick's.
        now_s: Unix time.
        nodes: Those to tell of; None for every hole.
    """
    told = [
        (hole.node, hole.expected)
        for hole in page.holes
        if hole.expected is not None and (nodes is None or hole.node in nodes)
    ]
    alike: dict[str, list[str]] = defaultdict(list)
    for node, expected in told:
        alike[_said(expected, now_s)].append(node)
    for said, names in alike.items():
        yield f"Expected of {nodes_named(names)}: {said}"
    if nodes is None:
        yield from _line(told)
    if any(expected.is_learning for _, expected in told):
        yield "Too little was seen of these nodes so far to plan by that."


def came_text(page: Page, now_s: float) -> list[str]:
    """Return what came of leases that ended last, of promises, and of neighbours."""
    leases = [_came(one, now_s) for one in page.came[:_MOST_CAME]]
    return [*leases, *map(_promised, page.promises), *_leaves(page)]


def _said(one: Expected, now_s: float) -> str:
    odds = f"{per_cent(one.leaves)} to leave within {short_age(one.horizon_s)}"
    stays = f"as likely as not to stay {short_age(one.even_s)} or longer"
    parts = [odds, stays if one.even_s else "more likely than not gone in a minute"]
    if one.together > 1:
        parts.append(f"together with {nodes_text(one.together - 1)} more")
    if one.run > 1:
        times = f"{one.times_in_line:.1f} times as likely as others"
        parts.append(f"for its place in line {times}")
    if one.promised_s is not None:
        left_s = one.promised_s - now_s
        when = f"in {short_age(left_s)}" if left_s >= 0.0 else "now, which is overdue"
        parts.append(f"promised to somebody's job {when}")
    return "; ".join(parts) + "."


def _line(told: Sequence[tuple[str, Expected]]) -> Iterator[str]:
    """Yield which of all nodes go first, where they go by their place in line."""
    times = {node: one.times_in_line for node, one in told if one.run > 1}
    if not times:
        return
    run = max(one.run for _, one in told)
    yield f"Neighbours by name leave together here, up to {nodes_text(run)} in a row."
    first, last = max(times.values()), min(times.values())
    if first > last:
        ends = (
            nodes_named(node for node, one in times.items() if one == end)
            for end in (first, last)
        )
        yield "For their place among them {} are expected first, {} last.".format(*ends)


def _came(one: CameLine, now_s: float) -> str:
    lived = short_age(one.ended_s - one.at_s)
    said = f"{per_cent(one.leaves)} to leave within {short_age(one.horizon_s)}"
    promise = ""
    if one.promised_s is not None:
        promise = f", promised away at {clock_text(one.promised_s)}"
    return (
        f"{ago(one.ended_s, now_s)}: the lease on {one.node} was over after {lived} "
        f"({one.came}); expected were {said}{promise}."
    )


def _promised(one: Interval) -> str:
    return (
        f"Of {nodes_text(one.nodes)} promised {short_age(one.lead_s)} ahead or more, "
        f"{per_cent(one.early)} left early and {per_cent(one.late)} late; eight of "
        f"ten between {_after(one.low_s)} and {_after(one.high_s)}, half by "
        f"{_after(one.middle_s)}."
    )


def _leaves(page: Page) -> Iterator[str]:
    if page.leaves and page.leaf_rate is not None:
        yield (
            f"Slurm tells {page.leaves} leaf switches or blocks: two idle nodes below "
            f"one are taken to leave together {per_cent(page.leaf_rate)} of the times "
            f"that either leaves."
        )


def _after(seconds: float) -> str:
    return f"{short_age(abs(seconds))} {'early' if seconds < 0.0 else 'late'}"
