"""What Slurm's settings mean: one finding for each trap."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from freetrain.broker.limits import Mode
from freetrain.config.site import Caps, HoleSettings, LeaseMode, LeaseSettings, Site
from freetrain.doctor.checks import (
    look_at_arrays,
    look_at_backfill,
    look_at_endings,
    look_at_fitting,
    look_at_mode,
    look_at_nodes,
    look_at_overrun,
    look_at_partition,
    look_at_pieces,
    look_at_priority,
    look_at_privacy,
    partition_of,
)
from freetrain.doctor.findings import Finding
from slurm.records import ClusterConfig, Node, NodeState, Partition
from slurm.text import parse_config
from tests.slurm.clusters import recorded

SITE = Site(state_directory=Path("/s"), lease=LeaseSettings(partition="freetrain"))
CONFIG = parse_config(recorded("busy", "config.txt"))
MAIN = Partition("main", "n[1-8]", is_up=True, max_time_s=86_400, priority_tier=10)
OURS = Partition(
    "freetrain",
    "n[1-8]",
    is_up=True,
    max_time_s=14_400,
    preempt_mode="CANCEL",
    grace_time_s=10.0,
)


def cluster(**changes: object) -> ClusterConfig:
    return replace(CONFIG, **changes)  # type: ignore[arg-type] # its own fields


def ours(**changes: object) -> Partition:
    return replace(OURS, **changes)  # type: ignore[arg-type] # its own fields


def site(**lease: object) -> Site:
    return structs.replace(SITE, lease=structs.replace(SITE.lease, **lease))


SHARING = site(exclusive=False)
WHOLE = ours(oversubscribe="EXCLUSIVE")


def mode(
    partition: Partition, asked: Site = SITE, config: ClusterConfig = CONFIG
) -> list[Finding]:
    return list(look_at_mode(asked, config, partition, (MAIN, partition)))


def grace(seconds: float) -> Finding:
    (_, found) = mode(ours(grace_time_s=seconds))
    return found


def hidden_plans(**parameters: str) -> Finding:
    (_, found) = look_at_backfill(cluster(scheduler_parameters=parameters))
    return found


CONFINED = cluster(
    confines=frozenset({"cpus", "memory", "devices"}),
    select_type_parameters="CR_CORE_MEMORY",
)
WAITS = {"complete_wait_s": 20.0}
EPILOG = {"has_epilog": True}
FAIR = cluster(priority_type="priority/multifactor")
LAX = cluster(over_time_limit_s=600.0)
KNOWN = structs.replace(SITE, holes=HoleSettings(epilog_s=8.0))
BY_QOS = cluster(preempt_type="preempt/qos")
NODES = (
    Node("n1", frozenset({NodeState.ALLOCATED}), partitions=("freetrain",)),
    Node("n2", frozenset({NodeState.IDLE, NodeState.DRAIN}), partitions=("freetrain",)),
)
FEW = structs.replace(SITE, caps=Caps(leases_per_tick=5))


def privacy(mode: Mode | None, *hidden: str, sees_all: bool = False) -> Finding:
    kinds = hidden or ("jobs", "u")
    sees_all |= "jobs" not in kinds
    return look_at_privacy(cluster(private_data=kinds), mode, sees_all=sees_all)


@pytest.mark.parametrize(
    ("look", "verdict", "said"),
    [
        (
            lambda: look_at_partition(SITE, None, (MAIN,)),
            "bad",
            ["'freetrain'", "main"],
        ),
        (lambda: look_at_partition(SITE, ours(is_up=False), (OURS,)), "bad", ["Ask"]),
        (lambda: look_at_partition(SITE, ours(max_time_s=60.0), ()), "bad", ["Make"]),
        (lambda: look_at_partition(SITE, OURS, (OURS,)), "ok", []),
        (lambda: mode(OURS)[0], "ok", ["preempt"]),
        (lambda: mode(OURS, site(mode=LeaseMode.YIELD))[0], "warn", ["mode = yield"]),
        (lambda: mode(ours(preempt_mode="OFF"))[0], "warn", ["yield", "one tick"]),
        (lambda: mode(OURS, site(mode=LeaseMode.PREEMPT))[0], "ok", ["preempt"]),
        (
            lambda: mode(ours(preempt_mode="OFF"), site(mode=LeaseMode.PREEMPT))[0],
            "bad",
            ["wait for leases", "auto"],
        ),
        (
            lambda: mode(OURS, site(mode=LeaseMode.PREEMPT), BY_QOS)[0],
            "warn",
            ["by your setting", "qos"],
        ),
        (lambda: look_at_fitting(SITE, OURS, NODES), "ok", ["1 of the 2"]),
        (lambda: look_at_fitting(SITE, OURS, NODES[1:]), "warn", ["0 of the 1"]),
        (lambda: look_at_fitting(SITE, MAIN, NODES), "bad", ["no node of main"]),
        (
            lambda: look_at_fitting(site(features=("a100",)), OURS, NODES),
            "bad",
            ["features"],
        ),
        (lambda: grace(10.0), "ok", []),
        (lambda: grace(0.0), "warn", ["killed at once"]),
        (lambda: grace(3600.0), "warn", ["that long"]),
        (lambda: look_at_endings(SITE, cluster(**WAITS, has_epilog=False)), "ok", []),
        (
            lambda: look_at_endings(SITE, cluster(**WAITS, **EPILOG)),
            "warn",
            ["7.6 s", "churn_per_hour"],
        ),
        (lambda: look_at_endings(SITE, cluster(**EPILOG)), "warn", ["[holes] epilog"]),
        (lambda: look_at_endings(KNOWN, cluster(**EPILOG)), "ok", []),
        (
            lambda: [*look_at_backfill(cluster(scheduler_type="sched/builtin"))][0],  # noqa: RUF015
            "warn",
            ["no job has a planned start"],
        ),
        (lambda: hidden_plans(bf_min_prio_reserve="1000"), "warn", ["min_prio"]),
        (lambda: hidden_plans(bf_max_job_test="50"), "warn", ["max_job_test"]),
        (lambda: hidden_plans(bf_max_job_user="10"), "warn", ["max_job_user"]),
        (lambda: hidden_plans(bf_max_job_assoc="10"), "warn", ["max_job_assoc"]),
        (
            lambda: hidden_plans(bf_job_part_count_reserve="1"),
            "warn",
            ["count_reserve"],
        ),
        (
            lambda: [*look_at_backfill(CONFIG, pending=2_000)][1],
            "warn",
            ["bf_max_job_test=500 (2000 jobs wait)"],
        ),
        (lambda: hidden_plans(bf_one_resv_per_job=""), "warn", ["one_resv"]),
        (hidden_plans, "ok", []),
        (lambda: hidden_plans(bf_max_job_test="500"), "ok", []),
        (lambda: hidden_plans(bf_min_prio_reserve="0"), "ok", []),
        (lambda: privacy(Mode.PREEMPT), "warn", ["keep preempt mode"]),
        (lambda: privacy(None), "warn", []),
        (lambda: privacy(Mode.YIELD), "bad", ["would wait for hours", "preempts"]),
        (lambda: privacy(Mode.YIELD, sees_all=True), "ok", []),
        (lambda: privacy(Mode.YIELD, "usage"), "ok", []),
        (lambda: look_at_arrays(SITE, cluster(max_array_size=1)), "warn", []),
        (lambda: look_at_arrays(SITE, cluster(max_array_size=10)), "ok", ["several"]),
        (lambda: look_at_arrays(FEW, cluster(max_array_size=10)), "ok", ["10"]),
        (lambda: look_at_overrun(LAX, OURS), "warn", []),
        (lambda: look_at_overrun(LAX, ours(over_time_limit_s=0.0)), "ok", []),
        (lambda: look_at_nodes(SITE, CONFIG, OURS), "ok", ["--mem=0"]),
        (lambda: look_at_nodes(SHARING, CONFIG, OURS), "warn", ["one CPU"]),
        (lambda: look_at_nodes(SHARING, CONFIG, WHOLE), "ok", ["whole nodes"]),
        (
            lambda: look_at_nodes(SHARING, cluster(select_type="select/linear"), OURS),
            "ok",
            [],
        ),
        (
            lambda: look_at_nodes(site(exclusive=False, cpus=4), CONFIG, OURS),
            "warn",
            ["4 CPUs"],
        ),
        (lambda: look_at_pieces(CONFINED, OURS, are_used=True), "ok", ["GPUs"]),
        (lambda: look_at_pieces(CONFIG, OURS, are_used=False), "ok", ["none are"]),
        (
            lambda: look_at_pieces(CONFIG, OURS, are_used=True),
            "warn",
            ["CPUs and memory and GPUs", "ConstrainCores=yes and ConstrainRAM"],
        ),
        (
            lambda: look_at_pieces(
                replace(CONFINED, confines=frozenset({"cpus", "devices"})),
                OURS,
                are_used=True,
            ),
            "warn",
            ["part of memory:", "ConstrainRAMSpace=yes in"],
        ),
        (
            lambda: look_at_pieces(CONFINED, WHOLE, are_used=True),
            "warn",
            ["get whole nodes"],
        ),
        (
            lambda: look_at_pieces(
                replace(CONFINED, select_type_parameters="CR_CORE"), OURS, are_used=True
            ),
            "warn",
            ["memory is not counted"],
        ),
        (lambda: look_at_priority(SITE, CONFIG, OURS), "ok", []),
        (lambda: look_at_priority(SITE, FAIR, OURS), "warn", []),
        (lambda: look_at_priority(site(nice=0), CONFIG, OURS), "warn", ["nice"]),
        (lambda: look_at_priority(SITE, CONFIG, MAIN, (MAIN, OURS)), "warn", ["befor"]),
        (lambda: look_at_priority(SITE, CONFIG, OURS, (MAIN, OURS)), "ok", []),
        (lambda: look_at_priority(site(nice=1_000_000), FAIR, OURS), "ok", []),
    ],
)
def test_each_setting_is_judged_and_each_trap_has_advice(
    look: Callable[[], Finding], verdict: str, said: list[str]
) -> None:
    found = look()

    assert found.verdict == verdict
    assert bool(found.advice) == (verdict != "ok")
    assert all(part in f"{found.seen} {found.advice}" for part in said)


def test_the_partition_is_the_one_named_or_the_default() -> None:
    default = replace(MAIN, is_default=True)
    unnamed = structs.replace(SITE, lease=LeaseSettings())

    assert partition_of(SITE, (default, OURS)) == OURS
    assert partition_of(unnamed, (default, OURS)) == default
    assert partition_of(unnamed, (MAIN, OURS)) is None
