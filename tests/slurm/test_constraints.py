"""Constraint expressions: what Slurm's documentation says of them, and any text."""

from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.demands import ANY_NODE, FeatureChoice, has_features, parse_constraint

FEATURES = ("a", "b", "c")


def sets() -> Iterator[frozenset[str]]:
    """Yield every set of features that a node can have."""
    for there in product((False, True), repeat=len(FEATURES)):
        names = zip(FEATURES, there, strict=True)
        yield frozenset(name for name, is_there in names if is_there)


def met_by(text: str) -> list[str]:
    """Return the nodes, by their features, that meet *text*, which has one way."""
    choices = parse_constraint(text)
    assert choices is not None
    (choice,) = choices
    assert choice.each is not None
    return ["".join(sorted(f)) for f in sets() if has_features(choice.each, f)]


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("a", "a ac ab abc"),
        ("a&b", "ab abc"),
        ("a,b", "ab abc"),
        ("a|b", "b bc a ac ab abc"),
        ("a&b|c", "c bc ac ab abc"),
        ("a|b&c", "bc ac abc"),
        ("a&(b|c)", "ac ab abc"),
        ("(a|b)&(c)", "bc ac abc"),
    ],
)
def test_expressions_are_read_from_left_to_right(text: str, nodes: str) -> None:
    assert met_by(text) == nodes.split()


@pytest.mark.parametrize("text", ["[a|b]&c", "c&[a|b]", "c,[a|(b)]"])
def test_brackets_offer_one_of_several_to_all_nodes(text: str) -> None:
    choices = parse_constraint(text)

    assert choices is not None
    ways = [
        ["".join(sorted(f)) for f in sets() if has_features(choice.each, f)]
        for choice in choices
        if choice.each is not None
    ]
    assert ways == [["ac", "abc"], ["bc", "abc"]]


def test_counts_are_of_some_nodes_and_leave_the_others_free() -> None:
    assert parse_constraint("a*2") == (FeatureChoice(some=(("a", 2),)),)
    assert parse_constraint("[a*2]") == parse_constraint("a*2")
    assert parse_constraint("a*2&b*3") == (FeatureChoice(some=(("a", 2), ("b", 3))),)
    (choice,) = parse_constraint("[(a&b)*2&c*3]") or ()
    assert choice.is_apart
    assert [count for _, count in choice.some] == [2, 3]
    assert choice.each is not None
    assert {f for f in sets() if has_features(choice.each, f)} == {
        f for f in sets() if f >= {"a", "b"} or "c" in f
    }


@pytest.mark.parametrize(
    "text",
    [
        *("!a", "a b", "a&", "&a", "a*", "a*0", "a*x", "(a", "a)", "[a", "a]", "()"),
        *("[a|b]&[c|d]", "((a))", "[[a]]", "[a&b|c]", "a*2&[b|c]", "a|", "[]", "a(b)"),
    ],
)
def test_an_unclear_expression_is_not_read(text: str) -> None:
    assert parse_constraint(text) is None


def test_no_expression_asks_for_nothing() -> None:
    assert parse_constraint("") == (ANY_NODE,)


@given(st.text() | st.text("ab&|,*()[]0129!", max_size=30))
def test_no_text_raises(text: str) -> None:
    for choice in parse_constraint(text) or ():
        if choice.each is not None:
            has_features(choice.each, {"a"})


features = st.sampled_from(FEATURES)
groups = st.lists(features, min_size=1, max_size=3).flatmap(
    lambda names: st.lists(
        st.sampled_from("&|,"), min_size=len(names) - 1, max_size=len(names) - 1
    ).map(lambda signs: (tuple(names), tuple(signs)))
)
plain = st.lists(st.tuples(groups, st.sampled_from("&|,")), min_size=1, max_size=4)


def evaluated(names: list[bool], signs: list[str]) -> bool:
    """Return what an expression is, from left to right."""
    met = names[0]
    for name, sign in zip(names[1:], signs, strict=True):
        met = (met or name) if sign == "|" else (met and name)
    return met


@given(plain)
def test_any_expression_is_met_as_worked_out_by_hand(
    terms: list[tuple[tuple[tuple[str, ...], tuple[str, ...]], str]],
) -> None:
    texts = [
        "(" + names[0] + "".join(map("".join, zip(signs, names[1:], strict=True))) + ")"
        for (names, signs), _ in terms
    ]
    between = [sign for _, sign in terms][1:]
    text = texts[0] + "".join(map("".join, zip(between, texts[1:], strict=True)))
    choices = parse_constraint(text)
    assert choices is not None
    (choice,) = choices
    assert choice.each is not None
    for there in sets():
        groups = [
            evaluated([name in there for name in names], list(signs))
            for (names, signs), _ in terms
        ]
        assert has_features(choice.each, there) == evaluated(groups, between)
