"""What a trainer that is a pack is made of: further job files, its members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.pack.file import read_pack
from freetrain.pack.intake import Files

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from freetrain.jobfile.job import TrainerJob


def members_of(job: TrainerJob, *, home: Path | None) -> tuple[TrainerJob, ...]:
    """Return the members that the pack of *job* has now; none where it is no pack.

    Files of its inbox that are no job files are passed over, as the pack does.

    Args:
        job: The trainer.
        home: What ``~`` stands for in paths.

    Raises:
        FreeTrainError: The pack file, or a job file that it names, cannot be used.
    """
    if job.launch.pack is None:
        return ()
    pack = read_pack(job.launch.pack, home=home)
    return Files(pack, home=home, say=_pass_over).arrivals()


def member_remarks(job: TrainerJob, members: Iterable[TrainerJob]) -> tuple[str, ...]:
    """Return what is no mistake in a member's job file, and may be one in a pack.

    Args:
        job: The pack.
        members: Its members.
    """
    limit_s = job.stop.kill_after_s
    slow = [one.name for one in members if one.stop.kill_after_s > limit_s]
    said = (
        f"{', '.join(slow)} may take longer to stop than the pack's [stop] kill_after, "
        f"{limit_s:g} s, and would be killed then"
    )
    return (said,) if slow else ()


def _pass_over(complaint: str) -> None:
    del complaint
