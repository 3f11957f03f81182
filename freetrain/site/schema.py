"""The keys of ``freetrain.toml``: docs/job-file.md says the same; a test compares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.replay.settings import Solver
from freetrain.site import settings
from freetrain.site.kinds import named, numbers
from freetrain.toml.kind import one_of, seconds, whole, yes_or_no
from freetrain.toml.resources import gres, memory, word, words
from freetrain.toml.schema import Schema
from freetrain.toml.section import Key, Section
from freetrain.toml.text import path_from

if TYPE_CHECKING:
    from freetrain.toml.text import Places

MOST = 100_000
DAY_S = 86_400.0
LARGEST_NICE = 2_147_483_645
"""What Slurm takes at most."""


def schema(places: Places) -> Schema[settings.Site]:
    """Return the keys of a site's file whose paths start from *places*."""
    state = places.home / ".freetrain" if places.home else None
    return Schema(
        top=Section(
            "",
            settings.Site,
            (
                Key("state_directory", path_from(places), "state_directory", state),
                Key("launch_agent", path_from(places), "launch_agent"),
            ),
        ),
        tables=(
            Section("lease", settings.LeaseSettings, _lease()),
            Section("caps", settings.Caps, _caps()),
            Section("holes", settings.HoleSettings, _holes()),
            Section("planner", settings.PlannerSettings, _planner()),
            Section("starts", settings.StartSettings, _starts()),
        ),
    )


def _lease() -> tuple[Key, ...]:
    return (
        Key("partition", word("a partition"), "partition"),
        Key("qos", word("a quality of service"), "qos"),
        Key("account", word("an account"), "account"),
        Key("nice", whole(1, LARGEST_NICE), "nice"),
        Key("mode", one_of(settings.Mode), "mode"),
        Key("careful", yes_or_no(), "careful"),
        Key("exclusive", yes_or_no(), "exclusive"),
        Key("features", words("a feature"), "features"),
        Key("gres", gres(), "gres"),
        Key("memory", memory(), "memory_mib"),
        Key("cpus", whole(1, MOST), "cpus"),
        Key("shortest", seconds(60.0, 30 * DAY_S), "shortest_s"),
        Key("longest", seconds(60.0, 30 * DAY_S), "longest_s"),
    )


def _caps() -> tuple[Key, ...]:
    return (
        Key("leases", whole(0, MOST), "leases"),
        Key("requests_per_tick", whole(0, MOST), "requests_per_tick"),
        Key("rpcs_per_tick", whole(1, 1_000), "rpcs_per_tick"),
        Key("churn_per_hour", whole(0, MOST), "churn_per_hour"),
    )


def _holes() -> tuple[Key, ...]:
    return (
        Key("margin", seconds(0.0, DAY_S), "margin_s"),
        Key("epilog", seconds(0.0, DAY_S), "epilog_s"),
        Key("plan_age", seconds(0.0, DAY_S), "plan_age_s"),
    )


def _planner() -> tuple[Key, ...]:
    return (
        Key("t_fwd", seconds(1.0, DAY_S), "t_fwd_s"),
        Key("policy", one_of(settings.PolicyName), "policy"),
        Key("priority", named("a priority"), "priority"),
        Key("priority_settings", numbers("hysteresis"), "priority_settings"),
        Key("forecaster", named("a forecaster"), "forecaster"),
        Key("learn", yes_or_no(), "learn"),
        Key("profile", yes_or_no(), "profile"),
        Key("solver", one_of(Solver), "solver"),
        Key("solver_limit", seconds(0.1, 600.0), "solver_limit_s"),
    )


def _starts() -> tuple[Key, ...]:
    return (
        Key("pause_after", whole(1, 1_000), "pause_after"),
        Key("pause", seconds(1.0, 7 * DAY_S), "pause_s"),
    )
