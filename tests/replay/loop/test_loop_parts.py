"""The parts of a loop, one at a time."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from freetrain.lookahead.learned import LearnedForecaster
from freetrain.replay.loop import harm_of
from freetrain.replay.loop_leases import Leases, PromisedForecaster
from freetrain.replay.run import ReplayResult
from freetrain.replay.settings import LoopSettings
from logs.simulation import Machine, MachineUnits
from tests.replay.loop.worlds_loop import UNBOUND, J, play, stage_of
from tests.replay.worlds import trainer

BOUND = LoopSettings(margin_s=30.0, shortest_s=60.0)


def planned(
    start_s: float, job: int, *nodes: int, of: int = 4
) -> tuple[float, int, NDArray[np.bool_]]:
    there = np.zeros(of, np.bool_)
    there[list(nodes)] = True
    return start_s, job, there


def test_a_node_is_promised_to_whoever_is_planned_there_first() -> None:
    leases = Leases(4, BOUND)
    leases.see([planned(300.0, 7, 0, 1), planned(500.0, 8, 1, 2)])

    assert leases.planned(range(4)) == {0: (300.0, 7), 1: (300.0, 7), 2: (500.0, 8)}
    assert [leases.usable_until_s(node) for node in (1, 2)] == [270.0, 470.0]


def test_only_nodes_worth_a_lease_that_nobody_claims_are_open() -> None:
    leases = Leases(4, BOUND)
    leases.see([planned(189.0, 7, 0), planned(190.0, 8, 1)])
    leases.claimed = frozenset({2})

    assert leases.open(range(4), 100.0) == [1, 3]


def test_a_new_lease_ends_its_margin_before_somebody_is_booked_there() -> None:
    leases = Leases(4, BOUND)
    leases.keep([0], 0.0)
    leases.booked_s = {0: 200.0, 1: 189.0, 2: 190.0}

    assert leases.open(range(1, 4), 100.0) == [2, 3]
    assert leases.usable_until_s(2) == 160.0  # if it were leased now
    leases.keep([0, 2, 3], 100.0)
    ends_s = [leases.usable_until_s(node) for node in (0, 2, 3)]
    assert ends_s == [math.inf, 160.0, math.inf]


def test_leases_end_with_their_limit_or_before_the_plan_whichever_is_sooner() -> None:
    leases = Leases(4, LoopSettings(margin_s=30.0, longest_s=100.0))
    leases.keep([0, 1], 10.0)
    leases.keep([0, 1, 2], 60.0)
    leases.see([planned(100.0, 7, 0)])

    assert [leases.usable_until_s(node) for node in (0, 1, 2)] == [70.0, 110.0, 160.0]
    assert leases.next_end_s == 70.0
    assert leases.due(110.0) == {0, 1}


def test_nodes_of_one_planned_job_are_one_cluster_and_expected_to_leave_together() -> (
    None
):
    leases = Leases(4, LoopSettings())
    learned = LearnedForecaster(400.0)
    forecaster = PromisedForecaster(learned, leases, horizon_s=400.0)
    leases.see([planned(90.0, 7, 0, 2)])
    forecaster.see(30.0, joined=(0, 1, 2), left=())

    assert forecaster.cluster(0) == forecaster.cluster(2) != forecaster.cluster(1)
    assert set(forecaster.members(forecaster.cluster(0))) == {0, 2}
    soon = forecaster.prospect(forecaster.cluster(0))
    later = forecaster.prospect(forecaster.cluster(1))
    assert soon.share == 1.0
    assert soon.life_s < later.life_s
    assert soon.hit > later.hit


def test_a_lease_that_must_end_is_an_end_that_is_known() -> None:
    leases = Leases(4, BOUND)
    forecaster = PromisedForecaster(LearnedForecaster(400.0), leases, horizon_s=400.0)
    leases.see([planned(90.0, 7, 0)])
    forecaster.see(30.0, joined=(0, 1), left=())

    soon = forecaster.prospect(forecaster.cluster(0))
    assert soon.hit == 1.0
    assert soon.life_s <= 30.0


def test_harm_is_the_difference_job_by_job() -> None:
    harm = harm_of(
        {0: 10.0, 1: 25.0, 2: 30.0, 3: 50.5, 4: 59.5},
        {0: 10.0, 1: 5.0, 2: 40.0, 3: 50.0, 4: 60.0},
        {1: 15.0, 2: 2.0},
        bound_s=10.0,
    )

    assert (harm.jobs, harm.later, harm.sooner) == (5, 2, 2)
    assert (harm.median_s, harm.most_s) == (0.0, 20.0)
    assert harm.mean_s == 2.0
    assert (harm.met, harm.waited_most_s, harm.waited_longer) == (2, 15.0, 1)
    assert (harm.waited_mean_s, harm.waited_median_s) == (8.5, 8.5)
    assert (harm.met_later_mean_s, harm.met_later_most_s) == (5.0, 20.0)


def test_a_machine_knows_what_is_left_of_a_lease() -> None:
    machine = Machine((), MachineUnits(3))
    machine.now_s = 0.0
    machine.lease(0b110, 100.0)
    machine.release(0b010)
    assert (machine.leased, machine.free) == (0b100, 0b011)

    assert [lease.expected_end_s for lease in machine.running.values()] == [100.0]
    assert machine.without_leases().free == 0b111
    assert machine.leased == 0b100
    assert machine.next_end_s == math.inf


# Forecasts of planned starts, held against the starts

EARLY = [J(0.0, 605.0, 2, 900.0), J(70.0, 50.0, 3)]
"""The second needs all three nodes, at 900 s as planned; the first ends at 605 s."""


def played(*, knows_plans: bool, **choices: Any) -> ReplayResult:  # noqa: ANN401
    loop = LoopSettings(notice_s=0.0, knows_plans=knows_plans, **UNBOUND)
    stage = stage_of(EARLY, 3, until_s=1_500.0)
    return play(stage, [trainer()], loop, policy="lookahead", **choices).replay


def test_the_record_says_that_a_plan_came_early() -> None:
    record = played(knows_plans=True, record_forecasts=True).forecasts

    assert record is not None
    # One node waits for it: from the tick at 120 s on, and taken at 605 s.
    assert [(kind.lead_s, kind.nodes, kind.early) for kind in record.promises] == [
        (300.0, 1, 1.0),
        (600.0, 1, 1.0),
    ]
    assert all(-300.0 <= kind.middle_s <= -120.0 for kind in record.promises)
    assert record.deciles


def test_nothing_is_recorded_of_plans_unknown_or_unless_asked_for() -> None:
    blind = played(knows_plans=False, record_forecasts=True).forecasts
    plain = played(knows_plans=True)

    assert blind is not None
    assert blind.promises == ()
    assert plain.forecasts is None
    assert played(knows_plans=True, record_forecasts=True).steps == plain.steps
