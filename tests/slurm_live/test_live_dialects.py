"""Text and JSON of one cluster, read into the same records."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from slurm.backend import CommandLine
from slurm.json import JSON
from slurm.runner import SubprocessRunner
from tests.cluster.settings import NODES
from tests.cluster.waiting import wait_for

if TYPE_CHECKING:
    from slurm.holes import Snapshot
    from tests.slurm_live.sites import Site

pytestmark = pytest.mark.slurm

TOLD_OTHERWISE = {"reason", "preempt_mode", "is_default", "oversubscribe"}
"""Reasons are codes in JSON, sentences in text; until 24.11 JSON tells nothing of the
others, and in 26.05 it says of preemption CLUSTER_GLOBAL where text says CANCEL."""
FIRST_WITH_JSON = (23, 2)
RESERVATION = "reservationname=kept users=root starttime=now+60minutes duration=30"


def test_both_dialects_tell_the_same_of_nodes_jobs_partitions_and_reservations(
    site: Site,
) -> None:
    text = site.backend()
    if text.release().series < FIRST_WITH_JSON:
        pytest.skip("scontrol knows no --json before 23.02; RELEASE=24.11 does")
    json = CommandLine(
        SubprocessRunner(site.cluster.environ), user="root", dialect=JSON
    )
    site.others_running_job(6, minutes=10)
    job_id = site.others_job(8, 10, "--comment=a remark", "--job-name=whole")
    site.backend().submit(site.lease(site.script("exec sleep 600"), tasks=4))
    nodes = f"nodes={','.join(NODES)}"
    site.cluster.run("scontrol", "create", "reservation", *RESERVATION.split(), nodes)
    try:
        site.whole_look_with_plan(job_id)
        # Slurm goes on meanwhile: sooner or later nothing happens between the two.
        wait_for("two looks alike", lambda: not differences(text, json), limit_s=15)
    except TimeoutError:
        assert differences(text, json) == []
    finally:
        site.cluster.run("scontrol", "delete", "reservation", "kept")


def differences(first: CommandLine, second: CommandLine) -> list[str]:
    """What two looks tell differently, field by field."""
    one, other = first.snapshot(), second.snapshot()
    return [
        word
        for kind in ("nodes", "jobs", "partitions", "reservations")
        for word in _unlike(kind, _sorted(one, kind), _sorted(other, kind))
    ]


def _sorted(look: Snapshot, kind: str) -> list[object]:
    records = {
        "jobs": look.jobs,
        "nodes": look.nodes,
        "partitions": look.partitions,
        "reservations": look.reservations,
    }[kind]
    return sorted(records, key=str)


def _unlike(kind: str, ours: list[object], theirs: list[object]) -> list[str]:
    if len(ours) != len(theirs):
        return [f"{len(ours)} and {len(theirs)} {kind}"]
    return [
        f"{kind}: {name}: {getattr(a, name)!r} and {getattr(b, name)!r}"
        for a, b in zip(ours, theirs, strict=True)
        for name in (field.name for field in fields(a))  # type: ignore[arg-type]
        if name not in TOLD_OTHERWISE and getattr(a, name) != getattr(b, name)
    ]
