"""Generations and their endings, for tests that care about some of their values."""

from dataclasses import replace
from typing import Any

from freetrain.broker.lease import LeaseKey
from freetrain.state.files import (
    BROKER,
    AssignedLease,
    AssignmentFile,
    EndingKind,
    GenerationEnding,
)

_PLAIN = GenerationEnding(
    generation=1,
    ended=EndingKind.KILLED,
    was_asked=False,
    lost_lease=False,
    exit_code=0,
    step=0,
    committed_step=0,
    message="",
    started_s=0.0,
    ended_s=1.0,
    author="x-0",
)


def an_ending(generation: int, ended: EndingKind, **changes: Any) -> GenerationEnding:  # noqa: ANN401
    """An ending of *generation* after a second, without a failure or a request."""
    return replace(_PLAIN, generation=generation, ended=ended, **changes)


def a_lease(key: LeaseKey, node: str = "n1", job_id: int = 1) -> AssignedLease:
    return AssignedLease(key=key, job_id=job_id, display_id=str(job_id), node=node)


def an_assignment(
    generation: int,
    *members: AssignedLease,
    trainer: str = "t",
    author: str = BROKER,
    created_s: float = 0.0,
) -> AssignmentFile:
    return AssignmentFile(
        trainer=trainer,
        generation=generation,
        members=members,
        created_s=created_s,
        author=author,
        reason="",
    )
