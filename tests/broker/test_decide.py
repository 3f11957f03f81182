"""A whole decision by speed alone, what explains it, and the nodes it is made of."""

import math
from dataclasses import replace
from typing import Any

import pytest

from freetrain.broker.belief import is_plan_known
from freetrain.broker.decide import Decision, LargerSize, decide_leases
from freetrain.broker.lease import Assignment, Lease
from freetrain.broker.limits import Limits, Pace
from freetrain.broker.pool import Situation, Trainer, pool_of
from freetrain.broker.reasons import Brake, HoleReason, Refusal, TrainerReason
from freetrain.broker.reconcile import EndLeases, Submit
from freetrain.broker.yielding import Claims, KeptFree
from freetrain.planning.freetrain import FreeTrain
from milp.problem import Curve, throughput
from slurm.holes import BackfillPlans, HiddenPlan, Hole, carry_plans
from slurm.records import NodeState
from tests.broker.broker_records import (
    NOW_S,
    generation,
    hole,
    holes,
    keys,
    lease,
    situation,
)
from tests.planning.requests import TOOLS
from tests.slurm.clusters import NOW_S as SNAPSHOT_S
from tests.slurm.clusters import node, snapshot_of, statistics

FIVE = throughput([0, 10, 19, 27, 34, 40])
PAIRS = throughput([0, 1, 19], [2])


def trainer(name: str, *tasks: int, pairs: bool = False, shape: str = "any") -> Trainer:
    newest = generation(name, *tasks) if tasks else None
    return Trainer(name, PAIRS if pairs else FIVE, shape, 5.0, 5.0, 5.0, newest)


def look(
    found: tuple[Hole, ...],
    *trainers: Trainer,
    leases: tuple[Lease, ...] = (),
    **changes: Any,  # noqa: ANN401 - fields of a Situation
) -> Situation:
    return situation(
        *leases, **{"holes": {"any": found}, "trainers": trainers} | changes
    )


def decided(seen: Situation, limits: Limits | None = None) -> Decision:
    return decide_leases(seen, FreeTrain(TOOLS), limits or Limits(), t_fwd_s=1_000.0)


# Actions.


def test_a_lease_ends_with_its_hole_in_whole_minutes_less_time_to_start() -> None:
    (submit,) = decided(look((hole("n0", NOW_S + 1_000.0),), trainer("a"))).actions
    assert submit == Submit("any", 15, NOW_S + 1_000.0, 1)


def test_holes_of_unlike_lives_are_asked_for_apart_the_longest_first() -> None:
    ends = (1_000.0, 1_050.0, 9_000.0, math.inf)
    found = tuple(hole(f"n{i}", NOW_S + end_s) for i, end_s in enumerate(ends))
    actions = decided(look(found, trainer("a"))).actions
    submits = [action for action in actions if isinstance(action, Submit)]
    asked = [(submit.limit_min, submit.tasks) for submit in submits]
    assert asked == [(240, 1), (149, 1), (15, 2)]


def test_a_node_with_a_lease_is_given_out_before_one_that_lasts_longer() -> None:
    found = (hole("n0"), hole("n1", NOW_S + 9_000.0))
    single = Trainer("a", throughput([0, 1]), "any", 0.0, 0.0, 0.0)
    (assign,) = decided(look(found, single, leases=(lease(0, "n1"),))).actions
    assert isinstance(assign, Assignment)
    assert assign.leases == keys(0)


def test_no_holes_and_no_trainers_is_a_decision_too() -> None:
    assert decided(look(())).actions == ()


# Explanations.

FAILING = Pace(0, 9, NOW_S)
RUNS = (lease(0, "n0"),)
ONE = holes("n0")


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (look(ONE, trainer("a", 0), leases=RUNS), TrainerReason.AS_PLANNED),
        (look(ONE, trainer("a", pairs=True)), TrainerReason.TOO_FEW_NODES),
        (look(ONE, trainer("a", shape="gpu")), TrainerReason.NO_NODES),
        (
            look((hole("n0", NOW_S + 10),), trainer("a")),
            TrainerReason.NO_USABLE_NODES,
        ),
        (
            look(ONE, trainer("b"), trainer("a", 0), leases=RUNS),
            TrainerReason.OTHERS_GAIN_MORE,
        ),
        (look(ONE, trainer("a")), TrainerReason.AWAITS_LEASES),
        (look(ONE, trainer("a"), pace=FAILING), TrainerReason.HELD_BACK),
        (look(ONE, trainer("a"), leases=RUNS), TrainerReason.RE_FORMS),
    ],
    ids=lambda value: value.name if isinstance(value, TrainerReason) else "",
)
def test_each_trainer_has_a_reason_for_its_nodes(
    seen: Situation, reason: TrainerReason
) -> None:
    made = decided(seen)
    assert made.trainers[0].reason is reason
    assert (made.brake is Brake.PAUSED) is (reason is TrainerReason.HELD_BACK)


DEAR = throughput([0, 10, 11, 12, 13], sizes=(1, 2, 4))


@pytest.mark.parametrize(
    ("curve", "names", "larger"),
    [
        (DEAR, ("n0", "n1"), LargerSize(2, 1, 5_000.0)),
        (DEAR, ("n0", "n1", "n2", "n3"), LargerSize(4, 3, 5_000.0 / 3)),
        (DEAR, ("n0",), LargerSize(2, 0, 5_000.0)),
        (throughput([0, 10, 10]), ("n0", "n1"), LargerSize(2, 1, math.inf)),
        (throughput([0, 10]), ("n0", "n1"), None),
    ],
)
def test_what_keeps_a_trainer_from_more_nodes_is_told(
    curve: Curve, names: tuple[str, ...], larger: LargerSize | None
) -> None:
    runs = replace(trainer("a", 0), curve=curve, up_s=500.0)

    (explained,) = decided(look(holes(*names), runs, leases=RUNS)).trainers

    assert explained.reason is TrainerReason.AS_PLANNED
    assert explained.larger == larger


@pytest.mark.parametrize(
    ("pairs", "pace", "rest"),
    [
        (True, Pace(), HoleReason.UNWANTED),
        (False, Pace(), HoleReason.AWAITED),
        (False, FAILING, HoleReason.HELD_BACK),
    ],
)
def test_each_hole_has_a_use_or_a_reason_for_none(
    pairs: bool,  # noqa: FBT001 - a parameter of the test
    pace: Pace,
    rest: HoleReason,
) -> None:
    found = (*holes("n0", "n1", "n2", "n3"), hole("n4", NOW_S + 10))
    leases = (lease(0, "n0"), lease(1, "n1"))

    made = decided(look(found, trainer("a", 0, pairs=pairs), leases=leases, pace=pace))

    assert [(why.reason, why.refusal) for why in made.holes] == [
        (HoleReason.TRAINING, None),
        (HoleReason.LEASED, None),
        (rest, None),
        (rest, None),
        (HoleReason.UNUSABLE, Refusal.TOO_SHORT),
    ]


def test_leases_that_ends_by_choice_leave_no_churn_for_are_held_back() -> None:
    """Giving n0 up uses up the churn, so that no lease can be asked for in n1 now."""
    single = Trainer("a", throughput([0, 10]), "gpu", 5.0, 5.0, 5.0)
    both = {"any": holes("n0"), "gpu": holes("n1")}
    made = decided(look((), single, leases=RUNS, holes=both), Limits(most_churn=1))
    assert [type(action) for action in made.actions] == [EndLeases]
    assert made.brake is Brake.CHURN_CAP
    assert [why.reason for why in made.trainers] == [TrainerReason.HELD_BACK]
    assert [why.reason for why in made.holes][1:] == [HoleReason.HELD_BACK]


# The nodes that can be planned with.


def test_holes_that_cannot_be_used_say_why() -> None:
    found = list(holes(*(f"n{i}" for i in range(7))))
    found[1] = hole("n1", NOW_S + 179)
    found[2] = replace(found[2], end_s=None)
    found[3] = replace(found[3], held_by=(1,))
    seen = situation(
        lease(4, "n4", notice_s=NOW_S),
        lease(5, "n5", end_s=NOW_S + 5),
        holes={"any": found},
        claims=Claims({"n0": 1, "n6": 1}, {}, kept_free=KeptFree({"n6": 1}, 0)),
        assignments=(generation("a", 5),),
    )

    nodes, refused = pool_of(seen, Limits())

    assert [node.name for node in nodes] == ["n5"]
    assert refused == {
        "n0": Refusal.CLAIMED,
        "n1": Refusal.TOO_SHORT,
        "n2": Refusal.HIDDEN_END,
        "n3": Refusal.LEAVING,
        "n4": Refusal.LEAVING,
        "n6": Refusal.KEPT_FREE,
    }


def test_a_lease_of_the_least_limit_is_still_worth_a_start_when_it_runs() -> None:
    leases = (
        lease(0, "n0", end_s=NOW_S + 115),  # five seconds old, not assigned yet
        lease(1, "n1", end_s=NOW_S + 59),
    )
    found = (hole("n0", NOW_S + 150), hole("n1", NOW_S + 150))
    nodes, refused = pool_of(look(found, leases=leases), Limits(least_limit_min=2))
    assert [node.name for node in nodes] == ["n0"]
    assert refused == {"n1": Refusal.TOO_SHORT}


# Whether the holes of a snapshot can be trusted.


@pytest.mark.parametrize(
    ("whole_s", "is_known"), [(None, False), (0.0, False), (SNAPSHOT_S - 60.0, True)]
)
def test_a_torn_snapshot_without_plans_counts_only_soon_after_a_whole_one(
    whole_s: float | None, *, is_known: bool
) -> None:
    torn = snapshot_of(nodes=[node("n0")], statistic=statistics(is_active=True))
    assert is_plan_known(torn, whole_s=whole_s, max_age_s=300.0) is is_known


def test_whole_snapshots_and_torn_ones_with_plans_carried_are_good_enough() -> None:
    idle = [node("n0", NodeState.IDLE)]
    torn = snapshot_of(nodes=idle, statistic=statistics(is_active=True))
    seen = BackfillPlans(hidden=(HiddenPlan("n0", SNAPSHOT_S - 10.0),))
    carried = carry_plans(seen, torn, max_age_s=300.0)
    for good in (snapshot_of(nodes=[node("n0")]), carried):
        assert is_plan_known(good, whole_s=None, max_age_s=300.0)
