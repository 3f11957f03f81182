"""Nodes sorted by forecasts that are known beforehand, and decisions by them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freetrain.broker.decide import Decision, decide_leases, request_of
from freetrain.broker.lease import Lease
from freetrain.broker.limits import Limits
from freetrain.broker.pool import Forecast, Foresight, PoolNode, Trainer, classify_by
from freetrain.broker.reasons import Refusal
from freetrain.lookahead.base import Prospect
from freetrain.lookahead.live import IdleSnapshot, LiveForecast
from freetrain.lookahead.promises import Promise
from freetrain.planning.lookahead import Lookahead, ProvingSearch
from freetrain.planning.policy import Tools, counts_of, problem_of
from freetrain.planning.rating import start_cost_s
from freetrain.scaling import ASSUMED_STAY_S
from milp.answer import PlanStatus
from milp.planner import Planner
from milp.problem import plan_gain, throughput
from milp.window import Holding, Window, WindowClass, WindowTrainer, gain
from slurm.holes import Hole
from tests.broker.broker_records import (
    NOW_S,
    generation,
    hole,
    holes,
    key,
    lease,
    situation,
)

HORIZON_S = 400.0

STAYS = Prospect(HORIZON_S, 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class KnownForecast:
    """A forecast known beforehand; its groups are in the pool unless *sizes* says."""

    groups: Mapping[str, str] = field(default_factory=dict)
    prospects: Mapping[str, Prospect] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)

    def group(self, node: str) -> str:
        return self.groups.get(node, node)

    def size(self, node: str) -> int:
        group = self.group(node)
        known = sum(other == group for other in self.groups.values())
        return self.sizes.get(group, max(1, known))

    def prospect(self, node: str, usable_s: float) -> Prospect:
        found = self.prospects.get(self.group(node), STAYS)
        if usable_s < HORIZON_S:
            return Prospect(min(found.life_s, usable_s), 1.0, 1.0)
        return found


def foresight(forecast: Forecast, **changes: float) -> Foresight:
    """Return what plans by *forecast* to a horizon of 400 s."""
    usual = {"horizon_s": HORIZON_S, "hit_weight": 0.25, "change_weight": 1.0}
    return Foresight(forecast=forecast, **(usual | changes))


def lookahead(*, limit_s: float = 60.0) -> Lookahead:
    """Return the policy, as a tick makes it."""
    return Lookahead(
        Tools(
            solver=Planner,
            start_solver=Planner,
            search=lambda: ProvingSearch(limit_s, lambda: 0.0),
        )
    )


def watched(*, promised: Mapping[str, Promise] | None = None) -> LiveForecast:
    forecast = LiveForecast(HORIZON_S)
    sight = IdleSnapshot(
        frozenset({f"n{k}" for k in range(8)}), frozenset(), promised or {}
    )
    forecast.look(NOW_S, sight)
    return forecast


def decided(  # noqa: PLR0913 - one fact each
    trainers: tuple[Trainer, ...],
    found: Sequence[Hole] | Mapping[str, Sequence[Hole]],
    *leased: int,
    by: Foresight | None = None,
    limit_s: float = 60.0,
    background: frozenset[str] = frozenset(),
    most_leases: int = 64,
) -> Decision:
    """Decide with leases on some nodes; by speed alone without a forecast."""
    seen = situation(
        *(lease(k, f"n{k}") for k in leased),
        holes=found if isinstance(found, dict) else {"any": found},
        trainers=trainers,
        background=background,
    )
    policy, limits = lookahead(limit_s=limit_s), Limits(most_leases=most_leases)
    return decide_leases(seen, policy, limits, t_fwd_s=HORIZON_S, foresight=by)


def trainer(
    name: str,
    most: int,
    *tasks: int,
    cost_s: float = 5.0,
    loss_s: float | None = None,
) -> Trainer:
    newest = generation(name, *tasks) if tasks else None
    worth = throughput([n**0.9 for n in range(most + 1)])
    lost_s = cost_s if loss_s is None else loss_s
    return Trainer(name, worth, "any", cost_s, cost_s, cost_s, newest, lost_s)


# Classes of nodes.


def pool(
    *ends_s: float, leased: Mapping[str, Lease] | None = None
) -> tuple[PoolNode, ...]:
    return tuple(
        PoolNode(name, frozenset({"any"}), NOW_S + end_s, (leased or {}).get(name))
        for name, end_s in ((f"n{k}", end_s) for k, end_s in enumerate(ends_s))
    )


def _gains(
    stays: Mapping[int, WindowClass],
    keep: Holding,
    grow: Holding,
    *,
    fresh: dict[int, float],
) -> list[float]:
    """Return what keeping and what growing gains."""
    curve = throughput([n**0.9 for n in range(12)])
    one = WindowTrainer(curve, keep, 20.0, 20.0, 20.0, 1_800.0, fresh)
    window = Window(stays, {}, (one,), hit_weight=0.37, change_weight=1.2)
    return [gain(window, 0, keep), gain(window, 0, grow)]


def stays_of(told: KnownForecast, idle: tuple[PoolNode, ...]) -> list[WindowClass]:
    _, forecast = classify_by(foresight(told), idle, now_s=NOW_S)
    return list(forecast.stays.values())


@given(st.floats(0.0, 1.0), st.floats(0.05, 1.0), st.integers(1, 8), st.data())
def test_hits_on_the_part_of_a_group_that_is_in_the_pool_are_those_of_the_whole_group(
    hit: float, share: float, size: int, data: st.DataObject
) -> None:
    here = data.draw(st.integers(1, size))
    names = [f"n{k}" for k in range(here)]
    told = KnownForecast(
        dict.fromkeys(names, "rack"),
        {"rack": Prospect(300.0, hit, share)},
        {"rack": size},
    )

    (stay,) = stays_of(told, pool(*[math.inf] * here))

    whole = WindowClass(size, 300.0, hit, share)
    assert stay.hits() == pytest.approx(whole.hits()[: here + 1])
    assert here < size or stay == whole


@given(
    st.floats(0.0, 1.0),
    st.floats(0.05, 1.0),
    st.tuples(
        st.integers(1, 4), st.integers(0, 3), st.integers(1, 4), st.integers(0, 3)
    ),
)
def test_growing_to_the_rest_of_its_own_group_is_worth_what_it_is_in_a_replay(
    hit: float, share: float, parts: tuple[int, int, int, int]
) -> None:
    """Some are its own, some leased and free, some wait; others are in no pool."""
    own, free, waiting, _ = parts
    here, size = own + free + waiting, sum(parts)
    told = KnownForecast(
        {f"n{k}": "rack" for k in range(here)},
        {"rack": Prospect(300.0, hit, share)},
        {"rack": size},
    )
    leased = {f"n{k}": lease(k, f"n{k}") for k in range(own + free)}
    classes, forecast = classify_by(
        foresight(told, wait_s=1e-9),
        pool(*[math.inf] * here, leased=leased),
        now_s=NOW_S,
    )
    first, last = classes.index["n0"], classes.index[f"n{here - 1}"]
    whole = WindowClass(size, 300.0, hit, share)

    split = _gains(
        forecast.stays,
        {first: own},
        {first: own + free, last: waiting},
        fresh=forecast.fresh({first: own}, {first: free, last: waiting}),
    )
    replayed = _gains({0: whole}, {0: own}, {0: here}, fresh={})

    assert first != last
    assert split == pytest.approx(replayed)


@given(
    st.lists(st.sampled_from(["a", "b", "c"]), max_size=6),
    st.sampled_from([0.0, 30.0]),
    st.sets(st.sampled_from(["a", "b", "c"])),
)
def test_hits_count_as_they_are_where_no_group_is_split(
    groups: list[str], wait_s: float, groups_leased: set[str]
) -> None:
    told = KnownForecast({f"n{k}": group for k, group in enumerate(groups)})
    leased = {
        f"n{k}": lease(k, f"n{k}")
        for k, group in enumerate(groups)
        if group in groups_leased
    }

    _, forecast = classify_by(
        foresight(told, wait_s=wait_s),
        pool(*[math.inf] * len(groups), leased=leased),
        now_s=NOW_S,
    )

    free = {k: stay.nodes for k, stay in forecast.stays.items()}
    assert forecast.fresh({}, free) == {}


def test_a_known_end_before_the_horizon_ends_the_life_of_a_class_of_its_own() -> None:
    classes, forecast = classify_by(
        foresight(KnownForecast()), pool(100.0, 110.0, 9_000.0), now_s=NOW_S
    )
    stays = {classes.index[f"n{k}"]: k for k in range(3)}
    assert len(stays) == 2
    soon = forecast.stays[classes.index["n0"]]
    assert (soon.nodes, soon.life_s) == (2, 60.0)
    assert soon.hits() == [0.0, 1.0, 1.0], "lost at once"


# Decisions.

EIGHT = holes(*(f"n{k}" for k in range(8)))


def test_nodes_that_leave_together_go_to_one_trainer() -> None:
    odd = KnownForecast(
        {f"n{k}": "odd" for k in (1, 3, 5, 7)}, {"odd": Prospect(390.0, 0.1, 1.0)}
    )
    two = (trainer("a", 4), trainer("b", 4))

    ahead = decided(two, EIGHT, *range(8), by=foresight(odd))
    published = decided(two, EIGHT, *range(8))

    together = {frozenset(one.leases) for one in ahead.wanted.trainers}
    assert frozenset(map(key, (1, 3, 5, 7))) in together
    assert together != {frozenset(one.leases) for one in published.wanted.trainers}


def test_the_rest_of_its_own_group_costs_a_trainer_no_second_hit() -> None:
    names = [f"n{k}" for k in range(8)]
    rack = KnownForecast(
        dict.fromkeys(names, "rack"), {"rack": Prospect(350.0, 0.4, 0.9)}
    )
    plan = decided(
        (trainer("a", 8, 0, 1, 2, 3, loss_s=1_800.0),),
        EIGHT,
        *range(4),
        by=foresight(rack, hit_weight=0.37, wait_s=30.0),
    )

    assert plan.wanted.trainers[0].planned_nodes == 8


def test_a_wide_trainer_to_whom_a_change_is_dear_leaves_a_node_promised_away() -> None:
    promise = {"n4": Promise(NOW_S + 90.0, "99")}
    short = (*EIGHT[:4], hole("n4", NOW_S + 80.0))
    wide = (trainer("a", 5, 0, 1, 2, 3, cost_s=15.0),)
    ahead = decided(wide, short, *range(5), by=foresight(watched(promised=promise)))
    lasting = decided(wide, EIGHT[:5], *range(5), by=foresight(watched()))
    assert ahead.wanted.trainers[0].planned_nodes == 4
    assert lasting.wanted.trainers[0].planned_nodes == 5


def test_the_background_gets_what_the_others_leave() -> None:
    two = (trainer("late", 4), trainer("a", 3))

    plan = decided(
        two,
        EIGHT[:4],
        *range(4),
        by=foresight(watched()),
        background=frozenset({"late"}),
    )

    assert [one.planned_nodes for one in plan.wanted.trainers] == [1, 3]
    assert plan.planned.is_by_m0 is False
    assert plan.planned.gap == pytest.approx(0.0, abs=1e-5)


def test_trainers_of_other_kinds_of_node_are_planned_each_with_its_own() -> None:
    found = decided(
        (trainer("a", 4), replace(trainer("b", 2), shape="gpu")),
        {"any": holes("n0", "n1"), "gpu": holes("n2", "n3")},
        by=foresight(watched()),
    )

    assert [one.planned_nodes for one in found.wanted.trainers] == [2, 2]
    assert "left out" not in found.planned.reason
    # Two windows: two trainers that start, in 5 s, on two nodes each, which are
    # expected to serve for 1,000 s: (1 - exp(-5 / 1000)) of the horizon is lost.
    worth = 2.0 * 2.0**0.9 * HORIZON_S * math.exp(-5.0 / 1_000.0)
    assert found.planned.judged is not None
    assert found.planned.judged[:2] == pytest.approx((worth, worth), rel=1e-5)
    assert not found.planned.is_by_m0
    assert found.planned.outcome is PlanStatus.PROVEN
    assert found.planned.gap == pytest.approx(0.0, abs=1e-5)


def test_where_kinds_of_node_overlap_the_published_plan_stands_in() -> None:
    found = decided(
        (trainer("a", 4), replace(trainer("b", 2), shape="gpu")),
        {"any": holes("n0", "n1", "n2"), "gpu": holes("n0", "n1")},
        by=foresight(watched()),
    )
    assert "share some kinds of node" in found.planned.reason
    assert (found.planned.is_by_m0, found.planned.gap) == (True, 0.0)
    assert sum(one.planned_nodes for one in found.wanted.trainers) == 3


def test_a_plan_without_time_is_a_plan_all_the_same() -> None:
    two = (trainer("a", 4, 0, 1), trainer("b", 4))
    plan = decided(two, EIGHT, *range(8), by=foresight(watched()), limit_s=0.0)
    assert plan.planned.outcome in PlanStatus
    assert plan.planned.is_by_m0 is False
    assert 0.0 < plan.planned.gap < 1.0
    assert plan.wanted.trainers[0].planned_nodes >= 2


def test_a_node_with_a_lease_is_worth_more_than_one_that_waits_for_it() -> None:
    lives_s = (365.0, 365.0, 345.0, 345.0)
    told = KnownForecast(
        prospects={
            f"n{k}": Prospect(life_s, 0.2, 1.0) for k, life_s in enumerate(lives_s)
        }
    )
    one = (trainer("a", 2),)

    held = decided(one, EIGHT[:4], 2, 3, by=foresight(told, wait_s=30.0))
    best = decided(one, EIGHT[:4], 2, 3, by=foresight(told))

    assert held.wanted.trainers[0].leases == {key(2), key(3)}
    assert not best.wanted.trainers[0].leases


def test_beyond_the_cap_on_leases_whole_groups_that_last_are_kept() -> None:
    told = KnownForecast(
        {"n0": "short", "n1": "long", "n2": "short", "n3": "long"},
        {"short": Prospect(200.0, 0.5, 1.0), "long": Prospect(390.0, 0.1, 1.0)},
    )
    found = decided((trainer("a", 4),), EIGHT[:4], by=foresight(told), most_leases=2)
    assert {node.name for node in found.classes.nodes} == {"n1", "n3"}
    assert found.refused == dict.fromkeys(("n0", "n2"), Refusal.LEASE_CAP)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[tuple[Trainer, ...], tuple[Hole, ...]]:
    nodes = draw(st.integers(1, 8))
    free = list(range(nodes))
    trainers = []
    for name in "abc"[: draw(st.integers(1, 3))]:
        mine = draw(st.sets(st.sampled_from(free), max_size=4)) if free else set()
        free = [k for k in free if k not in mine]
        most = draw(st.integers(max(1, len(mine)), 8))
        cost_s = draw(st.sampled_from([0.0, 5.0, 60.0, 300.0]))
        trainers.append(trainer(name, most, *sorted(mine), cost_s=cost_s))
    return tuple(trainers), EIGHT[:nodes]


def gained(trainers: tuple[Trainer, ...], found: Decision) -> float:
    """Return what a plan gains by the published objective, starts spread."""
    spread = [
        replace(
            one,
            start_s=start_cost_s(one.start_s, stay_s=ASSUMED_STAY_S, reach_s=HORIZON_S),
        )
        for one in trainers
    ]
    request = request_of(spread, found.classes, t_fwd_s=HORIZON_S)
    counts = counts_of(found.planned.holdings, request)
    return plan_gain(problem_of(request), counts)


@settings(deadline=None)
@given(worlds())
def test_with_nothing_learned_a_plan_is_no_worse_than_the_published_one(
    world: tuple[tuple[Trainer, ...], tuple[Hole, ...]],
) -> None:
    trainers, found = world
    fearful = tuple(replace(one, loss_s=3_000.0) for one in trainers)
    ahead = decided(fearful, found, *range(len(found)), by=foresight(watched()))
    published = decided(trainers, found, *range(len(found)))
    best = gained(trainers, published)
    assert gained(trainers, ahead) >= best - 1e-9 * (1.0 + abs(best))
    assert "left out" not in ahead.planned.reason


def test_a_node_that_soon_leaves_goes_to_one_that_waits_and_not_to_one_that_runs() -> (
    None
):
    short = KnownForecast({"n1": "short"}, {"short": Prospect(100.0, 1.0, 1.0)})
    waiting, running = (
        replace(trainer("a", 2, *tasks, loss_s=600.0), down_s=600.0)
        for tasks in ((), (0,))
    )

    started = decided((waiting,), [hole("n1", math.inf)], by=foresight(short))
    grown = decided((running,), EIGHT[:2], 0, by=foresight(short))

    # It has neither other nodes that would pause nor work that it could lose.
    assert started.wanted.trainers[0].planned_nodes == 1
    assert grown.wanted.trainers[0].planned_nodes == 1
