"""Hostlist expressions, both ways."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.errors import UnreadableOutputError
from slurm.records import collapse, expand

HOSTS = st.from_regex(
    re.compile(r"[a-z]{1,2}(-?[0-9]{1,3}){0,2}[a-z]{0,2}", re.ASCII), fullmatch=True
)


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("n1", ("n1",)),
        ("n[1-3,7],m05", ("n1", "n2", "n3", "n7", "m05")),
        ("n[08-11]", ("n08", "n09", "n10", "n11")),
        ("n[098-101]", ("n098", "n099", "n100", "n101")),
        ("r[1-2]c[01-02]", ("r1c01", "r1c02", "r2c01", "r2c02")),
        ("gpu[1-2]-ib,login", ("gpu1-ib", "gpu2-ib", "login")),
        ("n[5]", ("n5",)),
        ("", ()),
        ("(null)", ()),
        ("None assigned", ()),
        (" n1\n", ("n1",)),
    ],
)
def test_an_expression_means_its_names(expression: str, names: tuple[str, ...]) -> None:
    assert expand(expression) == names


@pytest.mark.parametrize(
    "expression",
    [
        *("n[1-3", "n1-3]", "n[[1]]", "n[3-1]", "n[a-b]", "n[]", ",n1", "n1,"),
        *("n1,,n2", "n1 n2", "n[1-3]n[", "n[1-2-3]", "n[-1]", "n[1 - 2]"),
        "n[1-9999999999999999]",
    ],
)
def test_what_is_no_expression_is_refused(expression: str) -> None:
    with pytest.raises(UnreadableOutputError, match="cannot read"):
        expand(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "n[1-999999999999999]",
        "a[1-9999]b[1-9999]c[1-9999]d[1-9999]",
        ",".join(["n[1-100000]"] * 3),
    ],
)
def test_more_names_than_any_machine_has_are_refused_unmade(expression: str) -> None:
    with pytest.raises(UnreadableOutputError, match="not believed"):
        expand(expression)


def test_the_limit_can_be_lowered() -> None:
    assert len(expand("n[1-5]", limit=5)) == 5
    with pytest.raises(UnreadableOutputError):
        expand("n[1-6]", limit=5)


@pytest.mark.parametrize(
    ("names", "expression"),
    [
        (("n3", "n1", "n2", "n2"), "n[1-3]"),
        (("n08", "n09", "n10", "n11"), "n[08-11]"),
        (("n9", "n10", "n11"), "n[9-11]"),
        (("n1", "n01"), "n[1,01]"),
        (("n7",), "n7"),
        (("login", "n1"), "login,n1"),
        ((), ""),
    ],
)
def test_names_are_written_as_ranges(names: tuple[str, ...], expression: str) -> None:
    assert collapse(names) == expression


@given(st.lists(HOSTS, max_size=40))
def test_expanding_what_was_collapsed_gives_each_name_once(names: list[str]) -> None:
    assert sorted(expand(collapse(names))) == sorted(set(names))


@pytest.mark.parametrize("name", ["", "a,b", "a[1]", "a b", "(null)", "n\n"])
def test_what_is_no_host_name_is_not_written(name: str) -> None:
    with pytest.raises(ValueError, match="not a host name"):
        collapse(["n1", name])


@given(st.text(alphabet="n0123456789[],- ()", max_size=60))
def test_any_text_gives_names_or_one_error_and_never_many_names(text: str) -> None:
    try:
        names = expand(text, limit=1000)
    except UnreadableOutputError:
        return
    assert len(names) <= 1000
    assert all(name and not set(name) & set("[],") for name in names)
