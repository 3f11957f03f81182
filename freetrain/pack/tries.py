"""How often a member that fails is started again, and after which pause; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freetrain.jobfile.job import TrainerJob
    from freetrain.pack.record import Line


def count_failure(
    line: Line, job: TrainerJob, *, committed_step: int, now_s: float
) -> None:
    """Count a failure of the member of *line*, and say when it is started again.

    Its ``[restart]`` holds as it does for a trainer that has nodes of its own
    (``agent.verdict``): failures in a row count, without a commit between them, and
    pauses double. Who has used up its attempts is started once more in each later
    generation of the pack, which may be on another node.

    Args:
        line: What is kept of the member; changed.
        job: What it is.
        committed_step: Steps that its newest checkpoint has, as far as it tells.
        now_s: When it failed, seconds of the pack's running time.
    """
    has_committed = committed_step > line.committed_step
    if has_committed or job.must_have_committed(now_s - line.started_s):
        line.failures = 0
    line.failures += 1
    line.committed_step = max(line.committed_step, committed_step)
    is_left = not job.restart.is_used_up(line.failures)
    line.again_s = now_s + job.restart.pause_s(line.failures) if is_left else None


def how_it_failed(line: Line) -> str:
    """Return how often a member failed, and why the last time."""
    times = "once" if line.failures == 1 else f"{line.failures} times"
    # Whoever does not stop in time is killed, which is counted for nothing.
    said = f"failed {times}" if line.failures else "failed"
    return f"{said}: {line.message}" if line.message else said
