"""The policy that follows whichever of several policies has trained most."""

from typing import Any

import numpy as np
import pytest

from freetrain.losscurve.forecast import MetricDirection
from freetrain.replay.policies.adaptive import (
    BY_PRICE,
    JUDGED_EVERY_S,
    AdaptivePolicy,
    SampleRecord,
)
from freetrain.replay.pool import PoolTimeline
from freetrain.replay.run import play
from freetrain.replay.settings import Accounting, ReplaySettings
from freetrain.replay.trainers import (
    Costs,
    Scaling,
    builtin_trainers,
    truth_of,
)
from tests.replay.worlds import linear, no_clock, replay, trace_of, trainer

HOUR_S = 3_600.0


def leader_after(
    first: list[float], second: list[float], nodes: list[float] | None = None
) -> str:
    """Return whom a record follows after such quarters of an hour; first the first."""
    record = SampleRecord(("first", "second"))
    idle = nodes or [1.0] * len(first)
    for span in range(1, len(first) + 1):
        done = [sum(own[:span]) for own in (first, second)]
        node_s = JUDGED_EVERY_S * sum(idle[:span])
        record.note(span * JUDGED_EVERY_S, done, node_s)
    return record.leader("first")


# Of four spans of 100 samples chance makes at least the root of 4/3 * 4 * 5^2, which
# is 12.
@pytest.mark.parametrize(
    ("first", "second", "leader"),
    [
        pytest.param([100.0] * 4, [102.0] * 4, "first", id="by 8, of 12"),
        pytest.param([100.0] * 4, [104.0] * 4, "second", id="by 16"),
        pytest.param([100.0] * 4, [150, 90, 150, 60], "first", id="by 50 of chance"),
        pytest.param([-50.0] * 4, [10.0] * 4, "second", id="of a loss"),
        pytest.param([100.0], [200.0], "first", id="in one span"),
        pytest.param([100.0] * 2, [200.0] * 2, "second", id="in two"),
    ],
)
def test_a_leader_is_followed_that_leads_by_more_than_a_little_and_than_chance(
    first: list[float], second: list[float], leader: str
) -> None:
    assert leader_after(first, second) == leader


# The last span has most of the node-time: by that the four are 1.3, and the sum of
# squares counts 23^2 / (23^2 - 403) = 4.2 times. By time a lead of 300 were chance.
@pytest.mark.parametrize(
    ("last", "leader"),
    [
        pytest.param(2_200.0, "first", id="by 200, of 234"),
        pytest.param(2_300.0, "second", id="by 300, of 254"),
    ],
)
def test_quarters_of_an_hour_count_by_the_nodes_that_were_idle(
    last: float, leader: str
) -> None:
    few = [100.0, 100.0, 100.0]

    found = leader_after([*few, 2_000.0], [*few, last], [1.0, 1.0, 1.0, 20.0])

    assert found == leader


@pytest.mark.parametrize("done", [[0.0, 0.0], [-5.0, 0.0]])
def test_nobody_leads_while_no_node_was_idle(done: list[float]) -> None:
    record = SampleRecord(("first", "second"))
    record.note(JUDGED_EVERY_S, done, 0.0)
    record.note(2 * JUDGED_EVERY_S, done, 0.0)

    assert record.leader("first") == "first"


def test_what_was_trained_long_ago_counts_little() -> None:
    record = SampleRecord(("first", "second"))
    # Ten per cent behind for a day; a week later as much ahead, for a day.
    first, second = 0.0, 0.0
    for hour in (*range(24), *range(192, 216)):
        first += 100.0
        second += 90.0 if hour < 24 else 110.0
        record.note(hour * HOUR_S, [first, second], HOUR_S * (hour % 168 + 1))

    assert record.leader("first") == "second"


def holes(hours: int, *, until: int | None = None, nodes: int = 4) -> dict[int, Any]:
    """Return *nodes* for good, and one that comes and goes every 200 s.

    From the hour *until* on it is gone.
    """
    end_s = hours * HOUR_S
    last_s = end_s if until is None else until * HOUR_S
    starts = np.arange(0.0, last_s, 200.0).tolist()
    return {n: [(0.0, end_s)] for n in range(nodes)} | {
        nodes: [(at_s, at_s + 100.0) for at_s in starts]
    }


TEAM = [
    trainer("fast", scaling=linear(11.0), samples=440.0, fixed_nodes=None),
    trainer("slow", samples=1e7, fixed_nodes=None),
]
"""Whoever gives the fast one all nodes waits for the next change of the pool."""

PUBLISHED: dict[str, Any] = {"accounting": Accounting.PUBLISHED, "requeue": True}


def test_equal_shares_are_ahead_where_completions_are_noticed_late_and_not_else() -> (
    None
):
    pool, late = holes(1), PUBLISHED
    at_once = late | {"accounting": Accounting.PUBLISHED_C}

    by_plan, by_share = (
        [replay(pool, TEAM, policy=name, **how).samples for how in (late, at_once)]
        for name in ("freetrain", "equal")
    )

    assert by_plan[0] < by_share[0]
    assert by_plan[1] >= by_share[1]


def test_it_follows_another_policy_that_trains_more() -> None:
    pool = holes(12)

    ahead = replay(pool, TEAM, policy="lookahead", **PUBLISHED)
    equal = replay(pool, TEAM, policy="equal", **PUBLISHED)
    ours = replay(pool, TEAM, policy="adaptive", **PUBLISHED)

    assert ahead.samples < equal.samples
    followed_s = dict(ours.followed_s)
    assert followed_s["lookahead"] == pytest.approx(2 * JUDGED_EVERY_S, abs=200.0)
    assert sum(followed_s.values()) - followed_s["lookahead"] > 11 * HOUR_S
    assert ours.samples > ahead.samples + 0.6 * (equal.samples - ahead.samples)


def test_it_goes_back_to_a_policy_soon_once_a_machine_empties() -> None:
    """Four trainers, of which the first keeps four nodes, as shrinking is dear.

    Jobs of one node train more there. When 24 more nodes are idle they have no use for
    these, and the first two comparisons after that suffice.
    """
    end_s, comes_s, costs = 6 * HOUR_S, 3 * HOUR_S + 100.0, Costs(180.0, 180.0, 180.0)
    idle = {n: [(0.0, end_s)] for n in range(4)}
    idle |= {n: [(comes_s, end_s)] for n in range(4, 28)}
    idle[28] = [(at, at + 60.0) for at in np.arange(450.0, end_s, 450.0).tolist()]
    speeds = np.array([10.0 * n**0.8 for n in range(9)])
    team = [
        trainer(
            f"t{k}",
            scaling=Scaling("concave", speeds, tuple(range(1, 9))),
            samples=1e9,
            arrival_s=60.0 * k,
            costs=costs,
            fixed_nodes=None,
        )
        for k in range(4)
    ]

    ours = replay(idle, team, policy="adaptive")

    back_s = 14 * JUDGED_EVERY_S
    followed_s = {name: led_s for name, led_s in ours.followed_s if led_s}
    assert followed_s.keys() == {"lookahead", "scavenger of 1"}
    assert followed_s["scavenger of 1"] == back_s - 2 * JUDGED_EVERY_S
    # Others' plans start from the nodes that trainers hold: none starts anew.
    moved = {step.time_s: dict(step.resized) for step in ours.steps if step.resized}
    assert moved[2 * JUDGED_EVERY_S] == dict.fromkeys(("t0", "t1", "t2", "t3"), 1)
    assert moved[back_s] == {"t0": 7, "t1": 7, "t2": 7, "t3": 8}
    assert (ours.rescales, ours.preemptions) == (4, 5)
    assert ours.samples == pytest.approx(2_142_849, abs=1.0)


def test_it_plans_by_price_where_speed_ups_favour_networks_of_few_samples() -> None:
    pool, team = holes(4, nodes=10), builtin_trainers("imagenet")
    choices: dict[str, Any] = {"priority": "speedup", "parallel": 10, "requeue": True}

    ahead, equal, ours = (
        replay(pool, team, policy=name, **choices)
        for name in ("lookahead", "equal", "adaptive")
    )

    assert ahead.samples < equal.samples < ours.samples
    assert dict(ours.followed_s)[BY_PRICE] > HOUR_S


@pytest.mark.parametrize(
    ("priority", "team"),
    [
        pytest.param("throughput", TEAM[:1], id="alike"),
        pytest.param("price", TEAM, id="by price already"),
        pytest.param(
            "throughput",
            [*TEAM, trainer("none", scaling=linear(0.0))],
            id="without one",
        ),
    ],
)
def test_no_second_look_ahead_is_in_shadow_where_prices_change_nothing(
    priority: str, team: list[Any]
) -> None:
    ours = replay(holes(1), team, policy="adaptive", priority=priority)

    assert BY_PRICE not in dict(ours.followed_s)


def test_until_then_it_is_the_first_policy_to_the_digit() -> None:
    pool = {n: [(0.0, JUDGED_EVERY_S)] for n in range(4)} | {4: [(200.0, 400.0)]}

    ahead = replay(pool, TEAM, policy="lookahead", **PUBLISHED)
    ours = replay(pool, TEAM, policy="adaptive", **PUBLISHED)

    assert (ours.samples, ours.steps) == (ahead.samples, ahead.steps)
    assert ours.solver_calls == ahead.solver_calls


def test_shadows_go_on_though_a_trainer_finishes_just_when_they_are_compared() -> None:
    idle = {n: [(0.0, 2 * HOUR_S)] for n in range(4)}
    one = trainer(samples=40.0 * JUDGED_EVERY_S, fixed_nodes=None)
    asked = ReplaySettings(policy="adaptive", requeue=True)

    ours, _ = play(
        PoolTimeline.from_trace(trace_of(idle)), [one], asked, clock=no_clock
    )

    assert isinstance(ours.policy, AdaptivePolicy)
    shadow = ours.policy.shadows["freetrain"].engine
    shadow.settle(2 * HOUR_S)
    assert shadow.tally.samples == pytest.approx(ours.tally.samples) != 0.0


@pytest.mark.parametrize("accounting", [Accounting.PUBLISHED, Accounting.REAL])
def test_it_knows_nothing_of_events_to_come(accounting: Accounting) -> None:
    choices: dict[str, Any] = {"policy": "adaptive", "requeue": True}
    choices["accounting"] = accounting

    known = replay(holes(8), TEAM, **choices)
    other = replay(holes(8, until=6), TEAM, **choices)

    before = [step for step in known.steps if step.time_s < 6 * HOUR_S]
    assert before == [step for step in other.steps if step.time_s < 6 * HOUR_S]
    assert known.steps != other.steps


def test_it_knows_nothing_of_how_good_models_become() -> None:
    def team(last: float) -> list[Any]:
        truth = truth_of(
            [0.0, 2e5, 4e5, 8e5],
            [1.0, 2.0, 3.0, last],
            MetricDirection.HIGHER,
            name="q",
        )
        return [trainer(f"t{k}", samples=1e6, quality=truth) for k in range(3)]

    known = replay(holes(6), team(4.0), policy="adaptive")
    other = replay(holes(6), team(9.0), policy="adaptive")

    assert known.steps == other.steps


def test_it_looks_ahead_where_samples_are_not_what_counts_or_nobody_knows_them() -> (
    None
):
    pool = holes(5)
    for choices in ({"priority": "fair"}, {"learns_speeds": True}):
        ahead = replay(pool, TEAM, policy="lookahead", **choices)
        ours = replay(pool, TEAM, policy="adaptive", **choices)

        assert (ours.steps, ours.followed_s) == (ahead.steps, ())


@pytest.mark.parametrize(
    ("sizes", "first"), [((1,), "freetrain"), ((1, 2), "lookahead")]
)
def test_trainers_that_never_rescale_begin_without_forecasts(
    sizes: tuple[int, ...], first: str
) -> None:
    scaling = Scaling("any", np.array([0.0, 1.0, 2.0]), sizes)
    settings = ReplaySettings(policy="adaptive", requeue=True)
    own = trainer("only", scaling=scaling, samples=1e6, fixed_nodes=None)

    engine, _ = play(
        PoolTimeline.from_trace(trace_of(holes(2))), [own], settings, clock=no_clock
    )

    assert isinstance(engine.policy, AdaptivePolicy)
    assert next(iter(engine.policy.shadows)) == first
