"""Assignment files: from the broker's leases to members that can be reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.exchange.assigned import BROKER, Assigned, Member, create_assigned
from freetrain.store.trainers import TrainerState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.broker.lease import Assignment, Lease, LeaseKey
    from freetrain.tick.observe import Observed
    from freetrain.tick.run import Run
    from freetrain.tick.standing import Standing


def assign(run: Run, observed: Observed, assignment: Assignment) -> bool:
    """Create the file of *assignment*; tell whether it is ours.

    Raises:
        OSError: It could not be written.
    """
    standing = next(o for o in observed.trainers if o.row.name == assignment.trainer)
    leases = {lease.key: lease for lease in observed.belief.leases}
    assigned = assigned_of(assignment, standing, leases)
    folder = run.folder.trainer(assignment.trainer)
    folder.create()
    with run.effect(f"assigning {assignment.generation} of {assignment.trainer}"):
        return create_assigned(folder, assigned)


def assigned_of(
    assignment: Assignment, standing: Standing, leases: Mapping[LeaseKey, Lease]
) -> Assigned:
    """Return the file of *assignment*.

    The head stays where it is, so that whoever watches a world goes on watching;
    else it is the lease that lasts longest, since a head that goes costs most.
    """
    before = () if standing.newest is None else standing.newest.members
    stay = [m.key for m in before if m.key in assignment.leases]
    new = sorted(
        assignment.leases - set(stay), key=lambda key: (-_end_s(leases[key]), key)
    )
    if not before or not stay or before[0].key != stay[0]:
        order = sorted([*stay, *new], key=lambda key: (-_end_s(leases[key]), key))
    else:
        order = [*stay, *new]
    return Assigned(
        trainer=assignment.trainer,
        generation=assignment.generation,
        members=tuple(_member(leases[key]) for key in order),
        created_s=assignment.created_s,
        author=BROKER,
        reason=_reason(standing, len(before), len(order)),
    )


def _member(lease: Lease) -> Member:
    if lease.job_id is None:  # Slurm told its node, and its number with it
        raise ValueError(f"lease {lease.key} runs without a number")
    return Member(
        key=lease.key,
        job_id=lease.job_id,
        display_id=lease.display_id,
        node=lease.node,
        end_s=lease.end_s,
    )


def _end_s(lease: Lease) -> float:
    return lease.end_s or 0.0


def _reason(standing: Standing, before: int, after: int) -> str:
    if after == 0:
        ended = standing.outcome
        state = standing.row.state if ended is None else ended.state
        return (
            "its nodes are gone" if state is TrainerState.WANTED else f"it is {state}"
        )
    nodes = f"{after} node{'' if after == 1 else 's'}"
    if before == 0:
        return f"starts on {nodes}"
    if before == after:
        return f"moves, on {nodes}"
    return f"{'grows' if after > before else 'shrinks'} from {before} to {nodes}"
