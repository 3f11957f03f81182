"""Generic resources as Slurm writes them: ``gpu:a100:2(S:0-1),craynetwork:4``."""

from __future__ import annotations

import re

from slurm.records import Gres
from slurm.values import NOTHING, count

_BRACKETS = re.compile(r"\([^()]*\)")
_COUNT = re.compile(r"\d+[KMGTkmgt]?", re.ASCII)


def read_gres(text: str) -> tuple[Gres, ...]:
    """Return the resources of a ``Gres=`` value, none where there is no value."""
    if text in NOTHING:
        return ()
    return tuple(_read_one(item) for item in _BRACKETS.sub("", text).split(",") if item)


def _read_one(item: str) -> Gres:
    name, *rest = item.split(":")
    rest = [word for word in rest if word != "no_consume"]
    how_many = count(rest.pop()) if rest and _COUNT.fullmatch(rest[-1]) else 1
    return Gres(name=name, kind=":".join(rest), count=how_many)
