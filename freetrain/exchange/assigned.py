"""Assignment files: which leases make up a generation, said once and for ever.

Whoever creates the file of generation g + 1 first, broker or agent, wins; the others
read it. So no trainer has two generations of one number.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from freetrain.broker.lease import Assignment, LeaseKey
from freetrain.elastic.durable import create_once
from freetrain.exchange.errors import UnreadableFileError

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.exchange.layout import TrainerDir

_NAME = re.compile(r"([0-9]{10})\.json", re.ASCII)
BROKER = "broker"
USER = "user"
"""Author of generations that users make: empty ones, to stop or to begin again."""

GO_ON = "its user lets it go on"
"""Reason of the empty generation that begins again, whatever ended before it."""

GAVE_UP = "failed too often"
"""How the reason of the empty generation begins that ends a failing trainer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One lease of a generation, with all that reaching its node takes.

    Attributes:
        key: The lease.
        job_id: Raw number, for ``srun --jobid``.
        display_id: What scancel calls it.
        node: NodeName.
        end_s: When its time limit ends it, Unix time; None where unknown.
    """

    key: LeaseKey
    job_id: int
    display_id: str
    node: str
    end_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """One generation of a trainer.

    Attributes:
        trainer: The trainer's name.
        generation: 1 for the first.
        members: Its leases; the first is the head, whose agent launches. Empty for
            a trainer that is to run nowhere.
        created_s: When it was made, Unix time.
        author: ``broker``, or the name of the lease whose agent made it.
        reason: Why, for people.
    """

    trainer: str
    generation: int
    members: tuple[Member, ...]
    created_s: float
    author: str
    reason: str

    @property
    def head(self) -> Member | None:
        """The lease whose agent launches; None where nothing runs."""
        return self.members[0] if self.members else None

    @property
    def keys(self) -> frozenset[LeaseKey]:
        """Its leases."""
        return frozenset(member.key for member in self.members)

    @property
    def assignment(self) -> Assignment:
        """The same as the broker plans with it."""
        return Assignment(
            trainer=self.trainer,
            generation=self.generation,
            leases=self.keys,
            created_s=self.created_s,
        )


def create_assigned(folder: TrainerDir, assigned: Assigned) -> bool:
    """Create the file of *assigned* unless its generation has one.

    Returns:
        Whether this call created it; where not, somebody else was first.

    Raises:
        OSError: It could not be written.
    """
    text = json.dumps(asdict(assigned), indent=1) + "\n"
    return create_once(folder.assignment(assigned.generation), text.encode())


def generations(folder: Path) -> tuple[int, ...]:
    """Return the generations that files in *folder* name, ascending.

    Listing a folder shows new files at once on NFS, where asking for one may not.

    Raises:
        OSError: The folder cannot be listed; a missing one is empty.
    """
    try:
        names = [entry.name for entry in folder.iterdir()]
    except FileNotFoundError:
        return ()
    return tuple(sorted(int(m[1]) for name in names if (m := _NAME.fullmatch(name))))


def read_assigned(folder: TrainerDir, generation: int) -> Assigned:
    """Return what the file of *generation* says.

    Raises:
        UnreadableFileError: It is not such a file.
        OSError: It cannot be read.
    """
    path = folder.assignment(generation)
    try:
        fields = json.loads(path.read_bytes())
        members = tuple(
            Member(**{**one, "key": LeaseKey(**one["key"])})
            for one in fields.pop("members")
        )
        return Assigned(members=members, **fields)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnreadableFileError(path, error) from error


def newest_assigned(folder: TrainerDir) -> Assigned | None:
    """Return the newest generation; None before the first.

    Raises:
        UnreadableFileError: Its file is not such a file.
        OSError: It cannot be read.
    """
    found = generations(folder.assignments)
    return read_assigned(folder, found[-1]) if found else None
