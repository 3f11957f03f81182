"""Looking ahead where leases take pieces of nodes."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from freetrain.broker.decide import Decision, decide_leases
from freetrain.broker.limits import Limits
from freetrain.broker.pool import (
    Situation,
    classify,
    classify_by,
    divided,
    node_of_piece,
    piece_name,
    pool_of,
)
from freetrain.broker.reasons import TrainerReason
from freetrain.lookahead.base import Prospect
from milp.window import WindowClass
from tests.broker.broker_records import NOW_S, key, lease
from tests.broker.test_decide_ahead import (
    HORIZON_S,
    KnownForecast,
    foresight,
    lookahead,
)
from tests.broker.test_decide_pieces import WIDTHS, look, trainer

RISKY = Prospect(100.0, 0.9, 1.0)


def decided(seen: Situation, forecast: KnownForecast) -> Decision:
    return decide_leases(
        seen,
        lookahead(),
        Limits(),
        t_fwd_s=HORIZON_S,
        foresight=foresight(forecast),
    )


def asked(decision: Decision) -> dict[str, Counter[str]]:
    """By shape, the nodes that leases are asked for on."""
    found: dict[str, Counter[str]] = {}
    for request in decision.wanted.requests:
        found.setdefault(request.shape, Counter()).update(request.nodes)
    return found


def test_trainers_of_whole_nodes_look_ahead_beside_trainers_of_pieces() -> None:
    idle = frozenset({"n1", "n2", "n3", "n4"})
    seen = look(
        {**dict.fromkeys(idle, 8), "n5": 2},
        trainer("whole", "whole", most=2),
        trainer("pieces", "one", most=2),
        idle=idle,
        shapes=("one", "whole"),
    )
    risky = KnownForecast(prospects={"n1": RISKY, "n3": RISKY})

    decision = decided(seen, risky)

    assert asked(decision)["whole"] == Counter(["n2", "n4"])
    assert sum(decision.planned.holdings[1].values()) == 2
    assert not decision.planned.is_by_m0
    assert "left out" not in decision.planned.reason


def test_trainers_of_pieces_take_those_that_are_expected_to_stay() -> None:
    seen = look({"n1": 2, "n2": 2}, trainer("a", "one", most=2), shapes=("one",))
    risky = {piece_name("n1", gpu): RISKY for gpu in (1, 2)}

    decision = decided(seen, KnownForecast(prospects=risky))

    assert asked(decision) == {"one": Counter({"n2": 2})}


def test_of_two_nodes_that_lose_all_at_once_each_trainer_has_one() -> None:
    seen = look(
        {"n1": 4, "n2": 4},
        trainer("a", "one", most=4),
        trainer("b", "one", most=4),
        shapes=("one",),
    )
    pieces = [piece_name(node, gpu) for node in ("n1", "n2") for gpu in range(1, 5)]
    together = KnownForecast(
        groups={name: node_of_piece(name) for name in pieces},
        prospects=dict.fromkeys(("n1", "n2"), Prospect(300.0, 0.9, 1.0)),
    )
    seen = replace(seen, trainers=tuple(replace(t, loss_s=50.0) for t in seen.trainers))

    decision = decided(seen, together)

    assert [len(holding) for holding in decision.planned.holdings] == [1, 1]
    assert [sum(holding.values()) for holding in decision.planned.holdings] == [4, 4]


def test_a_wide_lease_is_as_risky_as_the_first_of_its_gpus_to_go() -> None:
    # A job is expected on the upper half of n1, which both leases of two GPUs there
    # have; the one below, and both on n2, stay.
    seen = look({"n1": 4, "n2": 4}, trainer("a", "two", most=3), shapes=("two",))
    risky = {piece_name("n1", gpu): RISKY for gpu in (3, 4)}

    decision = decided(seen, KnownForecast(prospects=risky))

    used = {
        part.name
        for part in decision.classes.nodes
        if decision.classes.index[part.name] in decision.planned.holdings[0]
    }
    assert used == {"n1#2", "n2#2", "n2#4"}


def test_a_trainer_that_gets_nothing_of_idle_nodes_is_told_who_gains_more() -> None:
    seen = look(
        {"n1": 8},
        trainer("whole", "whole", most=1),
        trainer("pieces", "one", most=8),
        idle=frozenset({"n1"}),
        shapes=("one", "whole"),
    )

    decision = decided(seen, KnownForecast())

    reasons = {why.trainer: why.reason for why in decision.trainers}
    assert reasons["whole"] is TrainerReason.OTHERS_GAIN_MORE
    assert reasons["pieces"] is TrainerReason.AWAITS_LEASES


def test_pieces_are_numbered_from_the_youngest_lease_on_a_node() -> None:
    old, young = NOW_S - 900.0, NOW_S - 60.0
    held = (
        lease(0, "n1", shape="one", start_s=old),
        lease(1, "n1", shape="two", start_s=young),
    )
    seen = look({"n1": 1}, leases=held, shapes=("one", "two"))

    nodes, _ = pool_of(seen, Limits())
    names = {node.lease.key if node.lease else None: node.name for node in nodes}
    assert names == {key(1): "n1#2", key(0): "n1#3", None: "n1#4"}


@given(
    st.dictionaries(st.sampled_from(["n1", "n2", "n3"]), st.integers(1, 8), min_size=1),
    st.frozensets(st.sampled_from(["n1", "n2"])),
    st.sets(st.sampled_from(["one", "two", "four", "whole"]), min_size=1),
    st.data(),
)
def test_idle_nodes_are_divided_as_they_were_given(
    gpus: Mapping[str, int],
    idle: frozenset[str],
    shapes: set[str],
    data: st.DataObject,
) -> None:
    seen = look(dict(gpus), idle=idle, shapes=tuple(sorted(shapes)))
    nodes, _ = pool_of(seen, Limits())
    classes = classify(nodes, now_s=NOW_S)
    chosen: dict[tuple[str, str], int] = {}
    for node in nodes:
        room = node.units
        for shape in sorted(node.shapes, key=lambda shape: -WIDTHS.get(shape, 8)):
            width = classes.width(shape, classes.index[node.name])
            leases = data.draw(st.integers(0, room // width))
            chosen[node.name, shape] = leases
            room -= leases * width

    parts = divided(classes, chosen)

    assert len({part.name for part in parts}) == len(parts)
    for node in nodes:
        own = [
            part
            for part in parts
            if part.node == node.node
            and node.below <= part.below < node.below + node.units
        ]
        found = Counter(shape for part in own for shape in part.shapes)
        assert all(len(part.shapes) == 1 for part in own)
        assert (
            sum(WIDTHS.get(s, node.units) * n for s, n in found.items()) <= node.units
        )
        assert all(found[s] >= chosen[node.name, s] for s in node.shapes)


def test_leases_of_several_gpus_are_fewer_of_their_group() -> None:
    seen = look({"n1": 4}, trainer("a", "two", most=2), shapes=("two",))
    expected = Prospect(300.0, 0.8, 0.3)
    known = KnownForecast(
        groups={"n1#2": "g", "n1#4": "g"}, prospects={"g": expected}, sizes={"g": 8}
    )
    nodes, _ = pool_of(seen, Limits())
    parts = divided(classify(nodes, now_s=NOW_S), {})

    _, forecast = classify_by(foresight(known), parts, now_s=NOW_S)

    (stay,) = forecast.stays.values()
    assert stay == WindowClass(2, 300.0, WindowClass(4, *expected).hits()[2], 0.3)
