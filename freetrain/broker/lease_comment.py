"""The comment of a lease's Slurm job: what its owner says of it, for every broker.

It is words with single blanks between them: ``freetrain UUID state=1a2b3c4d``. All
users can read it, and anybody can write one, so only the comments of our own jobs are
believed for what they say of us.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256

_FIRST = "freetrain"

_MOST_CHARACTERS = 500
"""Of a comment that is read; ours take a hundred."""

_TAG = re.compile(r"[0-9a-f]{8}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseComment:
    """What a lease's comment says.

    Attributes:
        uuid: The intent's, as in the job's name.
        state: Which state directory the lease belongs to (``state_tag``); empty where
            the comment does not say.
    """

    uuid: str
    state: str = ""


def render_comment(comment: LeaseComment) -> str:
    """Return the text for ``sbatch --comment``."""
    words = [_FIRST, comment.uuid]
    if comment.state:
        words.append(f"state={comment.state}")
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
    state = values.get("state", "")
    return LeaseComment(uuid=uuid, state=state if _TAG.fullmatch(state) else "")


def state_tag(folder: str) -> str:
    """Return the tag of the state directory *folder*, an absolute path without links.

    Eight hexadecimal digits: it tells a user's few directories apart, and names none.
    """
    return sha256(folder.encode("utf-8", "surrogateescape")).hexdigest()[:8]
