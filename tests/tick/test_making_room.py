"""Ticks that make room, and nodes that leases must not start on."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from freetrain.broker.job_limits import (
    NONE_BLOCKED,
    NOTHING_REMEMBERED,
    AllowedLeases,
)
from freetrain.broker.reasons import EndReason, Refusal
from freetrain.broker.reconcile import Submit
from freetrain.broker.sharing import CallMemory
from freetrain.broker.yielding import NO_CLAIMS, Claims, KeptFree
from freetrain.config.site import LeaseMode
from freetrain.demo.fake_slurm.cluster import FakeJobState
from freetrain.lookahead.affinity import RecentAffinity
from freetrain.lookahead.live import IdleSnapshot, LiveForecast
from freetrain.planning.rating import Ratings
from freetrain.state.files import AgentState
from freetrain.state.tables import KnownLimits, pace
from freetrain.tick.lookahead import NodeForecasts
from freetrain.tick.plan import LimitsNow, TickPlan, nodes_to_exclude
from freetrain.tick.tick import tick
from slurm.batch import MAX_VALUE_BYTES
from slurm.holes import Hole
from slurm.records import expand
from tests.broker.broker_records import NOW_S, hole, holes, situation
from tests.broker.test_decide import decided, trainer
from tests.tick.tick_worlds import TickWorld, lease_of, running, theirs


@pytest.fixture(autouse=True)
def _yielding(world: TickWorld) -> None:
    world.change("lease", mode=LeaseMode.YIELD)


def test_a_trainer_that_cannot_be_read_makes_room_as_well(world: TickWorld) -> None:
    running(world, most=8)
    world.beat(*world.running(), state=AgentState.TRAINING, trainer="a")
    world.put(replace(world.row("a"), job='name = "a"\nnonsense = 1'))
    world.slurm.standin.add([theirs(world) for _ in range(3)])
    world.tick()
    assert [job.signals for job in world.live() if job.signals] == [["TERM"]] * 3


def test_a_careful_tick_tells_of_whom_it_had_no_time_to_try(world: TickWorld) -> None:
    running(world, most=4)
    planned = {"due_s": world.now_s + 50.0, "wanted": ["n1"]}
    world.slurm.standin.add([theirs(world), theirs(world, **planned)])
    world.now_s += 1.0

    def problems(clock: Callable[[], float]) -> tuple[str, ...]:
        environment = replace(world.environment, clock=clock)
        return tick(world.site, environment, dry_run=True).status.problems

    (said,) = problems(itertools.count().__next__)
    assert said.startswith("careful: the ends of 1 running jobs could not be tried")
    assert problems(lambda: 0.0) == ()
    world.change("lease", careful=False)
    assert problems(itertools.count().__next__) == ()


def test_a_job_that_could_start_now_needs_no_planned_start(world: TickWorld) -> None:
    world.change("holes", margin_s=60.0)
    running(world, most=8)
    planned = {"due_s": world.now_s + 50.0, "wanted": ["n1", "n2"]}
    world.slurm.standin.add([theirs(world, **planned)])

    world.tick()

    (job,) = (one for one in world.live() if one.nodes == ["n1"])
    uuid = lease_of(job).uuid
    said = world.events(uuid)[-1]
    assert (said.detail, said.leases) == (str(EndReason.CLAIMED), 2)


def test_a_lease_without_agent_is_ended_as_failed_start(world: TickWorld) -> None:
    world.submit("a", most=2)
    world.tick()
    world.tick()
    (heard, unheard) = sorted(world.running())
    world.beat(heard)
    world.tick()

    world.now_s += 180.0
    world.beat(heard)
    status = world.status()

    assert status.done["leases ended"] == 1
    assert unheard not in map(lease_of, world.live())
    assert heard in map(lease_of, world.live())
    with world.reading() as store:
        assert pace(store, since_s=0.0).failed_starts == 1


def test_a_lease_past_its_deadline_is_still_ours(world: TickWorld) -> None:
    running(world, most=1)
    world.change_jobs(limit_s=1e6)
    world.now_s += 20 * 3_600.0
    world.go_on(3, every_s=100.0)
    (job,) = world.live()
    assert [lease.job for lease in world.status().leases] == [str(job.job_id)]


def test_no_lease_starts_beside_leases_that_just_leave(world: TickWorld) -> None:
    running(world, most=6)
    leaving = {"state": FakeJobState.CANCELLED, "end_s": world.now_s}
    world.change_jobs(first=2, is_completing=True, **leaving)
    everywhere = [f"n{k}" for k in range(1, 9)]
    late_s = world.now_s + 20_000.0
    world.slurm.standin.add([theirs(world, wanted=everywhere, due_s=late_s)])
    world.submit("b", most=2)
    before = len(world.slurm.calls("sbatch"))

    world.tick()

    assert len(world.slurm.calls("sbatch")) == before


def test_a_long_lease_is_kept_off_booked_nodes(world: TickWorld) -> None:
    # Somebody needs seven nodes, of which two are held for half an hour. Slurm will
    # take the first seven then, so that the last of the eight is free for longer; so
    # far it means to start that job hours later, and lets leases begin anywhere.
    world.change("holes", margin_s=300.0)
    held = {"partition": "main", "limit_s": 1_800.0, "run_s": 1_800.0}
    waits = [f"n{k}" for k in range(1, 8)]
    world.slurm.standin.add(
        [
            theirs(world, wanted=["n1"], due_s=world.now_s, **held),
            theirs(world, wanted=["n2"], due_s=world.now_s, **held),
            theirs(world, wanted=waits, due_s=world.now_s + 20_000.0),
        ]
    )
    world.submit("a", most=2)

    world.tick()

    asked = [job for job in world.live() if job.user != "bob"]
    lasting = [job for job in asked if job.limit_s > 1_500.0]
    assert len(asked) == 2
    assert [job.nodes for job in lasting] == [["n8"]]


def test_a_careful_tick_keeps_leases_off_nodes_kept_free(world: TickWorld) -> None:
    # Six nodes are needed by whom one end would let start, and five are held. Slurm
    # would put a lease on the first idle one, and the next tick would give it up.
    world.change("lease", careful=True)
    held = {"due_s": world.now_s, "limit_s": 3_600.0, "run_s": 3_600.0}
    ends_s, first = world.now_s + 3_600.0, [f"n{k}" for k in range(1, 5)]
    world.slurm.standin.add(
        [
            theirs(world, wanted=first, **held),
            theirs(world, wanted=["n5"], **held),
            theirs(world, wanted=[*first, "n5", "n6"], due_s=ends_s),
            theirs(world, wanted=first, due_s=ends_s + 60.0),
        ]
    )
    world.submit("a", most=8)

    status = tick(world.site, replace(world.environment, clock=lambda: 0.0)).status

    asked = [job for job in world.live() if job.user != "bob"]
    for_them = f"{Refusal.KEPT_FREE}: "
    kept = {h.node: h.refusal for h in status.holes if for_them in h.refusal}
    assert kept == dict.fromkeys(("n6", "n7"), f"{for_them}3")
    assert [job.nodes for job in asked] == [["n8"]]


def test_a_new_lease_ends_before_a_waiting_job_could_start(world: TickWorld) -> None:
    # One of the eight nodes that somebody needs is held for half an hour; what backfill
    # planned last is of before that was known.
    world.change("holes", margin_s=300.0)
    everywhere = [f"n{k}" for k in range(1, 9)]
    held = {"wanted": ["n8"], "due_s": world.now_s, "run_s": 1_800.0}
    world.slurm.standin.add(
        [
            theirs(world, partition="main", limit_s=1_800.0, **held),
            theirs(world, wanted=everywhere, due_s=world.now_s + 6_000.0),
        ]
    )
    world.submit("a", most=2)

    world.tick()

    limits_s = [job.limit_s for job in world.live() if job.user != "bob"]
    assert limits_s
    assert max(limits_s) <= 1_500.0


# Nodes to exclude, by what the plan was made of.

KEPT = Claims({}, {"n0": 7}, kept_free=KeptFree({"n0": 7}, 0))
CLAIMED = Claims({}, {"n1": 5})
LEASED = Claims({"n9": 7}, {}, kept_free=KeptFree({"n9": 7}, 0))
MANY = tuple(f"n{'x' * k}" for k in range(1, MAX_VALUE_BYTES // 10))


def forecasts() -> NodeForecasts:
    """Return forecasts that tell holes apart."""
    forecast = LiveForecast(500.0)
    for looks in range(5):
        forecast.look(NOW_S + 900.0 * looks, IdleSnapshot(frozenset(), frozenset(), {}))
    pairs = RecentAffinity()
    return NodeForecasts(
        forecast=forecast, pairs=pairs, known_names=0, lease_forecasts={}, ended=()
    )


def excluded(
    claims: Claims,
    *names: str,
    forecasts: NodeForecasts | None = None,
    also: tuple[Hole, ...] = (),
) -> str:
    """Return the nodes that are excluded for leases in the holes *names*."""
    found = situation(
        holes={"any": (*holes(*names), *also)}, trainers=(trainer("a"),), claims=claims
    )
    decision = decided(found)
    asked = [action for action in decision.actions if isinstance(action, Submit)]
    plan = TickPlan(
        situation=found,
        decision=decision,
        shapes={},
        ratings=Ratings(priority="throughput"),
        problems=(),
        calls=CallMemory(),
        limits=LimitsNow(
            KnownLimits(), NONE_BLOCKED, NOTHING_REMEMBERED, AllowedLeases()
        ),
        want=0,
        forecasts=forecasts,
    )
    return nodes_to_exclude(plan, max(asked, key=lambda action: action.limit_min))


@pytest.mark.parametrize(
    ("claims", "nodes"),
    [(NO_CLAIMS, ""), (KEPT, "n0"), (LEASED, "n9"), (CLAIMED, "n1")],
    ids=["none", "kept free", "leased until then", "a job could start there"],
)
def test_nodes_left_to_waiting_jobs_are_excluded(claims: Claims, nodes: str) -> None:
    assert excluded(claims, "n0", "n1", "n2") == nodes


def test_of_too_many_claims_as_many_are_excluded_as_slurm_takes() -> None:
    # Kept off none of them, leases would start there, be given up and asked for again.
    text = excluded(Claims({}, dict.fromkeys(reversed(MANY), 5)), "n0", *MANY)
    assert expand(text) == MANY[: len(expand(text))]
    assert MAX_VALUE_BYTES // 2 < len(text) <= MAX_VALUE_BYTES


def test_booked_holes_are_excluded_before_claims_and_claims_before_idle_ones() -> None:
    claims = Claims({}, dict.fromkeys(MANY, 5), booked_s={"booked": NOW_S + 300.0})
    soon, ahead = hole("booked", end_s=NOW_S + 300.0), forecasts()
    assert "booked" in expand(excluded(claims, *MANY, "n0", also=(soon,)))
    assert excluded(CLAIMED, *(f"n{k}" for k in range(7)), forecasts=ahead) == "n[1,6]"
    text = excluded(CLAIMED, *MANY, "n0", "n1", forecasts=ahead)
    assert "n1" in expand(text)
    assert len(text) <= MAX_VALUE_BYTES
