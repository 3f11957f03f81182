"""What a lease's comment says is read again, and hostile text says nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.broker.lease_comment import (
    LeaseComment,
    parse_comment,
    render_comment,
    state_tag,
)

_UUID = "0b5e1a2c-0000-4000-8000-000000000001"


@given(folder=st.text())
def test_what_a_comment_says_is_read_again(folder: str) -> None:
    for state in ("", state_tag(folder)):
        said = LeaseComment(uuid=_UUID, state=state)
        assert parse_comment(render_comment(said)) == said


def test_a_comment_of_an_earlier_version_names_no_state() -> None:
    assert parse_comment(f"freetrain {_UUID}") == LeaseComment(uuid=_UUID)


def test_words_of_later_versions_are_passed_over() -> None:
    text = f"freetrain {_UUID} pool=1 state=0123abcd want=3 later state=00000000"
    assert parse_comment(text) == LeaseComment(uuid=_UUID, state="0123abcd")


@pytest.mark.parametrize(
    "text", ["", " ", "freetrain", "freetrains x", "training run 7", "Freetrain x"]
)
def test_other_comments_are_no_leases(text: str) -> None:
    assert parse_comment(text) is None


@given(text=st.text(), state=st.text())
def test_hostile_text_is_bounded(text: str, state: str) -> None:
    for hostile in (text, f"freetrain {text}", f"freetrain {_UUID} state={state}"):
        said = parse_comment(hostile + 1_000 * "x")
        assert said is None or len(said.uuid) <= 500
        assert said is None or len(said.state) in {0, 8}


def test_two_state_directories_have_two_tags() -> None:
    assert state_tag("/home/ada/.freetrain") != state_tag("/home/ada/.freetrain2")
