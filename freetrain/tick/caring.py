"""Care for those whom one job's end would let start: what a careful site asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.broker.caution import Caution, keep_free
from slurm.hostlist import expand

if TYPE_CHECKING:
    from collections.abc import Callable

    from freetrain.broker.caution import Care, Scene
    from freetrain.broker.claims import Claims
    from freetrain.broker.explain import HoleExplanation
    from freetrain.site.settings import Site
    from freetrain.tick.observe import Observed
    from slurm.records import JobRecord

LIMIT_S = 1.0
"""Last looks come as late as looks are quick; a second more lets more happen unseen."""


def careful_of(
    site: Site,
    observed: Observed,
    *,
    is_ours: Callable[[JobRecord], bool],
    clock: Callable[[], float],
) -> Callable[[Scene], Care] | None:
    """Return what says which nodes to keep leases off; None where nobody asks for it.

    Args:
        site: The site's settings.
        observed: The look.
        is_ours: Tells our own leases.
        clock: Seconds from any moment on.
    """
    if not site.lease.careful:
        return None
    until_s = clock() + LIMIT_S

    def care(scene: Scene) -> Care:
        # Where nobody waits it is not asked for, and nobody's nodes need be read.
        running = [
            frozenset(expand(job.nodes))
            for job in observed.snapshot.jobs
            if job.holds_nodes and not is_ours(job)
        ]
        caution = Caution(
            running,
            again_s=observed.config.bf_interval_s,
            longest_s=60.0 * observed.limits.most_limit_min,
            is_late=lambda: clock() > until_s,
        )
        return keep_free(scene, caution)

    return care


def refusal_of(why: HoleExplanation, claims: Claims) -> str:
    """Return for people why a hole cannot be planned with; empty where it can."""
    if why.node in claims.care.kept:
        return f"{why.refusal}: {claims.care.kept[why.node]}"
    return str(why.refusal or "")


def not_tried(claims: Claims) -> tuple[str, ...]:
    """Return for people what care there was no time for; nothing where there was."""
    if not claims.care.untried:
        return ()
    told = (
        f"careful: of the jobs that run {claims.care.untried} could not be tried, or "
        f"not to the end; where one ends early somebody may wait longer than a tick"
    )
    return (told,)
