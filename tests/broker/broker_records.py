"""Leases, jobs, trainers and situations made by hand."""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from freetrain.broker.belief import Belief
from freetrain.broker.lease import (
    Assignment,
    Intent,
    Lease,
    LeaseKey,
    LeaseState,
    job_name,
)
from freetrain.broker.limits import Limits
from freetrain.broker.pool import Situation
from freetrain.broker.reconcile import Action, Wanted, reconcile
from slurm.holes import Hole, HoleEnd
from slurm.records import JobRecord, JobState

NOW_S = 100_000.0
UID = 1000


def key(task: int) -> LeaseKey:
    return LeaseKey("u", task)


def keys(*tasks: int) -> frozenset[LeaseKey]:
    return frozenset(map(key, tasks))


def intent(**changes: object) -> Intent:
    made = Intent(
        uuid="u",
        shape="any",
        limit_min=60,
        deadline_s=NOW_S + 7_200.0,
        tasks=4,
        created_s=NOW_S,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def lease(task: int, node: str = "", **changes: object) -> Lease:
    """A lease, running if it has a node, of job array 7."""
    made = Lease(
        key=key(task),
        job_id=7 + task,
        display_id=f"7_{task}",
        shape="any",
        limit_min=60,
        deadline_s=NOW_S + 7_200.0,
        state=LeaseState.RUNNING if node else LeaseState.PENDING,
        node=node,
        start_s=NOW_S - 60.0 if node else None,
        end_s=NOW_S + 3_540.0 if node else None,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def job(task: int, *states: JobState, **changes: object) -> JobRecord:
    made = JobRecord(
        job_id=7 + task,
        display_id=f"7_{task}",
        states=frozenset(states or (JobState.RUNNING,)),
        array_job_id=7,
        array_task_id=task,
        uid=UID,
        name=job_name("u"),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def hole(node: str, end_s: float = math.inf) -> Hole:
    ends_by = HoleEnd.OPEN if math.isinf(end_s) else HoleEnd.PLANNED_JOB
    return Hole(node, NOW_S, end_s, ends_by, "" if math.isinf(end_s) else "99")


def holes(*nodes: str) -> tuple[Hole, ...]:
    return tuple(map(hole, nodes))


def generation(trainer: str, *tasks: int, age_s: float = 600.0) -> Assignment:
    return Assignment(
        trainer=trainer, generation=1, leases=keys(*tasks), created_s=NOW_S - age_s
    )


def situation(
    *leases: Lease,
    intents: tuple[Intent, ...] = (),
    duplicates: Mapping[str, str] | None = None,
    **changes: Any,  # noqa: ANN401 - fields of a Situation
) -> Situation:
    """Return a situation; the newest generations are those of its trainers."""
    newest = (trainer.assignment for trainer in changes.get("trainers", ()))
    changes.setdefault("assignments", tuple(filter(None, newest)))
    belief = Belief(leases, intents, duplicates or {})
    return Situation(now_s=NOW_S, belief=belief, **changes)


def reconciled(
    wanted: Wanted,
    world: Situation,
    *,
    pool: Collection[str] | None = None,
    **limits: Any,  # noqa: ANN401 - fields of Limits
) -> tuple[Action, ...]:
    """Return the actions; nodes of leases can be planned with, unless *pool* says."""
    nodes = {lease.node for lease in world.belief.leases if lease.node}
    pool_nodes = nodes if pool is None else pool
    return reconcile(wanted, world, Limits(**limits), pool_nodes=pool_nodes)[0]
