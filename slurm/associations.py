"""Limits of a user's accounts, as ``sacctmgr`` shows them to that user.

Slurm enforces them only where AccountingStorageEnforce has ``limits``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurm.errors import UnreadableOutputError

_FIELDS = ("Account", "GrpTRES", "MaxJobs", "MaxSubmitJobs")
_NODES = re.compile(r"(?:^|,)node=([0-9]{1,9})(?:,|$)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Association:
    """The limits of a user in one account; None for no such limit.

    Attributes:
        account: Its name.
        most_nodes: Nodes that all jobs of the association hold together.
        most_jobs: Jobs that run at a time.
        most_submitted: Jobs that wait or run at a time.
    """

    account: str
    most_nodes: int | None
    most_jobs: int | None
    most_submitted: int | None

    @property
    def most_leases(self) -> int | None:
        """The most one-node jobs that may run, None for any number."""
        limits = (self.most_nodes, self.most_jobs, self.most_submitted)
        return min((limit for limit in limits if limit is not None), default=None)


def associations_argv(user: str) -> tuple[str, ...]:
    """Return the command that shows *user*'s limits, those of accounts above included.

    Raises:
        ValueError: A name that sacctmgr would read as several, or as none.
    """
    if not user or "," in user or "=" in user:
        raise ValueError(f"sacctmgr cannot look for a user named {user!r}")
    what = ("show", "associations", f"user={user}", f"format={','.join(_FIELDS)}")
    return ("sacctmgr", "--noheader", "--parsable2", "--readonly", *what)


def parse_associations(text: str) -> tuple[Association, ...]:
    """Return the associations that sacctmgr printed; none for a user without.

    Raises:
        UnreadableOutputError: Not such an answer.
    """
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        values = line.split("|")
        if len(values) != len(_FIELDS):
            why = f"expected {len(_FIELDS)} values"
            raise UnreadableOutputError("sacctmgr", number, line, why)
        account, tres, jobs, submitted = values
        nodes = _NODES.search(tres)
        found.append(
            Association(
                account,
                most_nodes=None if nodes is None else int(nodes[1]),
                most_jobs=_limit(jobs),
                most_submitted=_limit(submitted),
            )
        )
    return tuple(found)


def _limit(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 10 else None  # noqa: PLR2004
