"""What may stand in a recording as it is: Slurm's own words, named one by one.

Everything else is replaced or left out; a word that is missing here costs a bug
report a detail, one too many could cost somebody their privacy.
"""

from __future__ import annotations

from slurm.states import JobState, NodeState


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_UNAVAILABLE = "Nodes required for job are DOWN, DRAINED or reserved for job"

STATES = frozenset({*map(str, NodeState), *map(str, JobState)})
"""States and flags of nodes and jobs."""

REASONS = _set(
    """
    None Priority Resources Dependency DependencyNeverSatisfied JobHeldAdmin
    JobHeldUser BeginTime Licenses Reservation PartitionDown PartitionInactive
    PartitionNodeLimit PartitionTimeLimit PartitionConfig AccountNotAllowed
    QOSNotAllowed ReqNodeNotAvail NodeDown JobArrayTaskLimit Prolog Cleaning
    BurstBufferResources BurstBufferStageIn SystemFailure JobLaunchFailure
    NonZeroExitCode TimeLimit OutOfMemory RaisedSignal InactiveLimit InvalidAccount
    InvalidQOS QOSUsageThreshold QOSJobLimit QOSResourceLimit QOSTimeLimit
    QOSMaxJobsPerUserLimit QOSMaxSubmitJobPerUserLimit QOSMaxCpuPerUserLimit
    QOSMaxNodePerUserLimit QOSMaxGRESPerUser QOSGrpCpuLimit QOSGrpNodeLimit
    QOSGrpGRES QOSGrpMemLimit QOSMaxWallDurationPerJobLimit AssociationJobLimit
    AssociationResourceLimit AssociationTimeLimit AssocGrpCpuLimit AssocGrpGRES
    AssocGrpMemLimit AssocGrpNodeLimit AssocGrpJobsLimit AssocGrpCPUMinutesLimit
    AssocGrpCPURunMinutesLimit AssocMaxJobsLimit AssocMaxNodePerJobLimit
    AssocMaxCpuPerJobLimit AssocMaxWallDurationPerJobLimit MaxMemPerLimit
    """
) | {
    f"{_UNAVAILABLE}s in higher priority partitions",
    _UNAVAILABLE,
}
"""Why jobs wait: Slurm's words, and its one sentence, cut at squeue's width too."""

MODES = _set("OFF CANCEL REQUEUE SUSPEND GANG WITHIN DISABLED")
"""Of preemption."""

SHARING = _set("NO YES EXCLUSIVE FORCE")
"""Of nodes."""

PARTITION_STATES = _set("UP DOWN DRAIN INACTIVE")
"""Of partitions."""

FLAGS = _set(
    """
    MAINT FLEX OVERLAP IGNORE_JOBS HOURLY DAILY WEEKLY WEEKDAY WEEKEND SPEC_NODES
    ANY_NODES ALL_NODES STATIC PART_NODES NO_PART_NODES PURGE_COMP FIRST_CORES
    TIME_FLOAT REPLACE REPLACE_DOWN NO_HOLD_JOBS_AFTER_END MAGNETIC SKIP USER_DELETE
    FORCE_START ACTIVE INACTIVE DEFAULT default HIDDEN ROOT_ONLY NO_ROOT
    """
)
"""Of reservations and partitions."""

PRIVATE = _set(
    "accounts cloud events jobs nodes partitions reservations usage users none"
)
"""What PrivateData may name."""
