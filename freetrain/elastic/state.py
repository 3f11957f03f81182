"""A program's state as arrays and a JSON tree: never pickle, so nothing can run.

Every node of the tree is ``[tag, value]``, so that what comes back has the very
types that went in. Arrays live beside the tree under the path that leads to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

import numpy as np

from freetrain.elastic.errors import CheckpointError, StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

State: TypeAlias = dict[str, Any]
Arrays: TypeAlias = "dict[str, NDArray[Any]]"
Node: TypeAlias = list[Any]

_BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
_ARRAY_KINDS = "biufcSUmM"
_DEEPEST = 50
_LONGEST_KEY = 200


def flatten(state: Mapping[str, Any]) -> tuple[Node, Arrays]:
    """Return *state* as a tree that JSON can hold, and its arrays by path.

    A state holds NumPy arrays and scalars, numbers, strings, booleans, None,
    ``numpy.random.Generator`` objects, and dicts, lists and tuples of these. What
    Python's ``random.getstate()`` and a bit generator's ``state`` return fits.

    Raises:
        StateError: It holds something else; the message names the place.
    """
    arrays: Arrays = {}
    return _flatten(state, (), arrays), arrays


def _flatten(value: Any, path: tuple[str, ...], arrays: Arrays) -> Node:  # noqa: ANN401
    if len(path) > _DEEPEST:
        raise _refused(path, f"is nested deeper than {_DEEPEST} levels")
    if isinstance(value, np.ndarray | np.generic):
        return _keep_array(value, path, arrays)
    if isinstance(value, np.random.Generator):
        inner = _flatten(value.bit_generator.state, path, arrays)
        return ["generator", inner]
    if isinstance(value, dict):
        return ["dict", _flatten_entries(value, path, arrays)]
    if isinstance(value, list | tuple):
        entries = [_flatten(v, (*path, str(i)), arrays) for i, v in enumerate(value)]
        return ["list" if isinstance(value, list) else "tuple", entries]
    return _flatten_scalar(value, path)


def _flatten_entries(
    entries: Mapping[Any, Any], path: tuple[str, ...], arrays: Arrays
) -> dict[str, Node]:
    for key in entries:
        if not isinstance(key, str):
            raise _refused(path, f"has a key that is no string: {key!r:.80}")
        if len(key) > _LONGEST_KEY:
            raise _refused(path, f"has a key longer than {_LONGEST_KEY} characters")
    return {k: _flatten(v, (*path, k), arrays) for k, v in entries.items()}


def _flatten_scalar(value: Any, path: tuple[str, ...]) -> Node:  # noqa: ANN401
    # Exact types: a subclass would come back as its parent.
    kind = type(value)
    if kind is float:
        return ["float", value.hex()]
    if kind is int:
        return ["int", hex(value)]
    if kind in (str, bool, type(None)):
        return ["plain", value]
    raise _refused(path, f"is of type {kind.__module__}.{kind.__qualname__}")


def _keep_array(
    value: NDArray[Any] | np.generic, path: tuple[str, ...], arrays: Arrays
) -> Node:
    array = np.asarray(value)
    if array.dtype.kind not in _ARRAY_KINDS:
        raise _refused(path, f"is an array of {array.dtype}")
    member = "/".join(quote(part, safe="", errors="surrogatepass") for part in path)
    arrays[member] = array
    return ["array" if isinstance(value, np.ndarray) else "scalar", member]


def _refused(path: tuple[str, ...], why: str) -> StateError:
    return StateError(
        f"the state at {'/'.join(path)[:200] or 'its top'!r} {why}, which a checkpoint "
        f"cannot hold. Nothing was committed. Give it as NumPy arrays, numbers, "
        f"strings, or dicts and lists of these."
    )


def unflatten(tree: object, arrays: Arrays) -> State:
    """Return the state that :func:`flatten` took apart.

    Raises:
        CheckpointError: The tree is not one that :func:`flatten` makes.
    """
    try:
        state = _build(tree, arrays)
    # Whatever a crafted tree makes NumPy or Python raise, it is not used.
    except Exception as error:
        raise CheckpointError(f"its tree of values cannot be read: {error}") from error
    if not isinstance(state, dict):
        raise CheckpointError("its tree of values has no names")
    return state


def _build(node: Any, arrays: Arrays) -> Any:  # noqa: ANN401
    tag, value = node
    builders: dict[str, Callable[[Any], Any]] = {
        "array": lambda member: arrays[member],
        "scalar": lambda member: arrays[member][()],
        "generator": lambda inner: _build_generator(_build(inner, arrays)),
        "dict": lambda entries: {k: _build(v, arrays) for k, v in entries.items()},
        "list": lambda entries: [_build(v, arrays) for v in entries],
        "tuple": lambda entries: tuple(_build(v, arrays) for v in entries),
        "float": float.fromhex,
        "int": lambda text: int(text, 16),
        "plain": lambda plain: plain,
    }
    return builders[tag](value)


def _build_generator(inner: dict[str, Any]) -> np.random.Generator:
    name = inner["bit_generator"]
    if name not in _BIT_GENERATORS:
        raise ValueError(f"unknown bit generator {name!r:.80}")
    bits = getattr(np.random, name)()
    bits.state = inner
    return np.random.Generator(bits)
