"""What the one-step run's answer means; pure, and the answer is not trusted."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from typing import TYPE_CHECKING

from freetrain.doctor.finding import Verdict, bad, ok, skipped, warn
from freetrain.toml.wording import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from freetrain.doctor.finding import Finding

RANKS = 2
_SKEW_S = 2.0
_SHOWN = 300
_RANK = re.compile(r"doctor-rank told=(\S+) found=(\S+)")


def look_at_answer(
    answer: Mapping[str, object], *, begun_s: float, ended_s: float
) -> Iterator[Finding]:
    """Yield what a compute node said of itself.

    Args:
        answer: What the job wrote.
        begun_s: This host's time before the job was submitted.
        ended_s: This host's time when the answer was read.
    """
    node = _text(answer, "node") or _text(answer, "host")
    yield ok("one-step run", f"ran on {node}, {ended_s - begun_s:.1f} s in all")
    yield _look_at_versions(answer, node)
    yield _look_at_state(answer, node)
    yield _look_at_clock(answer, node, begun_s=begun_s, ended_s=ended_s)
    yield _look_at_world(answer)
    yield _look_at_agent(answer)


def _look_at_versions(answer: Mapping[str, object], node: str) -> Finding:
    name = "versions there"
    here = ".".join(map(str, sys.version_info[:3]))
    ours = importlib.metadata.version("freetrain")
    there = (
        f"FreeTrain {_text(answer, 'freetrain')} on Python {_text(answer, 'python')}"
    )
    if there != f"FreeTrain {ours} on Python {here}":
        advice = f"{node} must run the same: install on a file system that it shares."
        return bad(name, f"{there}; here {ours} on {here}", advice)
    return ok(name, f"{there}, as here")


def _look_at_state(answer: Mapping[str, object], node: str) -> Finding:
    name = "state directory there"
    if _text(answer, "links") != Verdict.OK:
        advice = "Assignments need link(2) on compute nodes: use another file system."
        return bad(name, f"{node} sees it, but link(2) does not work there", advice)
    return ok(name, f"{node} sees it and can write; link(2) works")


def _look_at_clock(
    answer: Mapping[str, object], node: str, *, begun_s: float, ended_s: float
) -> Finding:
    """Compare clocks: the job began after we submitted and ended before we read."""
    name = "clock there"
    started, ended = answer.get("started_s"), answer.get("ended_s")
    if not isinstance(started, float) or not isinstance(ended, float):
        return skipped(name, "the job told no times")
    apart_s = max(begun_s - started, ended - ended_s, 0.0)
    seen = f"{node} is at least {apart_s:.1f} s apart from this host"
    if apart_s > _SKEW_S:
        return warn(name, seen, "Ask for NTP on the nodes; leases end by their clock.")
    return ok(name, f"no difference to {node} was seen")


def _look_at_world(answer: Mapping[str, object]) -> Finding:
    """Find whether mpirun, started as agents do, made one world of its ranks."""
    name = "MPI there"
    failed = _text(answer, "world_failed")
    if failed:
        return warn(name, failed, "Programs with other launchers need none.")
    said, status = _text(answer, "world_said"), answer.get("world_status")
    ranks = _RANK.findall(said)
    if status != 0 or len(ranks) != RANKS:
        ended = "did not end" if status is None else f"ended with {status}"
        advice = "Try the same by hand, with `srun` and `mpirun`, on a node."
        return bad(name, f"mpirun {ended}: {one_line(said)[-_SHOWN:]}", advice)
    sizes = {found for _, found in ranks}
    if sizes == {"none"}:
        return ok(name, f"mpirun started {RANKS} ranks; no mpi4py to try")
    if sizes != {str(RANKS)}:
        advice = "mpi4py is bound to another MPI than mpirun's; see `mpi4py` above."
        return bad(name, f"each rank saw a world of {', '.join(sizes)}", advice)
    return ok(name, f"mpirun started one world of {RANKS}, and mpi4py sees it so")


def _look_at_agent(answer: Mapping[str, object]) -> Finding:
    name = "launch agent"
    if "agent_reached" not in answer and "agent_failed" not in answer:
        return skipped(name, "no world was launched, so there was none to try")
    if answer.get("agent_reached") is not True:
        said = _text(answer, "agent_said") or _text(answer, "agent_failed")
        advice = (
            "Worlds cannot span leases. It uses `srun --jobid --overlap`; where that "
            "is forbidden, name another with launch_agent."
        )
        return bad(name, f"did not reach its node: {one_line(said)[-_SHOWN:]}", advice)
    return ok(name, "a step was started inside of the job by srun --jobid --overlap")


def _text(answer: Mapping[str, object], key: str) -> str:
    value = answer.get(key)
    return (
        one_line(value)
        if isinstance(value, str) and key != "world_said"
        else (value if isinstance(value, str) else "")
    )
