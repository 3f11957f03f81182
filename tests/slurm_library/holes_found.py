"""Holes by node, of looks where jobs whose names begin with ft- are ours."""

import math
from dataclasses import replace

from slurm.holes import Hole, find_holes
from slurm.records import JobRecord, Requirement
from slurm.snapshot import Snapshot

ANY = Requirement(partition="freetrain")


def is_ours(job: JobRecord) -> bool:
    return job.name.startswith("ft-")


def holes(
    snapshot: Snapshot, requirement: Requirement = ANY, *, margin_s: float = 0.0,
    window_s: float = math.inf,
) -> dict[str, Hole]:  # fmt: skip
    found = find_holes(
        snapshot, requirement, is_ours=is_ours, margin_s=margin_s, window_s=window_s
    )
    return {hole.node: hole for hole in found}


def ours(job: JobRecord) -> JobRecord:
    return replace(job, name="ft-1")
