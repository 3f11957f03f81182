"""Shapes: what leases ask of their nodes, under names that never change."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm.records import Gres
    from slurm.requirement import Requirement


def shape_name(requirement: Requirement) -> str:
    """Return a name that this requirement has, whenever asked, and no other.

    Features, resources and partitions are checked words without these signs.
    """
    parts = [
        requirement.partition,
        *(f"feature={name}" for name in sorted(requirement.features)),
        *(f"gres={written(one)}" for one in sorted(requirement.gres, key=written)),
    ]
    if requirement.memory_mib:
        parts.append(f"memory={requirement.memory_mib}MiB")
    if requirement.cpus:
        parts.append(f"cpus={requirement.cpus}")
    return " ".join(parts)


def written(gres: Gres) -> str:
    """Return *gres* as sbatch takes it."""
    return (
        f"{gres.name}:{gres.kind}:{gres.count}"
        if gres.kind
        else (f"{gres.name}:{gres.count}")
    )
