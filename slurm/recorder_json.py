"""Recordings of Slurm's JSON: the whole shape, which bug reports are about, no names.

Numbers, keys and yes or no stay where they are. A text stays only if its key says
what it is; any other becomes a word, whatever it says.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from slurm import recorder_changes as change
from slurm import recorder_words as known

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm.recorder_changes import Change
    from slurm.recorder_disguise import Disguise

_KEY = re.compile(r"[A-Za-z_]+|[0-9]+")
_NUMBERS = frozenset({"user_id", "group_id", "uid", "gid"})
_ALWAYS: Mapping[str, Change] = {
    "account": change.kind("account"),
    "accounts": change.kinds("account"),
    "comment": change.kind("comment"),
    "features": change.features,
    "active_features": change.features,
    "flags": change.one_of(known.FLAGS),
    "gres": change.gres,
    "node_list": change.hosts,
    "partition": change.kinds("part"),
    "partitions": change.kinds("part"),
    "qos": change.kind("qos"),
    "release": change.version,
    "user_name": change.kind("user"),
    "users": change.kinds("user"),
}
_SECTION: Mapping[str, Mapping[str, Change]] = {
    "jobs": {
        "name": change.kind("job"),
        "nodes": change.hosts,
        "scheduled_nodes": change.hosts,
        "required_nodes": change.hosts,
        "job_state": change.one_of(known.STATES),
        "state_reason": change.reason,
        "dependency": change.dependency,
        "resv_name": change.kind("reservation"),
        "tres_per_node": change.gres,
        "tres_per_job": change.gres,
    },
    "nodes": {
        "name": change.hosts,
        "state": change.one_of(known.STATES),
        "state_flags": change.one_of(known.STATES),
        "reason": change.kind("reason"),
    },
    "partitions": {
        "name": change.kind("part"),
        "nodes": change.hosts,
        "configured": change.hosts,
        "state": change.one_of(known.PARTITION_STATES),
        "preempt_mode": change.one_of(known.MODES),
        "preemption_mode": change.one_of(known.MODES),
        "oversubscribe": change.one_of(known.SHARING),
        "exclusive": change.one_of(known.SHARING),
    },
    "reservations": {"name": change.kind("reservation")},
}


def anonymised(disguise: Disguise, text: str, *, section: str) -> str:
    """Return an answer with every text replaced that is not known to be harmless.

    Args:
        disguise: The mapping.
        text: The answer.
        section: The key of its records: jobs, nodes, partitions or reservations.

    Raises:
        ValueError: Not JSON.
    """
    changes = {**_ALWAYS, **_SECTION[section]}
    loaded: object = json.loads(text)
    return json.dumps(_walk(disguise, loaded, "", changes), indent=1) + "\n"


def _walk(
    disguise: Disguise, value: object, key: str, changes: Mapping[str, Change]
) -> object:
    match value:
        case dict():
            return {
                _key(disguise, inner): _walk(disguise, one, inner, changes)
                for inner, one in value.items()
            }
        case list():
            return [_walk(disguise, one, key, changes) for one in value]
        case str():
            return changes.get(key, change.plain)(disguise, value)
        case int() if key in _NUMBERS and not isinstance(value, bool):
            return int(disguise.uid(str(value)))
        case _:
            return value


def _key(disguise: Disguise, key: str) -> str:
    """Keep a key that Slurm's schema could have; nodes have been keys too."""
    return key if _KEY.fullmatch(key) else disguise.hosts(key)
