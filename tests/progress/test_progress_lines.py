"""Lines are the same however the file's growth was cut into pieces."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from freetrain.progress import LONGEST_LINE_BYTES, Lines

BYTES = st.lists(
    st.sampled_from([b"\n", b"\r", b"\r\n", b"\0", b"\xff", b"a", b"{}", "é".encode()])
).map(b"".join)


def fed(pieces: list[bytes]) -> tuple[str, ...]:
    lines = Lines()
    return tuple(line for piece in pieces for line in lines.feed(piece))


@given(BYTES, st.data())
def test_any_chunking_gives_the_same_lines(content: bytes, data: st.DataObject) -> None:
    cuts = st.lists(st.integers(0, len(content)), max_size=6)
    places = [0, *sorted(data.draw(cuts)), len(content)]
    pieces = [content[a:b] for a, b in pairwise(places)]

    assert fed(pieces) == fed([content])


@given(BYTES)
@example(b"one\ntwo\n")
def test_a_file_torn_at_any_byte_gives_a_prefix_of_its_lines(content: bytes) -> None:
    whole = fed([content])

    for length in range(len(content)):
        told = fed([content[:length]])
        assert whole[: len(told)] == told


def test_the_last_line_waits_for_its_end() -> None:
    lines = Lines()

    assert lines.feed(b"loss 0.1") == ()
    assert lines.feed(b"23\nnext") == ("loss 0.123",)


@pytest.mark.parametrize("piece_bytes", [1 << 12, 1 << 20, 1 << 22])
def test_a_line_of_a_megabyte_is_left_out_and_counted(piece_bytes: int) -> None:
    content = b"before\n" + b"x" * (1 << 20) + b"\nafter\n"
    lines = Lines()

    pieces = [content[i : i + piece_bytes] for i in range(0, len(content), piece_bytes)]
    found = [line for piece in pieces for line in lines.feed(piece)]

    assert found == ["before", "after"]
    assert lines.too_long == 1


def test_a_line_that_never_ends_takes_no_more_memory_than_the_longest() -> None:
    lines = Lines()

    for _ in range(8):
        lines.feed(b"x" * LONGEST_LINE_BYTES)
        assert len(lines._rest) <= LONGEST_LINE_BYTES  # noqa: SLF001  # what it keeps


def test_what_spreadsheets_put_before_a_table_is_no_part_of_it() -> None:
    assert Lines().feed(b"\xef\xbb\xbfstep,loss\n1,2\n") == ("step,loss", "1,2")


def test_nul_bytes_around_a_line_and_foreign_bytes_in_it_do_no_harm() -> None:
    assert fed([b"\0\0\0step 1\0\n", b"\xff\xfe step 2\n"]) == ("step 1", "�� step 2")
