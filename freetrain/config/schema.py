"""Kinds of values: how each is read from TOML, checked, and written again."""

from __future__ import annotations

import json
import math
import re
import shlex
import tomllib
from dataclasses import MISSING, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from freetrain.errors import BadConfigurationError, MissingInputError
from freetrain.text import (
    EXPECTED,
    closest,
    exact_duration,
    one_line,
    parse_duration,
    shown,
)
from slurm.records import Gres

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from enum import StrEnum


# ----------------------------------------------------------------------
# Kinds of values: how each is read from TOML, checked, and written again.

T = TypeVar("T")
Name = TypeVar("Name", bound="StrEnum")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


class MismatchError(ValueError):
    """A value is not of its kind; the text, if any, says what is expected."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A kind of value.

    Attributes:
        expected: What people are told to write.
        read: Turns what tomllib read into the value; raises a MismatchError where
            it is not of this kind.
        write: Turns the value into what TOML can say; ``read`` gives it back.
    """

    expected: str
    read: Callable[[object], T]
    write: Callable[[T], object]


def as_it_is(value: object) -> object:
    """Write a value that TOML knows."""
    return value


def whole(least: int, most: int) -> Kind[int]:
    """Return the kind of whole numbers from *least* to *most*."""

    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise MismatchError
        if not least <= value <= most:
            raise MismatchError
        return value

    return Kind(f"a whole number from {least} to {most}", read, as_it_is)


def positive() -> Kind[float]:
    """Return the kind of finite numbers above 0."""

    def read(value: object) -> float:
        number = _finite(value)
        if number <= 0:
            raise MismatchError
        return number

    return Kind("a number above 0", read, as_it_is)


def number() -> Kind[float]:
    """Return the kind of finite numbers."""
    return Kind("a number", _finite, as_it_is)


def seconds(least_s: float = 0.0, most_s: float = math.inf) -> Kind[float]:
    """Return the kind of durations, written with their unit, in seconds."""
    limits = "" if least_s == 0 else f", {exact_duration(least_s)} or more"
    limits += "" if math.isinf(most_s) else f", {exact_duration(most_s)} or less"

    def read(value: object) -> float:
        if not isinstance(value, str):
            raise MismatchError
        try:
            found_s = parse_duration(value)
        except ValueError:
            raise MismatchError from None
        if not least_s <= found_s <= most_s:
            raise MismatchError
        return round(found_s, 6)  # what can be written again

    return Kind(EXPECTED + limits, read, exact_duration)


def yes_or_no() -> Kind[bool]:
    """Return the kind of truth values."""

    def read(value: object) -> bool:
        if not isinstance(value, bool):
            raise MismatchError
        return value

    return Kind("true or false", read, as_it_is)


def matching(pattern: re.Pattern[str], expected: str) -> Kind[str]:
    """Return the kind of texts that *pattern* matches from end to end."""

    def read(value: object) -> str:
        if not isinstance(value, str) or pattern.fullmatch(value) is None:
            raise MismatchError
        return value

    return Kind(expected, read, as_it_is)


def trainer_name() -> Kind[str]:
    """Return the kind of names of trainers: safe in paths and in Slurm's tables."""
    return matching(_NAME, "up to 64 letters, digits, '.', '_' and '-'")


def choice(known: Collection[str]) -> Kind[str]:
    """Return the kind of words that are one of *known*."""
    expected = f"one of {', '.join(known)}"

    def read(value: object) -> str:
        if not isinstance(value, str) or value not in known:
            raise MismatchError(f"{expected}.{closest(str(value), known)}")
        return value

    return Kind(expected, read, str)


def one_of(names: type[Name]) -> Kind[Name]:
    """Return the kind of *names*, each written as its value."""
    words = choice([name.value for name in names])
    return Kind(words.expected, lambda value: names(words.read(value)), str)


def _finite(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MismatchError
    try:
        number = float(value)
    except OverflowError:
        raise MismatchError from None
    if not math.isfinite(number):
        raise MismatchError
    return number


# ----------------------------------------------------------------------
# One table of a TOML file, read key by key; each mistake named in one line.


@dataclass(frozen=True, slots=True)
class Table:
    """A table of key = value pairs and where it stands, for messages.

    Attributes:
        path: The file, as the user named it.
        where: The table within the file, such as ``trainer 'bert' (number 2)``;
            empty where the file is one table.
        values: The pairs, as tomllib read them.
        consequence: What was not done when the file is refused, one sentence.
    """

    path: str
    where: str
    values: Mapping[str, object]
    consequence: str

    def refuse(self, problem: str) -> NoReturn:
        """Raise the error for *problem*: what was found and what is expected."""
        stop = "" if problem.endswith(("?", ".")) else "."
        where = f"{self.where}: " if self.where else ""
        raise BadConfigurationError(
            one_line(f"{self.path}: {where}{problem}{stop} {self.consequence}")
        )

    def refuse_value(self, key: str, expected: str) -> NoReturn:
        """Raise the error for a value that is not what *key* expects."""
        self.refuse(f"{key} = {shown(self.values[key])}, expected {expected}")

    def refuse_unknown(self, known: Collection[str]) -> None:
        """Refuse the first key that is not *known*, with the nearest one that is."""
        for key in self.values:
            if key not in known:
                hint = closest(key, known) or f" Known keys: {', '.join(known)}"
                self.refuse(f"unknown key {shown(key)}.{hint}")

    def has(self, key: str) -> bool:
        """Tell whether the table says anything about *key*."""
        return key in self.values

    def require(self, key: str) -> None:
        """Refuse a table without *key*."""
        if key not in self.values:
            self.refuse(f"{key} is missing")

    def take(self, key: str, kind: Kind[T]) -> T:
        """Return what *key* says, as *kind* reads it; refuse a table without it."""
        self.require(key)
        try:
            return kind.read(self.values[key])
        except MismatchError as error:
            self.refuse_value(key, str(error) or kind.expected)

    def take_or(self, key: str, kind: Kind[T], *, default: T) -> T:
        """Return what *key* says, as *kind* reads it, or *default*."""
        return self.take(key, kind) if key in self.values else default

    def inner(self, name: str) -> Table:
        """Return the table *name* of this one; empty where it is not there."""
        values = self.values.get(name, {})
        if not isinstance(values, dict):
            self.refuse_value(name, f"a table, begun by a line [{name}]")
        return Table(self.path, f"[{name}]", values, self.consequence)


# ----------------------------------------------------------------------
# From a file to its outermost table.


@dataclass(frozen=True, slots=True)
class FileKind:
    """What messages about a file of some kind say.

    Attributes:
        what: What comes before its name, such as ``"trainers file "``; or nothing.
        most_bytes: The largest that is read.
        consequence: What was not done when it is refused, one sentence.
        advice: What to do when it cannot be read, one sentence.
        when_large: What to do about one that is too large; empty for the same.
    """

    what: str
    most_bytes: int
    consequence: str
    advice: str
    when_large: str = ""


def read_limited(path: Path, *, named: str, file: FileKind) -> bytes:
    """Return what is in the file at *path*, which the user named *named*.

    Raises:
        MissingInputError: It is not there or cannot be read.
        BadConfigurationError: It is larger than is ever read.
    """
    try:
        with path.open("rb") as opened:
            content = opened.read(file.most_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = error.strerror if isinstance(error, OSError) else error
        raise MissingInputError(
            f"cannot read {file.what}{named}: {why}. {file.consequence} {file.advice}"
        ) from error
    if len(content) > file.most_bytes:
        raise BadConfigurationError(
            f"{named}: larger than {file.most_bytes >> 20} MiB. {file.consequence} "
            f"{file.when_large or file.advice}"
        )
    return content


def parse_document(content: bytes, *, path: str, file: FileKind) -> Table:
    """Return the outermost table of *content*; *path* is for messages.

    Raises:
        BadConfigurationError: It is not TOML in UTF-8.
    """
    nothing = Table(path, "the file", {}, file.consequence)
    try:
        return Table(path, "", tomllib.loads(content.decode("utf-8")), file.consequence)
    except UnicodeDecodeError:
        nothing.refuse("this is not text in UTF-8, expected TOML")
    except (ValueError, RecursionError) as error:
        # Beside its own error, tomllib lets out those of int (over 4,300 digits)
        # and of datetime (the 31st of February).
        nothing.refuse(f"this is not TOML: {error}")


# ----------------------------------------------------------------------
# Kinds of values about node counts: which ones are allowed, and how fast each is.

POWERS_OF_TWO = "powers-of-two"
MOST_NODES = 100_000

_COUNT = re.compile(r"[1-9][0-9]{0,5}", re.ASCII)


def sizes(allowed: range) -> Kind[tuple[int, ...]]:
    """Return the kind of lists of node counts within *allowed*, ascending."""
    powers = tuple(2**k for k in range(allowed.stop.bit_length()) if 2**k in allowed)

    def read(value: object) -> tuple[int, ...]:
        found = list(powers) if value == POWERS_OF_TWO else value
        if not isinstance(found, list) or not found:
            raise MismatchError
        if any(type(size) is not int or size not in allowed for size in found):
            raise MismatchError
        return tuple(sorted(set(found)))

    return Kind(
        f'"{POWERS_OF_TWO}" or a list of node counts '
        f"from {allowed.start} to {allowed.stop - 1}",
        read,
        lambda found: POWERS_OF_TWO if found == powers else list(found),
    )


def curve(what: str) -> Kind[tuple[tuple[int, float], ...]]:
    """Return the kind of tables of *what*, a number above 0, by node count."""
    expected = f'{what} by node count, such as {{ "1" = 100.0, "2" = 190.0 }}'
    number = positive()

    def read(value: object) -> tuple[tuple[int, float], ...]:
        if not isinstance(value, dict) or not value:
            raise MismatchError
        points = ((_count(w), _value(w, value[w])) for w in value)
        return tuple(sorted(points))

    def _count(written: str) -> int:
        nodes = int(written) if _COUNT.fullmatch(written) else 0
        if not 1 <= nodes <= MOST_NODES:
            raise MismatchError(
                f"{expected}; {shown(written)} is no node count from 1 to {MOST_NODES}"
            )
        return nodes

    def _value(written: str, value: object) -> float:
        try:
            return number.read(value)
        except MismatchError:
            raise MismatchError(
                f"{expected}; for {written} nodes it has {shown(value)}"
            ) from None

    return Kind(
        expected,
        read,
        lambda points: {str(nodes): value for nodes, value in points},
    )


# ----------------------------------------------------------------------
# Kinds of values that say what a lease asks of Slurm and of its node.

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

    return Kind(expected, read, _as_list_resources)


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


def _as_list_resources(values: tuple[str, ...]) -> object:
    return list(values)


# ----------------------------------------------------------------------
# Writing what ``tomllib`` reads back as the same.

_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def toml_text(document: Mapping[str, object]) -> str:
    """Return *document* as TOML: its mappings as tables, theirs written inline."""
    blocks = [_lines({k: v for k, v in document.items() if not isinstance(v, dict)})]
    for name, table in document.items():
        if isinstance(table, dict):
            blocks.append(f"[{_key(name)}]\n{_lines(table)}")
    return "\n".join(block for block in blocks if block)


def toml_value(value: object) -> str:
    """Return *value* in one line: a string, number, truth value, time, list or table.

    Raises:
        TypeError: TOML has no such value.
    """
    match value:
        case bool():
            return str(value).lower()
        case str():
            # What JSON escapes TOML does too, except for DEL.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case int() | float():
            return repr(value)
        case datetime():
            return value.isoformat()
        case list():
            return f"[{', '.join(map(toml_value, value))}]"
        case dict():
            pairs = (f"{_key(key)} = {toml_value(one)}" for key, one in value.items())
            return f"{{ {', '.join(pairs)} }}" if value else "{}"
        case _:
            raise TypeError(f"TOML cannot say {type(value).__name__}")


def _lines(pairs: Mapping[str, object]) -> str:
    return "".join(
        f"{_key(key)} = {toml_value(value)}\n" for key, value in pairs.items()
    )


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else toml_value(key)


# ----------------------------------------------------------------------
# A whole file with a fixed set of keys and tables.

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class Schema(Generic[Record]):
    """The keys and tables of a file, and the record that it is read into.

    Attributes:
        top: The keys outside of any table.
        tables: The tables; each fills the attribute of its own name.
    """

    top: Section[Record]
    tables: tuple[Section[Any], ...]

    @property
    def sections(self) -> tuple[Section[Any], ...]:
        """All of them, in the order in which they are written."""
        return (self.top, *self.tables)

    def read(self, document: Table) -> Record:
        """Return the record that *document* describes.

        A table that is not there is read as an empty one where the record cannot
        be without it, else left to the record's default.

        Raises:
            BadConfigurationError: A key is unknown, missing, or not of its kind.
        """
        names = tuple(section.name for section in self.tables)
        document.refuse_unknown((*self.top.names(), *names))
        found = self.top.values(document)
        for section in self.tables:
            if document.has(section.name) or section.name in self.top.required():
                found[section.name] = section.read(document.inner(section.name))
        return self.top.record(**found)

    def render(self, record: Record) -> str:
        """Return the canonical file: all values said, but those left open."""
        document: Mapping[str, object] = self.top.write(record) | {
            section.name: section.write(getattr(record, section.name))
            for section in self.tables
            if getattr(record, section.name) is not None
        }
        return toml_text({name: one for name, one in document.items() if one != {}})


# ----------------------------------------------------------------------
# Tables with a fixed set of keys, read into a record and written again.


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table.

    Attributes:
        name: As people write it.
        kind: What it may say.
        field: The attribute of the record that it fills.
        default: What the record holds without it; None where its field says that.
    """

    name: str
    kind: Kind[Any]
    field: str
    default: object = None


@dataclass(frozen=True, slots=True)
class Section(Generic[Record]):
    """A table, and the record that it is read into.

    Attributes:
        name: As people write it in brackets; empty for the outermost table.
        record: The record, a dataclass; a field with neither a default nor one in
            its key must be given.
        keys: The keys, in the order in which they are written.
    """

    name: str
    record: Callable[..., Record]
    keys: tuple[Key, ...]

    def names(self) -> tuple[str, ...]:
        """Return the names of its keys."""
        return tuple(key.name for key in self.keys)

    def required(self) -> set[str]:
        """Return the fields of its record that have no default."""
        return {
            field.name
            for field in fields(self.record)  # type: ignore[arg-type]
            if field.default is MISSING
        }

    def values(self, table: Table) -> dict[str, Any]:
        """Return the fields that *table* gives, and the defaults of keys.

        Raises:
            BadConfigurationError: A value is not of its kind, or is missing.
        """
        given = {}
        required = self.required()
        for key in self.keys:
            if not table.has(key.name) and key.default is not None:
                given[key.field] = key.default
            elif table.has(key.name) or key.field in required:
                given[key.field] = table.take(key.name, key.kind)
        return given

    def read(self, table: Table) -> Record:
        """Return the record that *table* describes.

        Raises:
            BadConfigurationError: A key is unknown, missing, or not of its kind.
        """
        table.refuse_unknown(self.names())
        return self.record(**self.values(table))

    def write(self, record: Record) -> dict[str, object]:
        """Return what to write for *record*: all but what it leaves open."""
        found = ((key, getattr(record, key.field)) for key in self.keys)
        return {
            key.name: key.kind.write(value)
            for key, value in found
            if value is not None and value not in ((), "")
        }


# ----------------------------------------------------------------------
# Kinds of texts: commands and paths; all of them hostile.

MOST_ARGUMENT_BYTES = 100_000
"""Longest word of a command; Linux takes no single one above 131,072 bytes."""

MOST_COMMAND_BYTES = 200_000
"""All words of a command together; far below what Linux takes (2 MiB)."""

MOST_WORDS = 10_000
"""Words of a command; each takes room beside its bytes."""

MOST_PATH_BYTES = 4_000
"""Longest path; Linux takes 4,095."""


@dataclass(frozen=True, slots=True)
class Places:
    """What paths of a file start from.

    Attributes:
        folder: The folder of the file, absolute.
        home: What ``~`` stands for, absolute; None where nobody knows.
    """

    folder: Path
    home: Path | None = None


def command() -> Kind[tuple[str, ...]]:
    """Return the kind of commands: a list of words, or a line split as a shell would.

    No shell ever sees it: ``$``, ``;`` and ``*`` mean themselves.
    """
    return Kind(
        'a command, such as "python train.py" or ["python", "train.py"], of up to '
        f"{MOST_COMMAND_BYTES} bytes and without NUL",
        lambda value: _command(_split(value)),
        _as_list_text,
    )


def argument() -> Kind[str]:
    """Return the kind of one word of a command."""

    def read(value: object) -> str:
        return _command([value])[0]

    return Kind("a program's name or path", read, str)


def arguments() -> Kind[tuple[str, ...]]:
    """Return the kind of lists of further words for a command."""

    def read(value: object) -> tuple[str, ...]:
        return _texts(value) if isinstance(value, list) else _refuse()

    return Kind('a list of words, such as ["--bind-to", "core"]', read, _as_list_text)


def path_from(places: Places) -> Kind[Path]:
    """Return the kind of paths, made absolute from *places*."""

    def read(value: object) -> Path:
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

    return Kind(
        "a path of printable characters without '..'; relative ones start at the "
        "folder of this file, '~/' at your home",
        read,
        str,
    )


def _split(value: object) -> object:
    if not isinstance(value, str):
        return value
    # shlex reads character by character: 1 MB would take seconds.
    if len(value) > MOST_COMMAND_BYTES:
        raise MismatchError
    try:
        return shlex.split(value)
    except ValueError as error:
        raise MismatchError(f"a command; {str(error).lower()}") from None


def _command(value: object) -> tuple[str, ...]:
    found = _texts(value)
    if not found or not found[0].strip():
        raise MismatchError
    return found


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MOST_WORDS:
        raise MismatchError
    for item in value:
        if not isinstance(item, str) or "\0" in item:
            raise MismatchError
        if len(item.encode()) > MOST_ARGUMENT_BYTES:
            raise MismatchError
    if sum(len(item.encode()) for item in value) > MOST_COMMAND_BYTES:
        raise MismatchError
    return tuple(value)


def _refuse() -> NoReturn:
    raise MismatchError


def _as_list_text(values: tuple[str, ...]) -> object:
    return list(values)
