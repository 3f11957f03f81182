"""The state page in numbers, in the text format of Prometheus.

Source: the exposition format, version 0.0.4. A node exporter's textfile collector
reads such a file; FreeTrain listens on no port.
"""

from __future__ import annotations

from collections import Counter as Count
from typing import TYPE_CHECKING

from freetrain.broker.lease import LeaseState
from freetrain.store.counters import Counter
from freetrain.store.trainers import TrainerState
from milp.planner import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from freetrain.tick.page import Page

_COUNTERS = {
    Counter.TICKS: ("ticks_total", "Ticks that came to their end."),
    Counter.FAILED_TICKS: ("failed_ticks_total", "Ticks that did not."),
    Counter.REQUESTS: ("slurm_requests_total", "Slurm commands run."),
    Counter.LEASES_ASKED: ("leases_asked_total", "Leases asked for."),
    Counter.GENERATIONS: (
        "generations_total",
        "Generations of trainers, those that only start or stop one included.",
    ),
    Counter.IDLE_NODE_S: (
        "idle_node_seconds_total",
        "Time of nodes that were idle or ours, as ticks saw it.",
    ),
    Counter.LEASED_NODE_S: (
        "leased_node_seconds_total",
        "Time of nodes that leases held.",
    ),
    Counter.TRAINING_NODE_S: (
        "training_node_seconds_total",
        "Time of nodes that trainers had; over idle time it is the coverage.",
    ),
    Counter.KEPT_PLANS: ("kept_plans_total", "Ticks whose planner had no plan."),
}


def metrics(page: Page, sums: Mapping[Counter, float]) -> str:
    """Return the metrics file."""
    lines: list[str] = []
    for counter, (name, what) in _COUNTERS.items():
        lines += _metric(name, "counter", what, [("", sums[counter])])
    for name, what, values in _gauges(page):
        lines += _metric(name, "gauge", what, values)
    return "".join(f"{line}\n" for line in lines)


def _gauges(
    page: Page,
) -> Iterable[tuple[str, str, list[tuple[str, float]]]]:
    leases = Count(lease.state for lease in page.leases)
    states = [s for s in LeaseState if s is not LeaseState.GONE]
    trainers = Count(trainer.state for trainer in page.trainers)
    yield "last_tick_timestamp_seconds", "When it looked.", [("", page.at_s)]
    yield "last_tick_seconds", "How long it took.", [("", page.took_s)]
    yield "planner_seconds", "How long deciding took.", [("", page.planner_s)]
    yield (
        "planner_outcome",
        "1 for how far the last plan can be trusted.",
        _labelled("outcome", {str(o): float(o == page.planner) for o in Outcome}),
    )
    if page.planner_gap is not None:
        yield (
            "planner_gap_ratio",
            "How far the last plan is below its bound, over the larger of the two.",
            [("", page.planner_gap)],
        )
    yield (
        "leases",
        "Leases by state.",
        _labelled("state", {str(s): float(leases[str(s)]) for s in states}),
    )
    yield (
        "trainers",
        "Trainers by state.",
        _labelled("state", {str(s): float(trainers[str(s)]) for s in TrainerState}),
    )
    yield "holes", "Nodes that are idle or ours.", [("", float(len(page.holes)))]
    training = sum(trainer.nodes for trainer in page.trainers)
    yield "training_nodes", "Nodes that trainers have.", [("", float(training))]
    yield "torn_look", "Whether backfill was at work.", [("", float(page.is_torn))]
    yield "problems", "What went wrong.", [("", float(len(page.problems)))]


def _labelled(label: str, values: Mapping[str, float]) -> list[tuple[str, float]]:
    return [(f'{{{label}="{name}"}}', value) for name, value in values.items()]


def _metric(
    name: str, kind: str, what: str, values: Iterable[tuple[str, float]]
) -> list[str]:
    full = f"freetrain_{name}"
    told = [f"{full}{labels} {value:.15g}" for labels, value in values]
    return [f"# HELP {full} {what}", f"# TYPE {full} {kind}", *told]
