"""Whether a tick looks ahead, and with what; cheap where it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.site.settings import PolicyName

if TYPE_CHECKING:
    from collections.abc import Callable

    from freetrain.tick.deserts import Deserts
    from freetrain.tick.foreseeing import Outlook
    from freetrain.tick.lookahead import Foresight
    from freetrain.tick.observe import Observed
    from freetrain.tick.run import Run
    from slurm.records import JobRecord


def look_ahead(
    run: Run,
    observed: Observed,
    deserts: Deserts,
    *,
    is_ours: Callable[[JobRecord], bool],
) -> tuple[Outlook | None, Foresight | None]:
    """Return what is expected of nodes and what plans by that; nothing elsewhere.

    Raises:
        StoreError: The state cannot be read.
        SolverUnavailableError: The solver asked for is not installed.
        UnreadableOutputError: Slurm's lists of nodes cannot be read.
    """
    if run.site.planner.policy is not PolicyName.LOOKAHEAD:
        return None, None
    # Imported here: forecasts need NumPy, and most sites' ticks none of them.
    from freetrain.tick.foreseeing import foresee, foresight  # noqa: PLC0415

    outlook = foresee(run, observed, is_ours=is_ours)
    return outlook, foresight(run, outlook, deserts)
