"""Whatever is read, readers end well or by their documented errors, within bounds."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.fuzz.fuzzing import fuzz
from tests.fuzz.readers import READERS, Reader

if TYPE_CHECKING:
    from pathlib import Path


TORN = {name: READERS[name].errors for name in READERS if name.startswith("slurm ")}
"""Some answers of Slurm were recorded torn."""


@pytest.mark.parametrize("name", READERS)
def test_a_reader_reads_its_samples(name: str, tmp_path: Path) -> None:
    reader = READERS[name]

    assert reader.samples
    for sample in reader.samples:
        with suppress(*TORN.get(name, ())):
            reader.read(sample, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", READERS)
def test_a_reader_bears_whatever_it_is_given(name: str) -> None:
    assert fuzz(READERS[name], examples=150, number=1, for_s=1.0) > 0


def _fails(content: bytes, _: Path) -> object:
    return [][len(content) * 9]


def test_a_reader_that_fails_is_found() -> None:
    bad = Reader("bad", (b"abc",), _fails, (ValueError,))

    with pytest.raises(AssertionError, match="bad: IndexError"):
        fuzz(bad, examples=5, number=1)


def _hoards(content: bytes, _: Path) -> object:
    return bytearray(400 << 20) + content


def test_a_reader_that_needs_too_much_memory_is_found() -> None:
    bad = Reader("bad", (b"abc",), _hoards, (ValueError,))

    with pytest.raises(AssertionError, match="bad: MemoryError"):
        fuzz(bad, examples=5, number=1)
