"""Which idle nodes leases are kept off."""

from __future__ import annotations

from freetrain.broker.actions import Submit
from freetrain.broker.caution import Care
from freetrain.broker.claims import NO_CLAIMS, Claims
from freetrain.forecast.live import LiveForecast, Sight
from freetrain.forecast.recent import RecentAffinity
from freetrain.tick.decision import Decided
from freetrain.tick.deserts import Deserts
from freetrain.tick.foreseeing import Outlook
from freetrain.tick.steering import kept_off
from slurm.batch import MAX_VALUE_BYTES
from tests.broker.broker_records import NOW_S, hole
from tests.broker.test_decide import decided, look, trainer

KEPT = Claims({}, {"n0": 7}, care=Care({"n0": 7}, 0))
CLAIMED = Claims({}, {"n1": 5})


MANY = tuple(f"n{'x' * k}" for k in range(1, MAX_VALUE_BYTES // 10))


def an_outlook() -> Outlook:
    """Return one by which holes are told apart."""
    forecast = LiveForecast(500.0)
    for looks in range(5):
        forecast.look(NOW_S + 900.0 * looks, Sight(frozenset(), frozenset(), {}))
    return Outlook(
        forecast=forecast, pairs=RecentAffinity(), known_names=0, told={}, ended=()
    )


def excluded(claims: Claims, *names: str, outlook: Outlook | None = None) -> str:
    """Return what the leases are kept off that are asked for of the holes *names*."""
    seen = look(tuple(map(hole, names)), trainer("a"), claims=claims)
    decision = decided(seen)
    (action,) = decision.actions
    assert isinstance(action, Submit)
    made = Decided(
        look=seen,
        decision=decision,
        shapes={},
        deserts=Deserts(priority="throughput"),
        problems=(),
        outlook=outlook,
    )
    return kept_off(made, action)


def test_leases_are_kept_off_nodes_that_somebody_would_need_if_a_job_ended() -> None:
    assert excluded(NO_CLAIMS, "n0", "n1", "n2") == ""
    assert excluded(KEPT, "n0", "n1", "n2") == "n0"


def test_leases_are_kept_off_idle_nodes_that_somebody_could_start_on() -> None:
    # Slurm may come to a lease in a partition of its own before it comes to who is
    # behind others in theirs.
    assert excluded(CLAIMED, "n0", "n1", "n2") == "n1"


def test_where_claims_make_too_long_a_list_any_hole_will_do() -> None:
    assert excluded(Claims({}, dict.fromkeys(MANY, 5)), "n0", *MANY) == ""


def test_where_the_list_is_too_long_what_is_somebodys_is_on_it_alone() -> None:
    ahead = an_outlook()

    assert excluded(CLAIMED, *(f"n{k}" for k in range(7)), outlook=ahead) == "n[1,6]"
    assert excluded(CLAIMED, "n0", "n1", *MANY, outlook=ahead) == "n1"
