"""A TOML file, read table by table into msgspec structs and written again.

The structs are the one definition of what a file may say: a field's name, type,
limits and default are those of its key. The tables that ``tomllib`` read are walked
beside the fields, so that every mistake gives one line that names the file, the
table, the key, the value found and what is expected instead.

Most types say by themselves how they are written (``Annotated[int, Meta(ge=1,
le=64)]``, an enum, a truth value) and are checked by msgspec. A type that TOML lacks,
such as a duration or a path, has a ``Form`` among its annotations. The second half of
this module has those that job.toml, freetrain.toml and trainers files share. All of it
is hostile text: values that reach a path, Slurm's options or an argument list are
limited in length and in characters.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import tomllib
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    NamedTuple,
    NoReturn,
    TypeVar,
    get_args,
    get_origin,
)

import msgspec
from msgspec import NODEFAULT, Meta, Struct

from freetrain.errors import BadConfigurationError, MissingInputError
from freetrain.opening import is_own, read_with_status
from freetrain.text import (
    EXPECTED,
    WRITTEN_DURATION,
    closest,
    exact_duration,
    one_line,
    parse_duration,
    shown,
)
from slurm.records import Gres

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping


T = TypeVar("T")
Record = TypeVar("Record", bound=Struct)


# ----------------------------------------------------------------------
# The keys of a table, as the fields of a struct define them


def key_name(field: str) -> str:
    """Return the key of *field*: its name without the unit, which the value has."""
    return field.removesuffix("_s").removesuffix("_mib")


class MismatchError(ValueError):
    """A value does not fit its key; the text, if any, says what is expected."""


@dataclass(frozen=True, slots=True)
class Form(Generic[T]):
    """How a value is written in a file, where its type does not say it.

    Attributes:
        expected: Describes a good value in messages.
        read: Turns what tomllib read into the value; paths start from the places.
            Raises a MismatchError where it cannot.
        write: Turns the value into one that TOML has; ``read`` gives it back.
        schema: Keywords of JSON Schema that all good values fulfil, for editors.
    """

    expected: str
    read: Callable[[object, BaseFolders], T]
    write: Callable[[T], object]
    schema: Mapping[str, object] = field(compare=False)


class Key(NamedTuple):
    """One key of a table: its name, and the field of the struct that it fills."""

    name: str
    field: str
    type: Any
    default: object

    @property
    def is_required(self) -> bool:
        """Whether the table must have it."""
        return self.default is NODEFAULT

    @property
    def is_table(self) -> bool:
        """Whether it is a table with keys of its own."""
        return isinstance(self.type, type) and issubclass(self.type, Struct)

    def written(self, value: Any) -> object:  # noqa: ANN401 - as its form takes it
        """Return *value* as TOML can say it."""
        form = form_of(self.type)
        return value if form is None else form.write(value)


NOT_A_KEY = "not a key"
"""Annotates a field that no file can set."""


@cache
def keys_of(record: type[Struct]) -> tuple[Key, ...]:
    """Return the keys of a table that is read into *record*, as they are written."""
    return tuple(
        Key(field.encode_name, field.name, _without_none(field.type), field.default)
        for field in msgspec.structs.fields(record)
        if NOT_A_KEY not in getattr(field.type, "__metadata__", ())
    )


def _without_none(type_: Any) -> Any:  # noqa: ANN401 - types have no type here
    """Return T for ``T | None``: TOML has no null, so None is a key left out."""
    if get_origin(type_) is Annotated or NoneType not in get_args(type_):
        return type_
    return next(part for part in get_args(type_) if part is not NoneType)


def form_of(type_: Any) -> Form[Any] | None:  # noqa: ANN401
    """Return the form among the annotations of *type_*; None where it has none."""
    notes = getattr(type_, "__metadata__", ())
    return next((note for note in notes if isinstance(note, Form)), None)


def read_value(value: object, type_: Any, places: BaseFolders) -> Any:  # noqa: ANN401
    """Return *value*, which tomllib read, as *type_* has it.

    Raises:
        MismatchError: It is not of this type; the text says what is expected.
    """
    form = form_of(type_)
    try:
        if form is not None:
            return form.read(value, places)
        found = msgspec.convert(value, type_)
    except MismatchError as error:
        raise MismatchError(str(error) or (form.expected if form else "")) from None
    except msgspec.ValidationError:
        raise MismatchError(_expected(type_, value)) from None
    if plain_type(type_) is float and not math.isfinite(found):
        raise MismatchError(_expected(type_, value))
    return found


def plain_type(type_: Any) -> Any:  # noqa: ANN401
    """Return *type_* without its annotations."""
    return get_args(type_)[0] if get_origin(type_) is Annotated else type_


def limits_of(type_: Any) -> Meta:  # noqa: ANN401
    """Return the limits among the annotations of *type_*, or none."""
    notes = getattr(type_, "__metadata__", ())
    return next((note for note in notes if isinstance(note, Meta)), Meta())


def _expected(type_: Any, value: object) -> str:  # noqa: ANN401
    """Say what a type that msgspec checks expects instead of *value*."""
    plain, limits = plain_type(type_), limits_of(type_)
    if limits.description is not None:
        return limits.description
    if plain is bool:
        return "true or false"
    if plain is int:
        return f"a whole number from {limits.ge} to {limits.le}"
    if plain is float:
        return "a number above 0" if limits.gt == 0 else "a number"
    names = [member.value for member in plain]
    return f"one of {', '.join(names)}.{closest(str(value), names)}"


# ----------------------------------------------------------------------
# From a file to its tables


@dataclass(frozen=True, slots=True)
class BaseFolders:
    """Where paths in a file start, both absolute.

    Attributes:
        folder: The folder of the file.
        home: Replaces ``~``; None where it is unknown.
    """

    folder: Path
    home: Path | None = None


ROOT = BaseFolders(Path("/"))
"""For files of which every path is absolute."""


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of file: its largest size, and sentences for messages about it.

    Attributes:
        prefix: Stands before its name, such as ``"trainers file "``; or nothing.
        consequence: Says that nothing was done, when the file is refused.
        advice: Says what to do when it cannot be read.
        when_large: Says what to do when it is too large; empty for the advice.
    """

    prefix: str
    most_bytes: int
    consequence: str
    advice: str
    when_large: str = ""


def read_limited(
    path: Path, *, named: str, file: FileKind, must_be_own: bool = False
) -> bytes:
    """Return the content of the file at *path*, which the user named *named*.

    Args:
        path: The file.
        named: How the user named it, for messages.
        file: Its kind.
        must_be_own: Whether it has to be this user's own and no link: where it was
            found in a folder and others may have put it there.

    Raises:
        MissingInputError: It is not there or cannot be read; a pipe can, where it
            need not be the user's own.
        BadConfigurationError: It is larger than is ever read, or another user's.
    """
    try:
        if must_be_own:
            content, found = read_with_status(path, file.most_bytes + 1)
            if not is_own(found):
                raise BadConfigurationError(
                    f"{named}: belongs to user {found.st_uid}, and could run anything "
                    f"as you. {file.consequence} Copy it if you trust it."
                )
        else:
            with path.open("rb") as stream:
                content = stream.read(file.most_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = error.strerror if isinstance(error, OSError) else error
        raise MissingInputError(
            f"cannot read {file.prefix}{named}: {why}. {file.consequence} {file.advice}"
        ) from error
    return limited(content, named=named, file=file)


def limited(content: bytes, *, named: str, file: FileKind) -> bytes:
    """Return *content*, of which one byte more than is allowed was read.

    Raises:
        BadConfigurationError: It is larger than is ever read.
    """
    if len(content) > file.most_bytes:
        raise BadConfigurationError(
            f"{named}: larger than {file.most_bytes >> 20} MiB. {file.consequence} "
            f"{file.when_large or file.advice}"
        )
    return content


def parse_document(
    content: bytes, *, path: str, file: FileKind, places: BaseFolders = ROOT
) -> Table:
    """Return the outermost table of *content*; *path* is for messages.

    Raises:
        BadConfigurationError: It is not TOML in UTF-8.
    """
    nothing = Table(path, "the file", {}, file.consequence, places)
    if _deepest_key(content) > _MOST_PARTS:
        nothing.refuse(f"a key has more than {_MOST_PARTS} parts, joined by dots")
    try:
        return replace(nothing, where="", values=tomllib.loads(content.decode("utf-8")))
    except UnicodeDecodeError:
        nothing.refuse("this is not text in UTF-8, expected TOML")
    except (ValueError, RecursionError) as error:
        # Beside its own error, tomllib lets out those of int (over 4,300 digits)
        # and of datetime (the 31st of February).
        nothing.refuse(f"this is not TOML: {error}")


_MOST_PARTS = 16
"""Parts of a key; tomllib takes time with their square, and goes through those of a
table's header for each line below it."""

_TOKEN = re.compile(
    rb""""{3}(?:[^"\\]++|\\.|"(?!""))*+(?:"{3})?|'{3}.*?(?:'{3}|\Z)|"""
    rb""""(?:[^"\\\n]++|\\.)*+"?|'[^'\n]*'?|#[^\n]*|[A-Za-z0-9_-]+|[ \t]+|.""",
    re.DOTALL,
)
"""A string, comment, bare key or number, blanks, or one other byte of TOML."""

_NO_PART_OF_KEYS = frozenset(b"=[]{},\r\n+:\\")


def _deepest_key(content: bytes) -> int:
    """Return the most parts of a dotted key in TOML, up to ``_MOST_PARTS`` + 1."""
    if max(line.count(b".") for line in content.split(b"\n")) < _MOST_PARTS:
        return 0
    deepest = parts = 0
    for found in _TOKEN.finditer(content):
        token = found[0]
        if token == b".":
            parts += 1
            deepest = max(deepest, parts + 1)
            if deepest > _MOST_PARTS:
                break
        elif token[0] in _NO_PART_OF_KEYS:
            parts = 0
    return deepest


@dataclass(frozen=True, slots=True)
class Table:
    """A table of key = value pairs and where it stands, for messages.

    Attributes:
        path: The file, as the user named it.
        where: The table within the file, such as ``trainer 'bert' (number 2)``;
            empty where the file is one table.
        values: The pairs, as tomllib read them.
        consequence: See ``FileKind``.
    """

    path: str
    where: str
    values: Mapping[str, object]
    consequence: str
    places: BaseFolders = ROOT

    def read(
        self, record: type[Record], *, defaults: Mapping[str, object] | None = None
    ) -> Record:
        """Return this table as a *record*.

        An inner table that is not there is read as an empty one where the record
        needs it, so that the message names the key that is missing in it.

        Args:
            record: The struct whose fields are the keys.
            defaults: Values of fields without a key, where only the caller knows them.

        Raises:
            BadConfigurationError: A key is unknown, missing, or not of its type.
        """
        keys = keys_of(record)
        self.refuse_unknown([key.name for key in keys])
        found = dict(defaults or {})
        for key in keys:
            is_needed = key.is_required and key.field not in found
            if key.is_table and (self.has(key.name) or is_needed):
                found[key.field] = self.inner(key.name).read(key.type)
            elif self.has(key.name) or is_needed:
                found[key.field] = self.take(key.name, key.type)
        return record(**found)

    def take(self, key: str, type_: Any) -> Any:  # noqa: ANN401
        """Return the value of *key*, as *type_* has it.

        Raises:
            BadConfigurationError: It is missing, or not of this type.
        """
        self.require(key)
        try:
            return read_value(self.values[key], type_, self.places)
        except MismatchError as error:
            self.refuse_value(key, str(error))

    def has(self, key: str) -> bool:
        """Tell whether the table has *key*."""
        return key in self.values

    def inner(self, name: str) -> Table:
        """Return the table *name* of this one; empty where it is not there."""
        values = self.values.get(name, {})
        if not isinstance(values, dict):
            self.refuse_value(name, f"a table, begun by a line [{name}]")
        return replace(self, where=f"[{name}]", values=values)

    def require(self, key: str) -> None:
        """Refuse a table without *key*."""
        if key not in self.values:
            self.refuse(f"{key} is missing")

    def refuse_unknown(self, known: Collection[str]) -> None:
        """Refuse the first key that is not *known*, with the nearest one that is."""
        for key in self.values:
            if key not in known:
                hint = closest(key, known) or f" Known keys: {', '.join(known)}"
                self.refuse(f"unknown key {shown(key)}.{hint}")

    def refuse_value(self, key: str, expected: str) -> NoReturn:
        """Raise the error for a value that does not fit *key*."""
        self.refuse(f"{key} = {shown(self.values[key])}, expected {expected}")

    def refuse(self, problem: str) -> NoReturn:
        """Raise the error for *problem*, which says what was found and expected."""
        stop = "" if problem.endswith(("?", ".")) else "."
        where = f"{self.where}: " if self.where else ""
        raise BadConfigurationError(
            one_line(f"{self.path}: {where}{problem}{stop} {self.consequence}")
        )


# ----------------------------------------------------------------------
# Writing TOML that tomllib reads back as the same

_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def render_record(record: Struct) -> str:
    """Return the file that *record* is read from: every value but those left open."""
    return toml_text(_pairs(record))


def _pairs(record: Struct) -> dict[str, object]:
    pairs: dict[str, object] = {}
    for key in keys_of(type(record)):
        value = getattr(record, key.field)
        if value is None or value in ((), ""):
            continue
        pairs[key.name] = _pairs(value) if key.is_table else key.written(value)
        if pairs[key.name] == {}:
            del pairs[key.name]
    return pairs


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
            pairs = (f"{_key(key)} = {toml_value(item)}" for key, item in value.items())
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
# Types that several files share: numbers and names

Positive = Annotated[float, Meta(gt=0)]
"""A finite number above 0."""


def named(pattern: str, expected: str) -> Meta:
    """Return the note of texts that *pattern* matches from end to end."""
    return Meta(
        pattern=rf"(?a)\A(?:{pattern})\Z",
        description=expected,
        extra_json_schema=text_schema(pattern),
    )


def text_schema(pattern: str) -> dict[str, object]:
    """Return the schema of texts that *pattern* matches from end to end."""
    return {"type": "string", "pattern": f"^(?:{pattern})$"}


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

    def read(value: object, _: BaseFolders) -> str:
        if not isinstance(value, str) or value not in known:
            raise MismatchError(f"{expected}.{closest(str(value), known)}")
        return value

    return Form(expected, read, str, {"enum": list(known)})


# ----------------------------------------------------------------------
# Durations, written with their unit

DURATION_SCHEMA = text_schema(rf"\s*{WRITTEN_DURATION}\s*")


def seconds(least_s: float = 0.0, most_s: float = math.inf) -> Form[float]:
    """Return the form of durations from *least_s* to *most_s*, in seconds."""
    limits = "" if least_s == 0 else f", {exact_duration(least_s)} or more"
    limits += "" if math.isinf(most_s) else f", {exact_duration(most_s)} or less"

    def read(value: object, _: BaseFolders) -> float:
        if not isinstance(value, str):
            raise MismatchError
        try:
            found_s = parse_duration(value)
        except ValueError:
            raise MismatchError from None
        if not least_s <= found_s <= most_s:
            raise MismatchError
        return round(found_s, 6)  # what can be written again

    return Form(EXPECTED + limits, read, exact_duration, DURATION_SCHEMA)


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


def _read_command(value: object, _: BaseFolders) -> tuple[str, ...]:
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


def _read_path(value: object, places: BaseFolders) -> Path:
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


_WORDS = {"type": "array", "items": {"type": "string"}, "maxItems": MOST_WORDS}
COMMAND = Form(
    'a command, such as "python train.py" or ["python", "train.py"], of up to '
    f"{MOST_COMMAND_BYTES} bytes and without NUL",
    _read_command,
    list,
    {"anyOf": [{"type": "string", "minLength": 1}, {**_WORDS, "minItems": 1}]},
)
ARGUMENT = Form(
    "a program's name or path",
    lambda value, places: _read_command([value], places)[0],
    str,
    {"type": "string", "minLength": 1},
)
ARGUMENTS = Form(
    'a list of words, such as ["--bind-to", "core"]',
    lambda value, _: _words_of(value),
    list,
    _WORDS,
)
PATH = Form(
    "a path of printable characters without '..'; relative ones start at the "
    "folder of this file, '~/' at your home",
    _read_path,
    str,
    {"type": "string", "minLength": 1},
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


def _read_amounts(value: object, _: BaseFolders) -> tuple[float, ...]:
    if not isinstance(value, list) or not value:
        raise MismatchError
    if any(isinstance(amount, bool) for amount in value):
        raise MismatchError
    try:
        amounts = msgspec.convert(value, tuple[Positive, ...])
    except msgspec.ValidationError as error:
        raise MismatchError from error
    if not all(map(math.isfinite, amounts)):
        raise MismatchError
    return tuple(sorted(set(amounts)))


_ABOVE_0 = {"type": "number", "exclusiveMinimum": 0}
AMOUNTS = Form(
    "a list of numbers above 0, such as [3000, 6000]",
    _read_amounts,
    list,
    {"type": "array", "items": _ABOVE_0, "minItems": 1},
)


def sizes(allowed: range) -> Form[tuple[int, ...]]:
    """Return the form of lists of node counts within *allowed*, ascending."""
    powers = tuple(2**k for k in range(allowed.stop.bit_length()) if 2**k in allowed)

    def read(value: object, _: BaseFolders) -> tuple[int, ...]:
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
        {
            "anyOf": [
                {"const": POWERS_OF_TWO},
                {
                    "type": "array",
                    "items": {
                        "type": "integer",
                        "minimum": allowed.start,
                        "maximum": allowed.stop - 1,
                    },
                    "minItems": 1,
                },
            ]
        },
    )


def curve(what: str) -> Form[tuple[tuple[int, float], ...]]:
    """Return the form of tables of *what*, a number above 0, by node count."""
    expected = f'{what} by node count, such as {{ "1" = 100.0, "2" = 190.0 }}'

    def read(value: object, _: BaseFolders) -> tuple[tuple[int, float], ...]:
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
        {
            "type": "object",
            "patternProperties": {f"^{_COUNT.pattern}$": _ABOVE_0},
            "additionalProperties": False,
            "minProperties": 1,
        },
    )


# ----------------------------------------------------------------------
# Resources that a lease asks Slurm for

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
GpuType = Annotated[
    str,
    named(
        r"[0-9]{0,9}[A-Za-z_][A-Za-z0-9_.-]{0,63}",
        'a kind of GPU as Slurm names it, such as "a100" or "1g.5gb"',
    ),
]


def _read_features(value: object, _: BaseFolders) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MOST_FEATURES:
        raise MismatchError
    for feature in value:
        if not isinstance(feature, str) or not re.fullmatch(_WORD, feature, re.ASCII):
            raise MismatchError
    return tuple(dict.fromkeys(value))


def _read_memory(value: object, _: BaseFolders) -> int:
    found = _MEMORY.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise MismatchError
    return int(found[1]) * _MIB_BY_UNIT[found[2]]


def _memory_text(mib: int) -> str:
    unit = next(unit for unit, size in _MIB_BY_UNIT.items() if mib % size == 0)
    return f"{mib // _MIB_BY_UNIT[unit]}{unit}"


def _read_gres(value: object, _: BaseFolders) -> tuple[Gres, ...]:
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
    {"type": "array", "items": text_schema(_WORD), "maxItems": MOST_FEATURES},
)
MEMORY = Form(
    'an amount with its unit, MiB, GiB or TiB, such as "64GiB"',
    _read_memory,
    _memory_text,
    text_schema(_MEMORY.pattern),
)
GRES = Form(
    'generic resources of a node as Slurm writes them, such as "gpu:2" or '
    '"gpu:a100:2,nvme:1", each once',
    _read_gres,
    _gres_text,
    {"type": "string", "minLength": 1, "maxLength": MOST_GRES_CHARACTERS},
)

Features = Annotated[tuple[str, ...], FEATURES]
MemoryMib = Annotated[int, MEMORY]
GenericResources = Annotated[tuple[Gres, ...], GRES]
Cpus = Annotated[int, Meta(ge=1, le=100_000)]
