"""What one fragment works with, from the launcher's word and the program's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freetrain.elastic.clock import Clock
    from freetrain.elastic.launch import Launch
    from freetrain.elastic.run_dir import RunDir


@dataclass(frozen=True, slots=True)
class Setting:
    """What one fragment works with.

    Attributes:
        launch: What the launcher announced.
        run: The run's directory.
        commit_every_s: Time between two commits.
        progress_every_s: Least time between two progress lines.
        clock: The clocks to go by.
    """

    launch: Launch
    run: RunDir
    commit_every_s: float
    progress_every_s: float
    clock: Clock
