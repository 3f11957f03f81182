"""A whole decision, and what explains it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from freetrain.broker.belief import Belief, is_plan_known
from freetrain.broker.decide import Decision, decide_leases
from freetrain.broker.lease import Assignment
from freetrain.broker.limits import (
    Brake,
    HoleReason,
    Limits,
    Pace,
    Refusal,
    TrainerReason,
)
from freetrain.broker.pool import Situation, Trainer
from freetrain.broker.reconcile import EndLeases, Submit
from freetrain.planning.freetrain import FreeTrain
from milp.problem import throughput
from slurm.holes import BackfillPlans, HiddenPlan, carry_plans
from slurm.records import NodeState
from tests.broker.broker_records import NOW_S, generation, hole, key, lease
from tests.planning.requests import TOOLS
from tests.slurm_library.clusters import NOW_S as LOOK_S
from tests.slurm_library.clusters import node, statistics
from tests.slurm_library.clusters import snapshot_of as cluster

if TYPE_CHECKING:
    from slurm.holes import Hole

FIVE = throughput([0, 10, 19, 27, 34, 40])
PAIRS = throughput([0, 1, 19], [2])


def trainer(name: str, *tasks: int, pairs: bool = False, shape: str = "any") -> Trainer:
    newest = generation(name, *tasks) if tasks else None
    return Trainer(name, PAIRS if pairs else FIVE, shape, 5.0, 5.0, 5.0, newest)


def look(holes: tuple[Hole, ...], *trainers: Trainer, **changes: object) -> Situation:
    fields: dict[str, object] = {
        "now_s": NOW_S,
        "holes": {"any": holes},
        "belief": Belief((), ()),
        "trainers": trainers,
        "assignments": tuple(t.assignment for t in trainers if t.assignment),
    }
    return Situation(**(fields | changes))  # type: ignore[arg-type]


def decided(seen: Situation, limits: Limits | None = None) -> Decision:
    return decide_leases(seen, FreeTrain(TOOLS), limits or Limits(), t_fwd_s=1_000.0)


def reasons(seen: Situation) -> list[TrainerReason]:
    return [why.reason for why in decided(seen).trainers]


def test_a_lease_ends_with_its_hole_in_whole_minutes_less_time_to_start() -> None:
    seen = look((hole("n0", NOW_S + 1_000.0),), trainer("a"))

    (submit,) = decided(seen).actions

    assert submit == Submit("any", 15, NOW_S + 1_000.0, 1)


def test_holes_of_unlike_lives_are_asked_for_apart_the_longest_first() -> None:
    ends = (1_000.0, 1_050.0, 9_000.0, math.inf)
    holes = tuple(hole(f"n{i}", NOW_S + end_s) for i, end_s in enumerate(ends))

    actions = decided(look(holes, trainer("a"))).actions

    submits = [one for one in actions if isinstance(one, Submit)]
    assert [(one.limit_min, one.tasks) for one in submits] == [
        (240, 1),
        (149, 1),
        (15, 2),
    ]


def test_a_node_with_a_lease_is_given_out_before_one_that_lasts_longer() -> None:
    holes = (hole("n0"), hole("n1", NOW_S + 9_000.0))
    belief = Belief((lease(0, "n1"),), ())
    one = Trainer("a", throughput([0, 1]), "any", 0.0, 0.0, 0.0)

    (assign,) = decided(look(holes, one, belief=belief)).actions

    assert isinstance(assign, Assignment)
    assert assign.leases == {key(0)}


def test_no_holes_and_no_trainers_is_a_decision_too() -> None:
    assert decided(look(())).actions == ()


def test_each_trainer_is_told_why_it_has_what_it_has() -> None:
    runs = lease(0, "n0")
    one_hole = (hole("n0"),)
    belief = Belief((runs,), ())
    planned = look(one_hole, trainer("a", 0), belief=belief)
    few = look(one_hole, trainer("a", pairs=True))
    none = look(one_hole, trainer("a", shape="gpu"))
    short = look((hole("n0", NOW_S + 10),), trainer("a"))
    rivals = look(one_hole, trainer("a", 0), trainer("b"), belief=belief)
    awaits = look(one_hole, trainer("a"))
    paused = look(one_hole, trainer("a"), pace=Pace(0, 9, NOW_S))
    forming = look(one_hole, trainer("a"), belief=belief)

    assert reasons(planned) == [TrainerReason.AS_PLANNED]
    assert reasons(few) == [TrainerReason.TOO_FEW_NODES]
    assert reasons(none) == [TrainerReason.NO_NODES]
    assert reasons(short) == [TrainerReason.NO_USABLE_NODES]
    assert reasons(rivals)[1] is TrainerReason.OTHERS_GAIN_MORE
    assert reasons(awaits) == [TrainerReason.AWAITS_LEASES]
    assert reasons(paused) == [TrainerReason.HELD_BACK]
    assert decided(paused).brake is Brake.PAUSED
    assert reasons(forming) == [TrainerReason.RE_FORMS]


def test_leases_that_ends_by_choice_leave_no_churn_for_are_held_back() -> None:
    """Giving n0 up uses up the churn, so that no lease can be asked for in n1 now."""
    n1 = Trainer("a", throughput([0, 10]), "gpu", 5.0, 5.0, 5.0)
    seen = look((hole("n0"),), n1, belief=Belief((lease(0, "n0"),), ()))
    seen = replace(seen, holes={"any": (hole("n0"),), "gpu": (hole("n1"),)})

    made = decided(seen, Limits(most_churn=1))

    assert [type(action) for action in made.actions] == [EndLeases]
    assert made.brake is Brake.CHURN_CAP
    assert [why.reason for why in made.trainers] == [TrainerReason.HELD_BACK]
    assert [why.reason for why in made.holes][1:] == [HoleReason.HELD_BACK]


def test_each_hole_is_told_what_it_is_used_for() -> None:
    holes = (*map(hole, ("n0", "n1", "n2", "n3")), hole("n4", NOW_S + 10))
    belief = Belief((lease(0, "n0"), lease(1, "n1")), ())
    seen = look(holes, trainer("a", 0, pairs=True), belief=belief)
    wider = look(holes, trainer("a", 0), belief=belief)
    paused = look(holes, trainer("a", 0), belief=belief, pace=Pace(0, 9, NOW_S))

    def told(one: Situation) -> list[tuple[HoleReason, Refusal | None]]:
        return [(hole.reason, hole.refusal) for hole in decided(one).holes]

    short = (HoleReason.UNUSABLE, Refusal.TOO_SHORT)
    used = [(HoleReason.TRAINING, None), (HoleReason.LEASED, None)]
    assert told(seen) == [*used, *[(HoleReason.UNWANTED, None)] * 2, short]
    assert told(wider) == [*used, *[(HoleReason.AWAITED, None)] * 2, short]
    assert told(paused) == [*used, *[(HoleReason.HELD_BACK, None)] * 2, short]


@pytest.mark.parametrize(
    ("whole_s", "is_known"), [(None, False), (0.0, False), (LOOK_S - 60.0, True)]
)
def test_a_torn_look_with_nothing_carried_counts_only_soon_after_a_whole_one(
    whole_s: float | None, *, is_known: bool
) -> None:
    torn = cluster(nodes=[node("n0")], statistic=statistics(is_active=True))

    assert is_plan_known(torn, whole_s=whole_s, max_age_s=300.0) is is_known


def test_whole_looks_and_torn_ones_with_plans_carried_are_good_enough() -> None:
    whole = cluster(nodes=[node("n0")])
    torn = cluster(
        nodes=[node("n0", NodeState.IDLE)], statistic=statistics(is_active=True)
    )
    seen = BackfillPlans(hidden=(HiddenPlan("n0", LOOK_S - 10.0),))
    carried = carry_plans(seen, torn, max_age_s=300.0)

    assert is_plan_known(whole, whole_s=None, max_age_s=300.0)
    assert is_plan_known(carried, whole_s=None, max_age_s=300.0)
