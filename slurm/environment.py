"""The environment that every Slurm command gets, whatever the user's own says."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

KEPT = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"})
"""Slurm's variables that say how to reach it; all others change what it answers."""

FIXED = (("LC_ALL", "C"), ("TZ", "UTC"))
"""What parsers rely on: English words, and times in UTC."""

_SCRUBBED_PREFIXES = (
    "SLURM_",  # SLURM_TIME_FORMAT, SLURM_CLUSTERS, a surrounding job's SLURM_JOB_ID
    "SLURMD_",
    "SQUEUE_",  # SQUEUE_FORMAT broke a published parser (Parsl #2293)
    "SINFO_",
    "SCONTROL_",
    "SBATCH_",
    "SALLOC_",
    "SRUN_",
    "SCANCEL_",
    "SACCT_",
    "SDIAG_",
    "PMI_",  # an MPI started below must not believe in an outer one
    "PMIX_",
)


def scrubbed(environ: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of *environ* without what would change Slurm's answers.

    Variables that begin with one of Slurm's prefixes go, except those that say
    how to reach the controller; locale and time zone are fixed.
    """
    kept = {
        name: value
        for name, value in environ.items()
        if name in KEPT or not name.startswith(_SCRUBBED_PREFIXES)
    }
    return kept | dict(FIXED)
