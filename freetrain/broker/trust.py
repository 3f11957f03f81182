"""Whether a look tells enough of Slurm's plan to take new holes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm.snapshot import Snapshot


def is_plan_known(
    snapshot: Snapshot, *, whole_s: float | None, max_age_s: float
) -> bool:
    """Tell whether the holes of *snapshot* can be trusted.

    A torn look may lack all plans, and then every idle node seems free. It is good
    enough if plans were carried into it, or if one not torn is recent: then there
    was nothing to carry.

    Args:
        snapshot: The look, with plans carried.
        whole_s: When the last look that was not torn was taken, Unix time; None
            for never.
        max_age_s: How long plans are carried.
    """
    if not snapshot.is_torn:
        return True
    if snapshot.carried.starts or snapshot.carried.hidden:
        return True
    return whole_s is not None and snapshot.time_s - whole_s <= max_age_s
