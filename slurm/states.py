"""The words that Slurm uses for the states of nodes and jobs.

Source: node_state_flags and job_state_string of Slurm 21.08 to 26.05.
"""

from enum import StrEnum


class NodeState(StrEnum):
    """One of a node's base states, or one of the flags beside it."""

    ALLOCATED = "ALLOCATED"
    DOWN = "DOWN"
    ERROR = "ERROR"
    FUTURE = "FUTURE"
    IDLE = "IDLE"
    MIXED = "MIXED"
    UNKNOWN = "UNKNOWN"

    BLOCKED = "BLOCKED"
    CLOUD = "CLOUD"
    COMPLETING = "COMPLETING"
    DRAIN = "DRAIN"
    DYNAMIC_FUTURE = "DYNAMIC_FUTURE"
    DYNAMIC_NORM = "DYNAMIC_NORM"
    EXTERNAL = "EXTERNAL"
    FAIL = "FAIL"
    INVALID_REG = "INVALID_REG"
    MAINTENANCE = "MAINTENANCE"
    NOT_RESPONDING = "NOT_RESPONDING"
    PLANNED = "PLANNED"
    POWER_DOWN = "POWER_DOWN"
    POWER_UP = "POWER_UP"
    POWERED_DOWN = "POWERED_DOWN"
    POWERING_DOWN = "POWERING_DOWN"
    POWERING_UP = "POWERING_UP"
    REBOOT_ISSUED = "REBOOT_ISSUED"
    REBOOT_REQUESTED = "REBOOT_REQUESTED"
    RESERVED = "RESERVED"
    RESUME = "RESUME"


class JobState(StrEnum):
    """One of a job's base states, or one of the flags beside it."""

    BOOT_FAIL = "BOOT_FAIL"
    CANCELLED = "CANCELLED"
    COMPLETED = "COMPLETED"
    DEADLINE = "DEADLINE"
    FAILED = "FAILED"
    NODE_FAIL = "NODE_FAIL"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    PENDING = "PENDING"
    PREEMPTED = "PREEMPTED"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    TIMEOUT = "TIMEOUT"

    COMPLETING = "COMPLETING"
    CONFIGURING = "CONFIGURING"
    EXPEDITING = "EXPEDITING"
    LAUNCH_FAILED = "LAUNCH_FAILED"
    POWER_UP_NODE = "POWER_UP_NODE"
    RECONFIG_FAIL = "RECONFIG_FAIL"
    REQUEUED = "REQUEUED"
    REQUEUE_FED = "REQUEUE_FED"
    REQUEUE_HOLD = "REQUEUE_HOLD"
    RESIZING = "RESIZING"
    RESV_DEL_HOLD = "RESV_DEL_HOLD"
    REVOKED = "REVOKED"
    SIGNALING = "SIGNALING"
    SPECIAL_EXIT = "SPECIAL_EXIT"
    STAGE_OUT = "STAGE_OUT"
    STOPPED = "STOPPED"


ENDED = frozenset(
    {
        JobState.BOOT_FAIL,
        JobState.CANCELLED,
        JobState.COMPLETED,
        JobState.DEADLINE,
        JobState.FAILED,
        JobState.NODE_FAIL,
        JobState.OUT_OF_MEMORY,
        JobState.PREEMPTED,
        JobState.TIMEOUT,
    }
)
"""Base states of jobs that do not run any more, but for what COMPLETING cleans up."""

_NODE_STATES = {str(state): state for state in NodeState}
_JOB_STATES = {str(state): state for state in JobState}


def node_states(names: list[str]) -> tuple[frozenset[NodeState], frozenset[str]]:
    """Sort *names*, in any case, into the known states and the unknown words.

    A trailing ``*``, as older releases write it, means ``NOT_RESPONDING``.
    """
    known: set[NodeState] = set()
    unknown: set[str] = set()
    for name in names:
        word = name.strip().upper()
        if word.endswith("*"):
            word = word[:-1]
            known.add(NodeState.NOT_RESPONDING)
        if word in _NODE_STATES:
            known.add(_NODE_STATES[word])
        elif word:
            unknown.add(word)
    return frozenset(known), frozenset(unknown)


def job_states(names: list[str]) -> tuple[frozenset[JobState], frozenset[str]]:
    """Sort *names*, in any case, into the known states and the unknown words."""
    upper = {name.strip().upper() for name in names} - {""}
    known = frozenset(_JOB_STATES[word] for word in upper if word in _JOB_STATES)
    return known, frozenset(upper - _JOB_STATES.keys())
