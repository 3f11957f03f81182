"""Kinds of values that say what a lease asks of Slurm and of its node."""

from __future__ import annotations

import re

from freetrain.toml.kind import Kind, MismatchError, matching
from slurm.records import Gres

MIB_OF = {"TiB": 1_048_576, "GiB": 1_024, "MiB": 1}

MOST_FEATURES = 10
MOST_GRES_CHARACTERS = 500
"""Both keep the options for Slurm far below what it takes."""

_MEMORY = re.compile(r"([1-9][0-9]{0,8}) ?(MiB|GiB|TiB)", re.ASCII)
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@+-]{0,63}", re.ASCII)
# A kind may begin with digits (``1g.5gb``), a count is nothing else.
_GRES = re.compile(
    r"([A-Za-z][A-Za-z0-9_-]{0,63})"
    r"(?::([0-9]{0,9}[A-Za-z_][A-Za-z0-9_.-]{0,63}))?"
    r"(?::([1-9][0-9]{0,4}))?",
    re.ASCII,
)


def word(what: str) -> Kind[str]:
    """Return the kind of names that Slurm gives to *what*."""
    return matching(
        _WORD, f"the name of {what}: letters, digits and any of _ . : @ + -"
    )


def words(what: str) -> Kind[tuple[str, ...]]:
    """Return the kind of lists of names that Slurm gives to *what*."""
    one = word(what)
    expected = (
        f'a list such as ["a", "b"] of up to {MOST_FEATURES}, each {one.expected}'
    )

    def read(value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or len(value) > MOST_FEATURES:
            raise MismatchError(expected)
        return tuple(dict.fromkeys(one.read(item) for item in value))

    return Kind(expected, read, _as_list)


def memory() -> Kind[int]:
    """Return the kind of amounts of memory, in MiB."""

    def read(value: object) -> int:
        found = _MEMORY.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            raise MismatchError
        return int(found[1]) * MIB_OF[found[2]]

    def write(mib: int) -> str:
        unit = next(unit for unit, size in MIB_OF.items() if mib % size == 0)
        return f"{mib // MIB_OF[unit]}{unit}"

    return Kind(
        'an amount with its unit, MiB, GiB or TiB, such as "64GiB"', read, write
    )


def gres() -> Kind[tuple[Gres, ...]]:
    """Return the kind of generic resources that each node must have."""

    def read(value: object) -> tuple[Gres, ...]:
        if not isinstance(value, str) or len(value) > MOST_GRES_CHARACTERS:
            raise MismatchError
        found = [_one_gres(item) for item in value.split(",")]
        if len({(one.name, one.kind) for one in found}) < len(found):
            raise MismatchError
        return tuple(found)

    return Kind(
        'generic resources of a node as Slurm writes them, such as "gpu:2" or '
        '"gpu:a100:2,nvme:1", each once',
        read,
        lambda wanted: ",".join(map(gres_text, wanted)),
    )


def gres_text(wanted: Gres) -> str:
    """Return *wanted* as Slurm writes it, such as ``gpu:a100:2``."""
    kind = f":{wanted.kind}" if wanted.kind else ""
    return f"{wanted.name}{kind}:{wanted.count}"


def _one_gres(item: str) -> Gres:
    found = _GRES.fullmatch(item.strip())
    if found is None:
        raise MismatchError
    return Gres(name=found[1], kind=found[2] or "", count=int(found[3] or 1))


def _as_list(values: tuple[str, ...]) -> object:
    return list(values)
