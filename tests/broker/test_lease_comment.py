"""What a lease's comment says is read again, and hostile text says nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.broker.lease import (
    LeaseComment,
    parse_comment,
    render_comment,
    state_tag,
)

_UUID = "0b5e1a2c-0000-4000-8000-000000000001"


@given(
    folder=st.text(),
    is_pooled=st.booleans(),
    want=st.none() | st.integers(0, 999_999),
    beat=st.none() | st.integers(0, 10**10),
    recent=st.none() | st.integers(0, 10**7),
)
def test_what_a_comment_says_is_read_again(
    folder: str,
    *,
    is_pooled: bool,
    want: int | None,
    beat: int | None,
    recent: int | None,
) -> None:
    for state in ("", state_tag(folder)):
        said = LeaseComment(
            uuid=_UUID,
            state=state,
            is_pooled=is_pooled,
            want=want,
            beat_s=beat,
            recent_node_s=recent,
        )
        assert parse_comment(render_comment(said)) == said


def test_the_words_of_a_comment_are_those_that_other_versions_read() -> None:
    said = LeaseComment(
        uuid=_UUID,
        state="1a2b3c4d",
        is_pooled=True,
        want=8,
        beat_s=1_900_000_000.0,
        recent_node_s=2_700.0,
    )
    words = "state=1a2b3c4d pool=1 want=8 beat=1900000000 held=2700"
    assert render_comment(said) == f"freetrain {_UUID} {words}"


def test_a_comment_of_an_earlier_version_names_no_state() -> None:
    assert parse_comment(f"freetrain {_UUID}") == LeaseComment(uuid=_UUID)


def test_words_of_later_versions_are_passed_over() -> None:
    text = f"freetrain {_UUID} more=1 state=0123abcd want=3 later state=00000000"
    said = LeaseComment(uuid=_UUID, state="0123abcd", want=3)
    assert parse_comment(text) == said


@pytest.mark.parametrize(
    "word",
    [
        "pool=2",
        "want=-1",
        "want=1e9",
        "want=9999999",
        "beat=nan",
        "beat=1.5",
        "want=",
        "held=-1",
    ],
)
def test_numbers_that_are_none_say_nothing(word: str) -> None:
    assert parse_comment(f"freetrain {_UUID} {word}") == LeaseComment(uuid=_UUID)


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
