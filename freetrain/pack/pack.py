"""What a pack is, as its user wrote it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from freetrain.priority.flowcon_state import DEFAULT_ALPHA
from freetrain.quality.outlook import Better

if TYPE_CHECKING:
    from pathlib import Path


class SharingName(StrEnum):
    """Who gets how much of the CPUs."""

    FLOWCON = "flowcon"  # by growth efficiency
    FAIR = "fair"  # all the same


class MeansName(StrEnum):
    """By what CPU shares are set."""

    AUTO = "auto"  # the first of the others that can be used
    CGROUP_V2 = "cgroup-v2"
    CGROUP_V1 = "cgroup-v1"
    AFFINITY = "affinity"  # whole CPUs
    DUTY_CYCLE = "duty-cycle"  # turns of a few milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """A pack as its user wrote it. All paths are absolute.

    Attributes:
        members: Job files of the trainers that are there from the beginning.
        inbox: A folder in which further job files may appear; None for none.
        stay_s: How long to wait for more when nothing is left to do.
        sharing: Who gets how much.
        interval_s: FlowCon's interval.
        alpha: FlowCon's threshold.
        metric: The metric that tells how a trainer grows.
        better: Which of its values are the good ones.
        means: By what shares are set.
        cpus: How many of the node's CPUs all members together may use; None for
            all that the pack may use itself.
    """

    members: tuple[Path, ...] = ()
    inbox: Path | None = None
    stay_s: float = 0.0
    sharing: SharingName = SharingName.FLOWCON
    interval_s: float = 30.0
    alpha: float = DEFAULT_ALPHA
    metric: str = "loss"
    better: Better = Better.LOWER
    means: MeansName = MeansName.AUTO
    cpus: int | None = None
