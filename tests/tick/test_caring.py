"""What a careful tick tells of a hole."""

from __future__ import annotations

from freetrain.broker.decide import HoleExplanation, HoleReason
from freetrain.broker.delay_protection import KeptFree
from freetrain.broker.pool import Refusal
from freetrain.broker.yielding import Claims
from freetrain.tick.plan import refusal_of


def test_it_is_told_for_whom_a_node_is_kept_free() -> None:
    claims = Claims({"n1": 7}, {"n0": 5}, kept_free=KeptFree({"n1": 7}, 0))

    def told(node: str, refusal: Refusal | None) -> str:
        return refusal_of(HoleExplanation(node, HoleReason.UNUSABLE, refusal), claims)

    assert told("n0", Refusal.CLAIMED) == Refusal.CLAIMED
    assert told("n1", Refusal.KEPT_FREE) == (
        "somebody's job would need it if another ended: 7"
    )
    assert told("n2", None) == ""
