"""Which idle nodes leases are kept off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.broker.actions import Submit
from freetrain.broker.delay_protection import KeptFree
from freetrain.broker.yielding import NO_CLAIMS, Claims
from freetrain.lookahead.affinity import RecentAffinity
from freetrain.lookahead.live import LiveForecast, PoolSnapshot
from freetrain.tick.act import nodes_to_exclude
from freetrain.tick.lookahead import NodeForecasts
from freetrain.tick.plan import Decided
from freetrain.tick.rate import Ratings
from slurm.batch import MAX_VALUE_BYTES
from slurm.hostlist import expand
from tests.broker.broker_records import NOW_S, hole
from tests.broker.test_decide import decided, look, trainer

if TYPE_CHECKING:
    from slurm.holes import Hole

KEPT = Claims({}, {"n0": 7}, kept_free=KeptFree({"n0": 7}, 0))
CLAIMED = Claims({}, {"n1": 5})


MANY = tuple(f"n{'x' * k}" for k in range(1, MAX_VALUE_BYTES // 10))


def an_outlook() -> NodeForecasts:
    """Return one by which holes are told apart."""
    forecast = LiveForecast(500.0)
    for looks in range(5):
        forecast.look(NOW_S + 900.0 * looks, PoolSnapshot(frozenset(), frozenset(), {}))
    return NodeForecasts(
        forecast=forecast, pairs=RecentAffinity(), known_names=0, told={}, ended=()
    )


def excluded(
    claims: Claims,
    *names: str,
    outlook: NodeForecasts | None = None,
    also: tuple[Hole, ...] = (),
) -> str:
    """Return what the leases are kept off that are asked for of the holes *names*."""
    seen = look((*map(hole, names), *also), trainer("a"), claims=claims)
    decision = decided(seen)
    asked = [action for action in decision.actions if isinstance(action, Submit)]
    action = max(asked, key=lambda one: one.limit_min)
    made = Decided(
        look=seen,
        decision=decision,
        shapes={},
        ratings=Ratings(priority="throughput"),
        problems=(),
        outlook=outlook,
    )
    return nodes_to_exclude(made, action)


def test_leases_are_kept_off_nodes_that_somebody_would_need_if_a_job_ended() -> None:
    assert excluded(NO_CLAIMS, "n0", "n1", "n2") == ""
    assert excluded(KEPT, "n0", "n1", "n2") == "n0"
    leaving = Claims(
        {"n9": 7}, {}, kept_free=KeptFree({"n9": 7}, 0)
    )  # leased until then
    assert excluded(leaving, "n0", "n1", "n2") == "n9"


def test_leases_are_kept_off_idle_nodes_that_somebody_could_start_on() -> None:
    # Slurm may come to a lease in a partition of its own before it comes to who is
    # behind others in theirs.
    assert excluded(CLAIMED, "n0", "n1", "n2") == "n1"


def test_of_too_long_a_list_of_claims_as_many_are_kept_off_as_slurm_takes() -> None:
    # Kept off none of them, leases would start there, be given up and asked for again.
    text = excluded(Claims({}, dict.fromkeys(reversed(MANY), 5)), "n0", *MANY)

    assert expand(text) == MANY[: len(expand(text))]
    assert MAX_VALUE_BYTES // 2 < len(text) <= MAX_VALUE_BYTES


def test_where_claims_are_too_many_leases_are_kept_off_booked_holes_all_the_same() -> (
    None
):
    claims = Claims({}, dict.fromkeys(MANY, 5), booked_s={"booked": NOW_S + 300.0})
    soon = hole("booked", end_s=NOW_S + 300.0)

    text = excluded(claims, *MANY, "n0", also=(soon,))

    assert "booked" in expand(text)


def test_where_the_list_is_too_long_what_is_somebodys_comes_first() -> None:
    ahead = an_outlook()

    assert excluded(CLAIMED, *(f"n{k}" for k in range(7)), outlook=ahead) == "n[1,6]"
    text = excluded(CLAIMED, *MANY, "n0", "n1", outlook=ahead)
    assert "n1" in expand(text)
    assert len(text) <= MAX_VALUE_BYTES
