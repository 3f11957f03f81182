"""The comment of a lease's Slurm job: what its owner says of it, for every broker.

It is words with single blanks between them:
``freetrain UUID state=1a2b3c4d pool=1 want=8 beat=1900000000``. All users can read it,
and anybody can write one: what a comment says is believed of its job's own user alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256

_FIRST = "freetrain"

_MOST_CHARACTERS = 500
"""Of a comment that is read; ours take a hundred."""

_TAG = re.compile(r"[0-9a-f]{8}", re.ASCII)

_COUNT = re.compile(r"[0-9]{1,6}", re.ASCII)

_TIME = re.compile(r"[0-9]{1,12}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseComment:
    """What a lease's comment says.

    Attributes:
        uuid: The intent's, as in the job's name.
        state: Which state directory the lease belongs to (``state_tag``); empty where
            the comment does not say.
        is_pooled: Whether its broker gives the lease up as part of the leases of all
            users (``broker.sharing``).
        want: How many nodes its owner's trainers could use; None for no word of it.
        beat_s: When its broker last ticked, by slurmctld's clock, whole Unix seconds;
            None for no word of it.
    """

    uuid: str
    state: str = ""
    is_pooled: bool = False
    want: int | None = None
    beat_s: float | None = None


def render_comment(comment: LeaseComment) -> str:
    """Return the text for ``sbatch --comment``."""
    words = [_FIRST, comment.uuid]
    if comment.state:
        words.append(f"state={comment.state}")
    if comment.is_pooled:
        words.append("pool=1")
    if comment.want is not None:
        words.append(f"want={comment.want}")
    if comment.beat_s is not None:
        words.append(f"beat={comment.beat_s:.0f}")
    return " ".join(words)


def parse_comment(text: str) -> LeaseComment | None:
    """Return what *text* says; None where it is no lease's comment.

    Words that this version does not know are passed over. Hostile text.
    """
    first, *words = text[:_MOST_CHARACTERS].split() or [""]
    if first != _FIRST or not words:
        return None
    uuid, *named = words
    values = dict(word.split("=", 1) for word in reversed(named) if "=" in word)
    state, want, beat = (values.get(name, "") for name in ("state", "want", "beat"))
    return LeaseComment(
        uuid=uuid,
        state=state if _TAG.fullmatch(state) else "",
        is_pooled=values.get("pool") == "1",
        want=int(want) if _COUNT.fullmatch(want) else None,
        beat_s=float(beat) if _TIME.fullmatch(beat) else None,
    )


def state_tag(folder: str) -> str:
    """Return the tag of the state directory *folder*, an absolute path without links.

    Eight hexadecimal digits: it tells a user's few directories apart, and names none.
    """
    return sha256(folder.encode("utf-8", "surrogateescape")).hexdigest()[:8]
