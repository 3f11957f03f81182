"""Waiting jobs of others, and the nodes that they could start on."""

from collections.abc import Mapping
from dataclasses import replace

from freetrain.broker.backfill import BackfillState, LeaseSpan
from slurm.holes import Hole
from slurm.records import Gres, JobRecord, JobState, Node
from tests.broker.broker_records import NOW_S, hole

NODES = {
    name: Node(name, frozenset(), features=frozenset({"fast"}), partitions=("main",))
    for name in (f"n{k}" for k in range(6))
} | {"g0": Node("g0", frozenset(), gres=(Gres("gpu", "", 2),), partitions=("gpu",))}


def waiting(number: int = 1, nodes: int = 1, **changes: object) -> JobRecord:
    fields: dict[str, object] = {
        "partitions": ("main",),
        "reason": "Resources",
        "priority": 100,
        "uid": 1,
        "limit_s": 600.0,
    }
    return JobRecord(
        job_id=number,
        display_id=str(number),
        states=frozenset({JobState.PENDING}),
        node_count=nodes,
        **(fields | changes),  # type: ignore[arg-type]
    )


def state_of(
    idle: str,
    leased: str = "",
    *,
    lease_s: tuple[float, float] | None = (-600.0, 3_600.0),
    busy_s: Mapping[str, float] | None = None,
    holes: tuple[Hole, ...] = (),
    **changes: object,
) -> BackfillState:
    """Return nodes on which jobs might start; those that are not named are absent.

    Args:
        idle: Names of nodes that are idle without end.
        leased: Names of nodes that our leases hold.
        lease_s: From when to when, seconds from now; None where that is unknown.
        busy_s: By node that others hold: for how many seconds from now.
        holes: Holes of idle or leased nodes that do not last for ever.
        changes: Fields of the state that are to be others.
    """
    ends = {name: NOW_S + until_s for name, until_s in (busy_s or {}).items()}
    special = {one.node: one for one in holes}
    open_ended = {name: hole(name) for name in [*idle.split(), *leased.split()]}
    found = open_ended | special
    names = {*ends, *found}
    made = BackfillState(
        holes=tuple(found[name] for name in NODES if name in found),
        nodes={name: node for name, node in NODES.items() if name in names},
        leased=frozenset(leased.split()),
        spans={}
        if lease_s is None
        else dict.fromkeys(leased.split(), LeaseSpan(*(NOW_S + s for s in lease_s))),
        busy_until_s=ends,
    )
    return replace(made, **changes)  # type: ignore[arg-type]
