"""Our block in somebody's table, and everybody else's lines around it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.cron.back_ends import Block, lines_between, put, without
from freetrain.cron.call import CronUnreadableError

BLOCK = Block("abc123", ("* * * * * /bin/true",))
OTHER = Block("fff999", ("@daily /bin/false",))
LINES = st.lists(
    st.one_of(
        st.binary(max_size=30).map(lambda line: line.replace(b"\n", b" ")),
        st.sampled_from([b"", b"SHELL=/bin/csh", b"# >>> freetrain", b"#"]),
    )
)
TABLES = LINES.map(lambda lines: b"".join(line + b"\n" for line in lines))


@given(before=TABLES, after=TABLES)
def test_removing_leaves_what_was_there_to_the_byte(
    before: bytes, after: bytes
) -> None:
    table = put(before, BLOCK) + after

    assert without(table, BLOCK) == before + after


@given(before=TABLES, after=TABLES)
def test_installing_again_in_other_words_replaces_our_lines_only(
    before: bytes, after: bytes
) -> None:
    new = Block(BLOCK.mark, ("*/5 * * * * /bin/echo", "# é"))

    assert put(before + bytes(BLOCK) + after, new) == before + bytes(new) + after


@given(TABLES)
def test_installing_twice_is_installing_once(table: bytes) -> None:
    once = put(table, BLOCK)

    assert put(once, BLOCK) == once


def test_blocks_of_other_state_directories_are_left_alone() -> None:
    both = put(put(b"", BLOCK), OTHER)

    assert without(both, BLOCK) == bytes(OTHER)
    assert lines_between(both, OTHER.mark) == OTHER.lines
    assert lines_between(without(both, OTHER), OTHER.mark) == ()


def test_a_block_that_somebody_copied_is_one_block_again() -> None:
    copied = bytes(BLOCK) + b"# mine\n" + bytes(BLOCK)

    assert put(copied, BLOCK) == bytes(BLOCK) + b"# mine\n"
    assert without(copied, BLOCK) == b"# mine\n"


def test_a_last_line_without_its_end_gets_one() -> None:
    assert put(b"# mine", BLOCK) == b"# mine\n" + bytes(BLOCK)


@pytest.mark.parametrize(
    "table",
    [
        BLOCK.first + b"\n* * * * * /bin/true\n",
        BLOCK.last + b"\n",
        BLOCK.last + b"\n" + BLOCK.first + b"\n",
        BLOCK.first + b"\n" + bytes(BLOCK),
    ],
)
def test_torn_marks_are_left_for_their_owner_to_mend(table: bytes) -> None:
    with pytest.raises(CronUnreadableError, match="Nothing was changed"):
        put(table, BLOCK)
    with pytest.raises(CronUnreadableError, match="by hand"):
        without(table, BLOCK)
