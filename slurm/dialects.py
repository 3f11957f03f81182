"""The two ways in which Slurm's commands tell nodes, jobs and the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from slurm.json_records import (
    parse_jobs_json,
    parse_nodes_json,
    parse_partitions_json,
    parse_reservations_json,
)
from slurm.nodes import nodes_argv, parse_nodes
from slurm.partitions import parse_partitions, partitions_argv
from slurm.reservations import parse_reservations, reservations_argv
from slurm.squeue import parse_squeue, squeue_argv

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm.records import JobRecord, Node, Partition, Reservation

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """A command, and how to read its answer."""

    argv: tuple[str, ...]
    parse: Callable[[str], tuple[T, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The four questions of a look."""

    nodes: Question[Node]
    jobs: Question[JobRecord]
    reservations: Question[Reservation]
    partitions: Question[Partition]


TEXT = Dialect(
    nodes=Question(tuple(nodes_argv()), parse_nodes),
    jobs=Question(tuple(squeue_argv()), parse_squeue),
    reservations=Question(tuple(reservations_argv()), parse_reservations),
    partitions=Question(tuple(partitions_argv()), parse_partitions),
)
"""Quick, small, and tells planned nodes on every release."""

JSON = Dialect(
    nodes=Question(("scontrol", "--all", "--json", "show", "nodes"), parse_nodes_json),
    jobs=Question(("squeue", "--all", "--local", "--json"), parse_jobs_json),
    reservations=Question(
        ("scontrol", "--all", "--json", "show", "reservations"),
        parse_reservations_json,
    ),
    partitions=Question(
        ("scontrol", "--all", "--json", "show", "partitions"), parse_partitions_json
    ),
)
"""Large and slow; from 23.02 on, before which scontrol knows no ``--json``."""
