"""One checkpoint file: what goes in comes out, and nothing else does."""

from __future__ import annotations

import hashlib
import io
import json
import random
import zipfile
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as stnp

from freetrain.elastic import Checkpoint, CheckpointError, Position, StateError
from freetrain.elastic.checkpoint import flatten, read_checkpoint, write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DIGEST_BYTES = 64

dtypes = st.one_of(
    stnp.boolean_dtypes(),
    stnp.integer_dtypes(endianness="?"),
    stnp.floating_dtypes(endianness="?"),
    stnp.complex_number_dtypes(endianness="?"),
    stnp.unicode_string_dtypes(max_len=5),
    stnp.byte_string_dtypes(max_len=5),
)
arrays = stnp.arrays(dtypes, stnp.array_shapes(min_dims=0, min_side=0, max_side=4))
leaves = st.one_of(
    arrays,
    st.integers(),
    st.floats(),
    st.text(),
    st.booleans(),
    st.none(),
    st.floats().map(np.float64),
    st.integers(0, 2**32).map(np.random.default_rng),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=8), inner, max_size=3),
    ),
    max_leaves=8,
)
states = st.dictionaries(st.text(max_size=8), values, max_size=4)


def to_bytes(state: dict[str, Any], generation: int = 3) -> bytes:
    file = io.BytesIO()
    position = Position(step=7, samples=70, epoch=1, offset=20)
    write_checkpoint(Checkpoint(generation, position, {"seed": 5}, state), file)
    return file.getvalue()


def spelled_out(value: Any) -> Any:  # noqa: ANN401
    """The value as plain things that tell all that matters, NaN equal to itself."""
    if isinstance(value, np.ndarray | np.generic):
        return type(value), value.dtype, value.shape, value.tobytes()
    if isinstance(value, np.random.Generator):
        return "generator", spelled_out(value.bit_generator.state)
    if isinstance(value, dict):
        return [(key, spelled_out(inner)) for key, inner in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [spelled_out(inner) for inner in value]
    return type(value), repr(value)


@settings(max_examples=150)
@given(states)
def test_what_is_written_is_read_back_with_its_very_types(
    state: dict[str, Any],
) -> None:
    found = read_checkpoint(to_bytes(state))

    assert found.generation == 3
    assert found.position == Position(step=7, samples=70, epoch=1, offset=20)
    assert found.training == {"seed": 5}
    assert spelled_out(found.state) == spelled_out(state)


@pytest.mark.parametrize("layout", [np.asfortranarray, np.transpose, lambda a: a[::2]])
def test_arrays_of_any_layout_come_back_with_every_value_in_its_place(
    layout: Callable[[np.ndarray], np.ndarray],
) -> None:
    array = layout(np.arange(24.0).reshape(4, 6))

    found = read_checkpoint(to_bytes({"weights": array})).state["weights"]

    assert found.tolist() == array.tolist()


@settings(max_examples=25)
@given(states)
def test_the_same_state_gives_the_same_bytes(state: dict[str, Any]) -> None:
    assert to_bytes(state) == to_bytes(state)


@given(st.data())
def test_a_file_with_any_byte_changed_is_refused(data: st.DataObject) -> None:
    content = bytearray(to_bytes({"weights": np.arange(20.0), "name": "x"}))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))

    with pytest.raises(CheckpointError):
        read_checkpoint(bytes(content))


@given(st.data())
def test_a_torn_file_is_refused(data: st.DataObject) -> None:
    content = to_bytes({"weights": np.arange(20.0)})

    with pytest.raises(CheckpointError, match=r"torn|corrupt"):
        read_checkpoint(content[: data.draw(st.integers(0, len(content) - 1))])


@given(st.data())
def test_a_crafted_file_with_a_right_digest_can_only_be_refused_or_read(
    data: st.DataObject,
) -> None:
    state = {
        "weights": np.arange(5.0),
        "rng": np.random.default_rng(1),
        "more": [1, "a"],
    }
    content = bytearray(to_bytes(state)[:-DIGEST_BYTES])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(
            st.integers(1, 255)
        )

    with suppress(CheckpointError):
        read_checkpoint(with_digest(bytes(content)))


def with_digest(content: bytes) -> bytes:
    digest = hashlib.sha256(content + b"0" * DIGEST_BYTES).hexdigest()
    return content + digest.encode("ascii")


def crafted(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.comment = b"freetrain-checkpoint sha256 " + b"0" * DIGEST_BYTES
        for name, content in members.items():
            archive.writestr(name, content)
    return with_digest(file.getvalue()[:-DIGEST_BYTES])


def header(**changes: object) -> bytes:
    fields = {
        "format": "freetrain-checkpoint",
        "version": 1,
        "generation": 1,
        "position": {"step": 1, "samples": 1, "epoch": 0, "offset": 1},
        "training": {},
        "state": ["dict", {}],
    }
    return json.dumps(fields | changes).encode()


def pickled_array() -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.array([{}], dtype=object), allow_pickle=True)
    return file.getvalue()


@pytest.mark.parametrize(
    ("members", "compression", "why"),
    [
        ({"freetrain.json": header(version=2)}, zipfile.ZIP_STORED, "version 2"),
        ({"freetrain.json": header(format="x")}, zipfile.ZIP_STORED, "'x'"),
        ({"freetrain.json": b"[" * 100_000}, zipfile.ZIP_STORED, "Recursion"),
        ({"freetrain.json": header()}, zipfile.ZIP_DEFLATED, "claim more bytes"),
        ({"a.npy": b""}, zipfile.ZIP_STORED, "freetrain.json"),
        (
            {"freetrain.json": header(), "a.npy": pickled_array()},
            zipfile.ZIP_STORED,
            "Python objects",
        ),
        (
            {"freetrain.json": header(state=["generator", ["dict", {}]])},
            zipfile.ZIP_STORED,
            "bit_generator",
        ),
        (
            {
                "freetrain.json": header(
                    state=["generator", ["dict", {"bit_generator": ["plain", "load"]}]]
                )
            },
            zipfile.ZIP_STORED,
            "unknown bit generator",
        ),
        (
            {"freetrain.json": header(state=["int", "5"])},
            zipfile.ZIP_STORED,
            "no names",
        ),
    ],
)
def test_a_hostile_file_is_refused(
    members: dict[str, bytes], compression: int, why: str
) -> None:
    with pytest.raises(CheckpointError, match=why):
        read_checkpoint(crafted(members, compression))


def test_the_crafted_files_are_refused_for_what_is_wrong_with_them_alone() -> None:
    assert read_checkpoint(crafted({"freetrain.json": header()})).state == {}


def test_numpy_alone_reads_the_arrays(tmp_path: Path) -> None:
    path = tmp_path / "any.npz"
    path.write_bytes(to_bytes({"weights": np.arange(3.0), "deep": {"er": np.ones(2)}}))

    with np.load(path, allow_pickle=False) as found:
        assert found["weights"].tolist() == [0, 1, 2]
        assert found["deep/er"].tolist() == [1, 1]


def test_the_state_of_python_s_own_generator_fits() -> None:
    state = random.Random(3).getstate()  # noqa: S311

    assert read_checkpoint(to_bytes({"random": state})).state["random"] == state


def test_restored_arrays_can_be_written_to() -> None:
    found = read_checkpoint(to_bytes({"weights": np.zeros(3)}))

    found.state["weights"] += 1

    assert found.state["weights"].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (object(), "type builtins.object"),
        (np.array([object()]), "array of object"),
        ({1: 2}, "no string"),
        (b"bytes", "builtins.bytes"),
        ({"k" * 300: 1}, "longer than 200"),
        (np.zeros(2, dtype=[("a", "f8")]), "is an array of"),
    ],
)
def test_what_cannot_be_kept_is_refused_and_its_place_named(
    value: object, why: str
) -> None:
    with pytest.raises(StateError, match=f"model/part.*{why}"):
        flatten({"model": {"part": value}})


def test_a_state_that_contains_itself_is_refused() -> None:
    state: dict[str, Any] = {}
    state["again"] = state

    with pytest.raises(StateError, match="nested deeper"):
        flatten(state)
