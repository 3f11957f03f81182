import pytest
from hypothesis import given
from hypothesis import strategies as st

from logs.sacct import expand_hostlist


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3,7],m05", ["n1", "n2", "n3", "n7", "m05"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("r[0-1]n[1-2]x", ["r0n1x", "r0n2x", "r1n1x", "r1n2x"]),
        ("[3-4]", ["3", "4"]),
        ("a-b.c,d", ["a-b.c", "d"]),
        ("", []),
    ],
)
def test_a_node_list_is_expanded_in_its_order(text: str, names: list[str]) -> None:
    assert list(expand_hostlist(text)) == names


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("n[1", "no node name at character 2"),
        ("n1,,n2", "no node name at character 4"),
        ("n1,", "nothing after the last comma"),
        ("n1]", "no node name at character 3"),
        ("n[3-1]", "the range '3-1' runs backwards"),
        ("n[1-2-3]", "'1-2-3' is no range of numbers"),
        ("n[0-999999999]", "more than 1000000 nodes"),
        ("n[0-9999]m[0-9999]", "more than 1000000 nodes"),
    ],
)
def test_a_list_that_is_none_says_why(text: str, why: str) -> None:
    with pytest.raises(ValueError, match="^" + why + "$"):
        expand_hostlist(text)


@given(st.text("n01[]-,x ", max_size=20))
def test_any_text_expands_or_is_refused(text: str) -> None:
    try:
        names = expand_hostlist(text)
    except ValueError:
        return
    assert all(name and not set("[], ") & set(name) for name in names)
