"""sacctmgr's limits of a user; the text is what 22.05.8 printed of two accounts."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.associations import Association, associations_argv, parse_associations
from slurm.errors import UnreadableOutputError

PRINTED = "physics|cpu=64,node=6|3|8\nart|||\n"


def test_limits_are_read_and_none_is_no_limit() -> None:
    physics, art = parse_associations(PRINTED)
    assert physics == Association("physics", 6, 3, 8)
    assert physics.most_leases == 3
    assert art == Association("art", None, None, None)
    assert art.most_leases is None
    assert parse_associations("") == ()


@given(st.text())
def test_any_other_answer_is_refused_and_nothing_else_raises(text: str) -> None:
    with suppress(UnreadableOutputError):
        parse_associations(text)


@pytest.mark.parametrize("name", ["", "a,b", "a=b"])
def test_a_name_that_would_be_read_as_several_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot look for"):
        associations_argv(name)
