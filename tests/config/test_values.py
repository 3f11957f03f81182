"""Types of values and texts: what each reads and writes, and what its limits refuse."""

from __future__ import annotations

import tomllib
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from freetrain.config.document import (
    GRES,
    MEMORY,
    ROOT,
    MismatchError,
    Table,
    read_value,
    seconds,
    sizes,
    toml_text,
    toml_value,
)
from freetrain.errors import BadConfigurationError
from freetrain.text import closest, exact_duration, parse_duration, per_cent, shown
from slurm.records import Gres

OneOrTwo = Annotated[int, Meta(ge=1, le=2)]

texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    texts
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.datetimes(),
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=8,
)


@given(st.dictionaries(texts, values))
def test_what_is_written_reads_back_as_the_same(document: dict[str, object]) -> None:
    assert tomllib.loads(toml_text(document)) == document


def test_what_toml_cannot_say_is_not_written() -> None:
    with pytest.raises(TypeError, match="NoneType"):
        toml_value(None)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("gpu", (Gres("gpu", "", 1),)),
        ("gpu:2", (Gres("gpu", "", 2),)),
        ("gpu:a100", (Gres("gpu", "a100", 1),)),
        ("gpu:1g.5gb:3, nvme:1", (Gres("gpu", "1g.5gb", 3), Gres("nvme", "", 1))),
    ],
)
def test_generic_resources_are_read_as_slurm_writes_them(
    text: str, wanted: tuple[Gres, ...]
) -> None:
    assert GRES.read(text, ROOT) == wanted
    assert GRES.read(GRES.write(wanted), ROOT) == wanted


@pytest.mark.parametrize(
    ("text", "mib"), [("512MiB", 512), ("64 GiB", 65_536), ("2TiB", 2_097_152)]
)
def test_memory_is_read_in_mib_and_written_with_its_largest_unit(
    text: str, mib: int
) -> None:
    assert MEMORY.read(text, ROOT) == mib
    assert MEMORY.write(mib) == text.replace(" ", "")


@given(texts, texts, texts)
def test_a_refusal_is_one_printable_line(path: str, key: str, value: str) -> None:
    table = Table(path, "", {key: value}, "Nothing was done.")

    with pytest.raises(BadConfigurationError) as refused:
        table.take(key, OneOrTwo)

    assert str(refused.value).isprintable()


@pytest.mark.parametrize("value", [True, 1.0, "1", 0, 3, None])
def test_only_whole_numbers_within_the_range_are_whole(value: object) -> None:
    with pytest.raises(MismatchError):
        read_value(value, OneOrTwo, ROOT)


@given(st.from_regex(r"\A[0-9]{1,4}\.[0-9]{1,12}(s|min|h|d)\Z"))
def test_any_duration_that_is_read_can_be_written(text: str) -> None:
    read_s = seconds().read(text, ROOT)

    assert seconds().read(seconds().write(read_s), ROOT) == read_s


def test_sizes_are_ascending_and_each_once() -> None:
    assert sizes(range(1, 5)).read([3, 1, 3], ROOT) == (1, 3)
    assert sizes(range(3, 9)).read("powers-of-two", ROOT) == (4, 8)


@pytest.mark.parametrize(
    ("share", "form", "said"),
    [
        (0.28, ".0f", "28 %"),
        (0.285, ".1f", "28.5 %"),
        (-0.4, "+.1f", "-40.0 %"),
        (0.0, "+.1f", "+0.0 %"),
    ],
)
def test_per_cent_stands_behind_a_space(share: float, form: str, said: str) -> None:
    assert per_cent(share, form) == said


@given(st.integers(0, 10**15).map(lambda microseconds: microseconds / 1_000_000))
def test_an_exact_duration_reads_back_as_the_same(seconds: float) -> None:
    assert parse_duration(exact_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0s"), (90.0, "90s"), (7_200.0, "2h"), (172_800.0, "2d"), (0.5, "0.5s")],
)
def test_an_exact_duration_has_the_largest_unit_that_fits(
    seconds: float, text: str
) -> None:
    assert exact_duration(seconds) == text


def test_a_huge_value_is_cut_where_it_is_shown() -> None:
    assert len(shown("a" * 10**6)) == 60
    assert len(shown(["a" * 10**6] * 3)) == 60


def test_a_huge_word_is_compared_in_its_beginning_only() -> None:
    assert closest("nodes" * 10**6, ["node", "nodes"]) == ""
    assert closest("nodse", ["min", "nodes"]) == " Did you mean 'nodes'?"
