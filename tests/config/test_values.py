"""Types of values and texts: what each reads and writes, and what its limits refuse."""

from __future__ import annotations

import tomllib
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from freetrain.config.document import (
    GRES,
    MEMORY,
    ROOT,
    Form,
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
    ("form", "text", "value", "written"),
    [
        (GRES, "gpu", (Gres("gpu", "", 1),), "gpu:1"),
        (GRES, "gpu:2", (Gres("gpu", "", 2),), "gpu:2"),
        (GRES, "gpu:a100", (Gres("gpu", "a100", 1),), "gpu:a100:1"),
        (
            GRES,
            "gpu:1g.5gb:3, nvme:1",
            (Gres("gpu", "1g.5gb", 3), Gres("nvme", "", 1)),
            "gpu:1g.5gb:3,nvme:1",
        ),
        (MEMORY, "512MiB", 512, "512MiB"),
        (MEMORY, "64 GiB", 65_536, "64GiB"),
        (MEMORY, "2TiB", 2_097_152, "2TiB"),
        (sizes(range(1, 5)), [3, 1, 3], (1, 3), [1, 3]),
        (sizes(range(3, 9)), "powers-of-two", (4, 8), "powers-of-two"),
    ],
)
def test_a_value_is_read_and_written_in_its_usual_form(
    form: Form[Any], text: object, value: object, written: object
) -> None:
    assert form.read(text, ROOT) == value
    assert form.write(value) == written
    assert form.read(written, ROOT) == value


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


def test_of_a_huge_value_only_the_beginning_is_shown_and_compared() -> None:
    assert len(shown("a" * 10**6)) == 60
    assert len(shown(["a" * 10**6] * 3)) == 60
    assert closest("nodes" * 10**6, ["node", "nodes"]) == ""
    assert closest("nodse", ["min", "nodes"]) == " Did you mean 'nodes'?"
