"""Types of values that several files share: durations, paths, commands, resources.

Each is a plain Python type with a note on how it is written: a ``Form``, or limits
that msgspec checks. ``seconds``, ``sizes`` and ``curve`` return the note alone, for
``Annotated[float, seconds(1.0, 60.0)]``.

All of it is hostile text: whatever reaches a path, Slurm's options or an argument
list is limited in length and in characters.
"""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from freetrain.config.document import Form, MismatchError
from freetrain.text import EXPECTED, closest, exact_duration, parse_duration, shown
from slurm.records import Gres

if TYPE_CHECKING:
    from collections.abc import Collection

    from freetrain.config.document import Places

Positive = Annotated[float, Meta(gt=0)]
"""A finite number above 0."""


def named(pattern: str, expected: str) -> Meta:
    """Return the note of texts that *pattern* matches from end to end."""
    return Meta(pattern=rf"(?a)\A(?:{pattern})\Z", description=expected)


TrainerName = Annotated[
    str,
    named(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
        "up to 64 letters, digits, '.', '_' and '-'",
    ),
]
"""Safe in paths and in Slurm's tables."""


def choice(known: Collection[str]) -> Form[str]:
    """Return the form of words that are one of *known*."""
    expected = f"one of {', '.join(known)}"

    def read(value: object, _: Places) -> str:
        if not isinstance(value, str) or value not in known:
            raise MismatchError(f"{expected}.{closest(str(value), known)}")
        return value

    return Form(expected, read, str)


# ----------------------------------------------------------------------
# Durations, written with their unit


def seconds(least_s: float = 0.0, most_s: float = math.inf) -> Form[float]:
    """Return the form of durations from *least_s* to *most_s*, in seconds."""
    limits = "" if least_s == 0 else f", {exact_duration(least_s)} or more"
    limits += "" if math.isinf(most_s) else f", {exact_duration(most_s)} or less"

    def read(value: object, _: Places) -> float:
        if not isinstance(value, str):
            raise MismatchError
        try:
            found_s = parse_duration(value)
        except ValueError:
            raise MismatchError from None
        if not least_s <= found_s <= most_s:
            raise MismatchError
        return round(found_s, 6)  # what can be written again

    return Form(EXPECTED + limits, read, exact_duration)


# ----------------------------------------------------------------------
# Commands and paths

MOST_ARGUMENT_BYTES = 100_000
"""Longest word of a command; Linux takes no single word above 131,072 bytes."""

MOST_COMMAND_BYTES = 200_000
"""All words of a command together; far below what Linux takes (2 MiB)."""

MOST_WORDS = 10_000
"""Words of a command; each takes room beside its bytes."""

MOST_PATH_BYTES = 4_000
"""Longest path; Linux takes 4,095."""


def _read_command(value: object, _: Places) -> tuple[str, ...]:
    words = _words_of(_split(value) if isinstance(value, str) else value)
    if not words or not words[0].strip():
        raise MismatchError
    return words


def _split(line: str) -> list[str]:
    # shlex reads character by character: 1 MB would take seconds.
    if len(line) > MOST_COMMAND_BYTES:
        raise MismatchError
    try:
        return shlex.split(line)
    except ValueError as error:
        raise MismatchError(f"a command; {str(error).lower()}") from None


def _words_of(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MOST_WORDS:
        raise MismatchError
    for word in value:
        if not isinstance(word, str) or "\0" in word:
            raise MismatchError
        if len(word.encode()) > MOST_ARGUMENT_BYTES:
            raise MismatchError
    if sum(len(word.encode()) for word in value) > MOST_COMMAND_BYTES:
        raise MismatchError
    return tuple(value)


def _read_path(value: object, places: Places) -> Path:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise MismatchError
    if len(value.encode()) > MOST_PATH_BYTES or ".." in Path(value).parts:
        raise MismatchError
    first, *rest = Path(value).parts or (".",)
    if first == "~" and places.home is not None:
        return places.home.joinpath(*rest)
    if first.startswith("~"):
        raise MismatchError
    return places.folder / value


COMMAND = Form(
    'a command, such as "python train.py" or ["python", "train.py"], of up to '
    f"{MOST_COMMAND_BYTES} bytes and without NUL",
    _read_command,
    list,
)
ARGUMENT = Form(
    "a program's name or path",
    lambda value, places: _read_command([value], places)[0],
    str,
)
ARGUMENTS = Form(
    'a list of words, such as ["--bind-to", "core"]',
    lambda value, _: _words_of(value),
    list,
)
PATH = Form(
    "a path of printable characters without '..'; relative ones start at the "
    "folder of this file, '~/' at your home",
    _read_path,
    str,
)

Command = Annotated[tuple[str, ...], COMMAND]
"""A list of words, or a line split as a shell would split it.

No shell ever sees it: ``$``, ``;`` and ``*`` mean themselves.
"""

Argument = Annotated[str, ARGUMENT]
Arguments = Annotated[tuple[str, ...], ARGUMENTS]
AbsolutePath = Annotated[Path, PATH]
"""Written absolute, or relative to the file's folder, or below ``~``."""


# ----------------------------------------------------------------------
# Node counts: which are allowed, and how fast each is

POWERS_OF_TWO = "powers-of-two"
MOST_NODES = 100_000

_COUNT = re.compile(r"[1-9][0-9]{0,5}", re.ASCII)


def sizes(allowed: range) -> Form[tuple[int, ...]]:
    """Return the form of lists of node counts within *allowed*, ascending."""
    powers = tuple(2**k for k in range(allowed.stop.bit_length()) if 2**k in allowed)

    def read(value: object, _: Places) -> tuple[int, ...]:
        found = list(powers) if value == POWERS_OF_TWO else value
        if not isinstance(found, list) or not found:
            raise MismatchError
        if any(type(size) is not int or size not in allowed for size in found):
            raise MismatchError
        return tuple(sorted(set(found)))

    return Form(
        f'"{POWERS_OF_TWO}" or a list of node counts '
        f"from {allowed.start} to {allowed.stop - 1}",
        read,
        lambda found: POWERS_OF_TWO if found == powers else list(found),
    )


def curve(what: str) -> Form[tuple[tuple[int, float], ...]]:
    """Return the form of tables of *what*, a number above 0, by node count."""
    expected = f'{what} by node count, such as {{ "1" = 100.0, "2" = 190.0 }}'

    def read(value: object, _: Places) -> tuple[tuple[int, float], ...]:
        if not isinstance(value, dict) or not value:
            raise MismatchError
        points = (
            (read_count(count), read_speed(count, value[count])) for count in value
        )
        return tuple(sorted(points))

    def read_count(written: str) -> int:
        nodes = int(written) if _COUNT.fullmatch(written) else 0
        if not 1 <= nodes <= MOST_NODES:
            raise MismatchError(
                f"{expected}; {shown(written)} is no node count from 1 to {MOST_NODES}"
            )
        return nodes

    def read_speed(written: str, value: object) -> float:
        try:
            speed = msgspec.convert(value, Positive)
        except msgspec.ValidationError:
            speed = math.inf
        if not math.isfinite(speed):
            raise MismatchError(
                f"{expected}; for {written} nodes it has {shown(value)}"
            )
        return speed

    return Form(
        expected,
        read,
        lambda points: {str(nodes): value for nodes, value in points},
    )


# ----------------------------------------------------------------------
# What a lease asks of Slurm and of its node

MOST_FEATURES = 10
MOST_GRES_CHARACTERS = 500
"""Both keep the options for Slurm far below what it takes."""

_MIB_BY_UNIT = {"TiB": 1_048_576, "GiB": 1_024, "MiB": 1}
_MEMORY = re.compile(r"([1-9][0-9]{0,8}) ?(MiB|GiB|TiB)", re.ASCII)
_WORD = r"[A-Za-z0-9_][A-Za-z0-9_.:@+-]{0,63}"
# A kind may begin with digits (``1g.5gb``); a count has nothing but digits.
_GRES = re.compile(
    r"([A-Za-z][A-Za-z0-9_-]{0,63})"
    r"(?::([0-9]{0,9}[A-Za-z_][A-Za-z0-9_.-]{0,63}))?"
    r"(?::([1-9][0-9]{0,4}))?",
    re.ASCII,
)


def _slurm_name(what: str) -> str:
    return f"the name of {what}: letters, digits and any of _ . : @ + -"


Partition = Annotated[str, named(_WORD, _slurm_name("a partition"))]
Qos = Annotated[str, named(_WORD, _slurm_name("a quality of service"))]
Account = Annotated[str, named(_WORD, _slurm_name("an account"))]


def _read_features(value: object, _: Places) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MOST_FEATURES:
        raise MismatchError
    for feature in value:
        if not isinstance(feature, str) or not re.fullmatch(_WORD, feature, re.ASCII):
            raise MismatchError
    return tuple(dict.fromkeys(value))


def _read_memory(value: object, _: Places) -> int:
    found = _MEMORY.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise MismatchError
    return int(found[1]) * _MIB_BY_UNIT[found[2]]


def _memory_text(mib: int) -> str:
    unit = next(unit for unit, size in _MIB_BY_UNIT.items() if mib % size == 0)
    return f"{mib // _MIB_BY_UNIT[unit]}{unit}"


def _read_gres(value: object, _: Places) -> tuple[Gres, ...]:
    if not isinstance(value, str) or len(value) > MOST_GRES_CHARACTERS:
        raise MismatchError
    matches = [_GRES.fullmatch(item.strip()) for item in value.split(",")]
    found = [
        Gres(name=match[1], kind=match[2] or "", count=int(match[3] or 1))
        for match in matches
        if match is not None
    ]
    if len({(gres.name, gres.kind) for gres in found}) < len(matches):
        raise MismatchError
    return tuple(found)


def _gres_text(wanted: tuple[Gres, ...]) -> str:
    """Return *wanted* as Slurm writes it, such as ``gpu:a100:2,nvme:1``."""
    return ",".join(
        ":".join(filter(None, (gres.name, gres.kind, str(gres.count))))
        for gres in wanted
    )


FEATURES = Form(
    f'a list such as ["a", "b"] of up to {MOST_FEATURES}, '
    f"each {_slurm_name('a feature')}",
    _read_features,
    list,
)
MEMORY = Form(
    'an amount with its unit, MiB, GiB or TiB, such as "64GiB"',
    _read_memory,
    _memory_text,
)
GRES = Form(
    'generic resources of a node as Slurm writes them, such as "gpu:2" or '
    '"gpu:a100:2,nvme:1", each once',
    _read_gres,
    _gres_text,
)

Features = Annotated[tuple[str, ...], FEATURES]
MemoryMib = Annotated[int, MEMORY]
GenericResources = Annotated[tuple[Gres, ...], GRES]
Cpus = Annotated[int, Meta(ge=1, le=100_000)]
