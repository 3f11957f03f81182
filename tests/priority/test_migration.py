"""Rules by which members of packs move: only where that makes packs less crowded."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.priority.migration import RULES, MoveRule, PackLoad, PackMember

members = st.builds(
    PackMember,
    name=st.uuids().map(str),
    growth=st.none() | st.floats(-40, 40),
    is_slow=st.booleans(),
    can_move=st.booleans(),
)
packs = st.lists(
    st.tuples(st.integers(1, 4), st.lists(members, max_size=5)), min_size=1, max_size=4
).map(
    lambda found: [
        PackLoad(pack=f"p{k}", cpus=cpus, members=tuple(own))
        for k, (cpus, own) in enumerate(found)
    ]
)


def load(pack: str, *own: PackMember, cpus: int = 1) -> PackLoad:
    return PackLoad(pack=pack, cpus=cpus, members=own)


@pytest.mark.parametrize("rule", MoveRule)
@given(packs)
def test_a_member_moves_to_where_it_shares_cpus_with_fewer_and_none_is_asked_in_vain(
    rule: MoveRule, packs: Sequence[PackLoad]
) -> None:
    move = RULES[rule](packs)

    if move is not None:
        by_name = {pack.pack: pack for pack in packs}
        source, target = by_name[move.source], by_name[move.target]
        (member,) = [m for m in source.members if m.name == move.member]
        assert member.can_move
        assert member.is_slow or rule is not MoveRule.SPECON
        assert (len(target.members) + 1) / target.cpus < source.crowding


@pytest.mark.parametrize("rule", MoveRule)
@given(packs)
def test_moves_come_to_an_end(rule: MoveRule, packs: Sequence[PackLoad]) -> None:
    loads = {pack.pack: pack for pack in packs}
    for _ in range(100):
        move = RULES[rule](tuple(loads.values()))
        if move is None:
            return
        source, target = loads[move.source], loads[move.target]
        (gone,) = [m for m in source.members if m.name == move.member]
        stay = tuple(m for m in source.members if m is not gone)
        loads[source.pack] = load(source.pack, *stay, cpus=source.cpus)
        loads[target.pack] = load(target.pack, *target.members, gone, cpus=target.cpus)
    pytest.fail("members go to and fro")


def test_balance_moves_the_newest_and_specon_the_slowest_grower() -> None:
    slow = PackMember(name="slow", growth=0.01, is_slow=True)
    slower = PackMember(name="slower", growth=-0.5, is_slow=True)
    fast = PackMember(name="fast", growth=2.0)
    crowded, empty = load("a", slow, slower, fast), load("b")

    moves = [RULES[rule]((crowded, empty)) for rule in MoveRule]

    assert [move and move.member for move in moves] == ["fast", "slower"]


def test_packs_are_alike_if_their_members_have_as_many_cpus() -> None:
    large = load(
        "a", *(PackMember(name=f"m{k}", is_slow=True) for k in range(4)), cpus=4
    )
    small = load("b", PackMember(name="n", is_slow=True), cpus=1)

    assert [rule((large, small)) for rule in RULES.values()] == [None, None]
