"""Partitions, from ``scontrol show partitions``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from slurm.errors import SlurmRefusedError
from slurm.fields import read_records
from slurm.records import Partition
from slurm.values import duration_s, text_or_empty

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_MINUTE_S = 60.0


def partitions_argv() -> list[str]:
    """Return the command that shows every partition, hidden ones too."""
    return ["scontrol", "--all", "--oneliner", "show", "partitions"]


def parse_partitions(text: str) -> tuple[Partition, ...]:
    """Return the partitions that ``scontrol show partitions`` told.

    Raises:
        UnreadableOutputError: Not such an answer, empty, or cut short.
    """
    command = "scontrol show partitions"
    return read_records(text, "PartitionName", command=command, read=_partition)


def named_or_default(partitions: Iterable[Partition], name: str) -> Partition | None:
    """Return the partition *name*, the cluster's default for an empty name.

    None where we may see no such partition.
    """
    fitting = (p for p in partitions if (p.name == name if name else p.is_default))
    return next(fitting, None)


def choose_partition(
    partitions: Collection[Partition], name: str, *, where: str = ""
) -> Partition:
    """Return the partition *name*, the cluster's default for an empty name.

    Args:
        partitions: Those that we may see.
        name: Which; empty for the default one.
        where: Where people name another, for the message: ``"with --partition"``.

    Raises:
        SlurmRefusedError: There is no such partition.
    """
    found = named_or_default(partitions, name)
    if found is not None:
        return found
    known = ", ".join(sorted(one.name for one in partitions))
    asked = f"no partition {name!r}" if name else "no default partition"
    raise SlurmRefusedError(
        f"Slurm has {asked} that we may see; nothing was done. Name one of "
        f"{' '.join(filter(None, (known, where)))}."
    )


def _partition(fields: dict[str, str], record: str) -> Partition:
    del record
    max_time_s = duration_s(fields["MaxTime"])
    # Since 26.05 [run] a field of its own: "Exclusive=NODE … OverSubscribe=NO".
    is_exclusive = fields.get("Exclusive") == "NODE"
    return Partition(
        name=fields["PartitionName"],
        nodes=text_or_empty(fields["Nodes"]),
        is_up=fields["State"] == "UP",
        max_time_s=math.inf if max_time_s is None else max_time_s,
        priority_tier=int(fields["PriorityTier"]),
        preempt_mode=fields["PreemptMode"],
        grace_time_s=float(fields["GraceTime"]),
        over_time_limit_s=duration_s(fields["OverTimeLimit"], unit_s=_MINUTE_S),
        is_default=fields["Default"] == "YES",
        is_hidden=fields["Hidden"] == "YES",
        oversubscribe="EXCLUSIVE" if is_exclusive else fields["OverSubscribe"],
    )
