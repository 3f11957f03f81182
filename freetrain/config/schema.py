"""JSON Schemas of job.toml and freetrain.toml, made of the structs that read them.

Editors complete and check a file whose first line is ``schema_line``, a convention of
TOML's language server taplo. What needs several keys or a launcher's word, such as a
``min`` above ``max``, only the readers find.

``job.schema.json`` and ``site.schema.json`` beside this module are what
``freetrain schema`` says, so that files can name them; a test compares them.
"""

import inspect
import json
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import NODEFAULT, Struct

from freetrain.config.document import (
    Key,
    form_of,
    keys_of,
    limits_of,
    plain_type,
)
from freetrain.config.job import TrainerJob
from freetrain.config.site import Site


class Described(StrEnum):
    """A kind of file that has a schema."""

    JOB = "job"
    SITE = "site"


_FILES: Mapping[Described, tuple[type[Struct], str, frozenset[str]]] = {
    Described.JOB: (TrainerJob, "job.toml", frozenset({"directory"})),
    Described.SITE: (Site, "freetrain.toml", frozenset({"state_directory"})),
}
"""Struct, title, and keys whose defaults depend on where a file lies."""

_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_LIMITS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum"}


def schema_line(kind: Described) -> str:
    """Return the first line of a file of *kind*, by which editors find its schema."""
    path = Path(__file__).resolve().with_name(f"{kind}.schema.json")
    return f"#:schema {path.as_uri()}\n"


def json_schema(kind: Described) -> dict[str, object]:
    """Return the schema (draft 2020-12) of files of *kind*.

    Without docstrings (``python -OO``) it describes less.
    """
    record, title, optional = _FILES[kind]
    schema = _table(record, optional)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **schema,
    }


def schema_text(kind: Described) -> str:
    """Return the schema of files of *kind* as text."""
    return json.dumps(json_schema(kind), indent=1) + "\n"


def _table(
    record: type[Struct], optional: frozenset[str] = frozenset()
) -> dict[str, object]:
    said = _attributes(record)
    keys = keys_of(record)
    required = [k.name for k in keys if k.is_required and k.name not in optional]
    schema: dict[str, object] = {
        "description": _summary(record),
        "type": "object",
        "properties": {key.name: _key(key, said.get(key.field, "")) for key in keys},
        "additionalProperties": False,
    }
    return schema | ({"required": required} if required else {})


def _key(key: Key, said: str) -> dict[str, object]:
    if key.is_table:
        return _table(key.type)
    expected = _expected(key.type)
    parts = (said, f"Expected: {expected}." if expected else "")
    schema = {"description": " ".join(filter(None, parts))} | _value(key.type)
    if key.default in (NODEFAULT, None, "", ()):
        return schema
    return schema | {"default": key.written(key.default)}


def _value(type_: Any) -> dict[str, object]:  # noqa: ANN401 - types have no type here
    """Return the schema of one value, as its form or its type and limits have it."""
    form = form_of(type_)
    if form is not None:
        return dict(form.schema)
    plain, limits = plain_type(type_), limits_of(type_)
    if limits.extra_json_schema is not None:
        return dict(limits.extra_json_schema)
    if plain not in _TYPES:
        return {"enum": [member.value for member in plain]}
    found: dict[str, object] = {"type": _TYPES[plain]}
    for name, keyword in _LIMITS.items():
        limit = getattr(limits, name)
        if limit is not None:
            found[keyword] = limit
    return found


def _expected(type_: Any) -> str:  # noqa: ANN401
    form = form_of(type_)
    return form.expected if form is not None else limits_of(type_).description or ""


# ----------------------------------------------------------------------
# Descriptions: what the structs' docstrings say of their fields

_ENTRY = re.compile(r"^    (\w+(?:, \w+)*): (.*(?:\n {8}.*)*)", re.MULTILINE)
_MARKS = re.compile(r"``|\[T_fwd\] ")


def _summary(record: type[Struct]) -> str:
    return _for_users(_MARKS.sub("", _docstring(record).partition("\n")[0]))


def _attributes(record: type[Struct]) -> Mapping[str, str]:
    _, _, entries = _docstring(record).partition("Attributes:\n")
    found = {}
    for match in _ENTRY.finditer(entries):
        words = _MARKS.sub("", " ".join(match[2].split()))
        for name in match[1].split(", "):
            found[name] = _for_users(words)
    return found


def _for_users(words: str) -> str:
    """Return *words* without what they say of None, which TOML does not have."""
    sentences = re.split(r"(?<=\.) ", words)
    clauses = (
        [part for part in sentence.rstrip(".").split("; ") if "None" not in part]
        for sentence in sentences
    )
    return " ".join(f"{'; '.join(parts)}." for parts in clauses if parts)


def _docstring(record: type[Struct]) -> str:
    return inspect.getdoc(record) or ""
