"""What Slurm's settings mean: one finding for each trap that others fell into."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from freetrain.config.site import Caps, HoleSettings, LeaseMode, LeaseSettings, Site
from freetrain.doctor import checks
from freetrain.doctor.findings import CheckVerdict, Finding
from slurm.records import ClusterConfig, Partition
from slurm.text import parse_config
from tests.slurm_library.clusters import recorded

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


def config(**changes: object) -> ClusterConfig:
    return replace(CONFIG, **changes)  # type: ignore[arg-type] # its own fields


def scheduling(parameters: Mapping[str, str]) -> list[Finding]:
    return list(checks.look_at_backfill(config(scheduler_parameters=parameters)))


def mode(**changes: object) -> list[Finding]:
    ours = replace(OURS, **changes)  # type: ignore[arg-type] # its own fields
    return list(checks.look_at_mode(SITE, CONFIG, ours, (MAIN, ours)))


def test_the_partition_is_the_one_named_or_the_default() -> None:
    default = replace(MAIN, is_default=True)
    unnamed = structs.replace(SITE, lease=LeaseSettings())

    assert checks.partition_of(SITE, (default, OURS)) == OURS
    assert checks.partition_of(unnamed, (default, OURS)) == default
    assert checks.partition_of(unnamed, (MAIN, OURS)) is None


def test_no_partition_is_bad_and_the_others_are_named() -> None:
    found = checks.look_at_partition(SITE, None, (MAIN,))

    assert found.verdict is CheckVerdict.BAD
    assert "'freetrain'" in found.seen
    assert "main" in found.seen


@pytest.mark.parametrize("change", [{"is_up": False}, {"max_time_s": 60.0}])
def test_a_partition_that_takes_no_leases_is_bad(change: dict[str, object]) -> None:
    ours = replace(OURS, **change)  # type: ignore[arg-type] # its own fields

    found = checks.look_at_partition(SITE, ours, (ours,))

    assert found.verdict is CheckVerdict.BAD
    assert found.advice
    assert checks.look_at_partition(SITE, OURS, (OURS,)).verdict is CheckVerdict.OK


def test_leases_that_slurm_takes_away_with_a_grace_time_are_well() -> None:
    (found, grace) = mode()

    assert (found.verdict, grace.verdict) == (CheckVerdict.OK, CheckVerdict.OK)
    assert "preempt" in found.seen


@pytest.mark.parametrize("grace_s", [0.0, 3600.0])
def test_a_grace_time_of_nothing_or_of_an_hour_is_warned_of(grace_s: float) -> None:
    (_, grace) = mode(grace_time_s=grace_s)

    assert grace.verdict is CheckVerdict.WARN


def test_giving_way_by_ourselves_costs_others_a_tick() -> None:
    (found,) = mode(preempt_mode="OFF")

    assert found.verdict is CheckVerdict.WARN
    assert "yield" in found.seen
    assert "one tick" in found.advice


def test_a_mode_that_was_asked_for_is_the_mode() -> None:
    asked = structs.replace(
        SITE, lease=structs.replace(SITE.lease, mode=LeaseMode.YIELD)
    )

    (found,) = checks.look_at_mode(asked, CONFIG, OURS, (MAIN, OURS))

    assert "mode = yield" in found.seen


def test_complete_wait_with_an_epilog_is_told_with_what_it_cost_others() -> None:
    both = config(complete_wait_s=20.0, has_epilog=True)

    found = checks.look_at_endings(SITE, both)

    assert found.verdict is CheckVerdict.WARN
    assert "7.6 s" in found.advice
    assert "churn_per_hour" in found.advice
    waiting = config(complete_wait_s=20.0, has_epilog=False)
    assert checks.look_at_endings(SITE, waiting).verdict is CheckVerdict.OK


def test_an_epilog_of_unknown_length_is_asked_for() -> None:
    found = checks.look_at_endings(SITE, config(has_epilog=True))
    known = structs.replace(SITE, holes=HoleSettings(epilog_s=8.0))

    assert "[holes] epilog" in found.advice
    assert checks.look_at_endings(known, config(has_epilog=True)).advice == ""


def test_without_backfill_there_are_no_ends_of_holes() -> None:
    (found,) = checks.look_at_backfill(config(scheduler_type="sched/builtin"))

    assert found.verdict is CheckVerdict.WARN


@pytest.mark.parametrize(
    "parameters",
    [
        {"bf_min_prio_reserve": "1000"},
        {"bf_max_job_test": "50"},
        {"bf_max_job_user": "10"},
        {"bf_one_resv_per_job": ""},
    ],
)
def test_parameters_that_hide_plans_are_named(parameters: dict[str, str]) -> None:
    (_, found) = scheduling(parameters)

    assert found.verdict is CheckVerdict.WARN
    assert next(iter(parameters)) in found.seen


@pytest.mark.parametrize(
    "parameters", [{}, {"bf_max_job_test": "500"}, {"bf_min_prio_reserve": "0"}]
)
def test_parameters_that_hide_nothing_are_no_matter(parameters: dict[str, str]) -> None:
    (_, found) = scheduling(parameters)

    assert found.verdict is CheckVerdict.OK


def test_hidden_jobs_are_warned_of() -> None:
    hidden = checks.look_at_privacy(config(private_data=("jobs", "usage")))

    assert hidden.verdict is CheckVerdict.WARN
    assert checks.look_at_privacy(config(private_data=("usage",))).verdict == "ok"


def test_small_arrays_mean_more_requests() -> None:
    assert checks.look_at_arrays(SITE, config(max_array_size=1)).verdict == "warn"
    several = checks.look_at_arrays(SITE, config(max_array_size=10))
    assert "several arrays" in several.seen
    few = structs.replace(SITE, caps=Caps(requests_per_tick=5))
    assert checks.look_at_arrays(few, config(max_array_size=10)).seen == "10"


def test_a_partitions_own_overrun_counts_before_the_clusters() -> None:
    lax = config(over_time_limit_s=600.0)

    assert checks.look_at_overrun(lax, OURS).verdict is CheckVerdict.WARN
    strict = replace(OURS, over_time_limit_s=0.0)
    assert checks.look_at_overrun(lax, strict).verdict is CheckVerdict.OK


def test_leases_that_share_nodes_must_say_how_many_processors() -> None:
    shared = structs.replace(SITE, lease=structs.replace(SITE.lease, exclusive=False))
    sized = structs.replace(shared, lease=structs.replace(shared.lease, cpus=4))

    assert "--mem=0" in checks.look_at_nodes(SITE, CONFIG).seen
    assert checks.look_at_nodes(shared, CONFIG).verdict is CheckVerdict.WARN
    assert checks.look_at_nodes(sized, CONFIG).verdict is CheckVerdict.OK


def test_a_nice_that_fair_share_outweighs_is_warned_of() -> None:
    fair = config(priority_type="priority/multifactor")
    nicer = structs.replace(SITE, lease=structs.replace(SITE.lease, nice=1_000_000))

    assert checks.look_at_priority(SITE, CONFIG, OURS).verdict is CheckVerdict.OK
    assert checks.look_at_priority(SITE, fair, OURS).verdict is CheckVerdict.WARN
    assert checks.look_at_priority(nicer, fair, OURS).verdict is CheckVerdict.OK
