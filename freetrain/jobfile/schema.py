"""The keys of job files: docs/job-file.md says the same, and a test compares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.jobfile import aims, job
from freetrain.jobfile.kinds import deadline, environment, fields, metric, pattern
from freetrain.quality.outlook import Better
from freetrain.toml.kind import (
    number,
    one_of,
    positive,
    seconds,
    trainer_name,
    whole,
    yes_or_no,
)
from freetrain.toml.nodes import MOST_NODES, curve, sizes
from freetrain.toml.resources import gres, memory, word, words
from freetrain.toml.schema import Schema
from freetrain.toml.section import Key, Section
from freetrain.toml.text import argument, arguments, command, path_from

if TYPE_CHECKING:
    from freetrain.toml.text import Places

MOST_PROCESSES = 4_096
MOST_CPUS = 100_000
LONGEST_S = 3_650 * 86_400.0
MOST_HOOK_S = 60.0
"""Ticks wait for hooks, and others for ticks."""


def schema(places: Places) -> Schema[job.TrainerJob]:
    """Return the keys of a job file whose paths start from *places*."""
    return Schema(
        top=Section("", job.TrainerJob, _top(places)),
        tables=(
            Section("nodes", job.Nodes, _nodes()),
            Section("launch", job.Launch, _launch(places)),
            Section("work", job.Work, _work()),
            Section("checkpoint", job.Checkpoint, _checkpoint(places)),
            Section("stop", job.Stop, _stop()),
            Section("restart", job.Restart, _restart()),
            Section("progress", job.Progress, _progress(places)),
            Section("quality", aims.Quality, _quality()),
            Section("target", aims.Target, _target(places)),
            Section("costs", job.RescaleCosts, _costs()),
        ),
    )


def _top(places: Places) -> tuple[Key, ...]:
    return (
        Key("name", trainer_name(), "name"),
        Key("command", command(), "command"),
        Key("directory", path_from(places), "directory", places.folder),
        Key("environment", environment(), "environment"),
        Key("elastic", yes_or_no(), "elastic"),
        Key("logs", path_from(places), "logs"),
        Key("weight", positive(), "weight"),
        Key("order", one_of(job.Order), "order"),
        Key("scaling", curve("samples a second"), "scaling"),
        Key("deadline", deadline(LONGEST_S), "deadline"),
    )


def _nodes() -> tuple[Key, ...]:
    return (
        Key("min", whole(1, MOST_NODES), "min_nodes"),
        Key("max", whole(1, MOST_NODES), "max_nodes"),
        Key("sizes", sizes(range(1, MOST_NODES + 1)), "only"),
        Key("partition", word("a partition"), "partition"),
        Key("features", words("a feature"), "features"),
        Key("gres", gres(), "gres"),
        Key("memory", memory(), "memory_mib"),
        Key("cpus", whole(1, MOST_CPUS), "cpus"),
    )


def _launch(places: Places) -> tuple[Key, ...]:
    return (
        Key("launcher", one_of(job.Launcher), "launcher"),
        Key("processes_per_node", whole(1, MOST_PROCESSES), "processes_per_node"),
        Key("ahead", yes_or_no(), "ahead"),
        Key("spare", yes_or_no(), "spare"),
        Key("threads", whole(1, MOST_PROCESSES), "threads"),
        Key("executable", argument(), "executable"),
        Key("options", arguments(), "options"),
        Key("command", command(), "command"),
        Key("pack", path_from(places), "pack"),
    )


def _work() -> tuple[Key, ...]:
    return (
        Key("samples", positive(), "samples"),
        Key("epochs", whole(1, 10**9), "epochs"),
        Key("time_limit", seconds(1.0, LONGEST_S), "time_limit_s"),
    )


def _checkpoint(places: Places) -> tuple[Key, ...]:
    return (
        Key("path", path_from(places), "path"),
        Key("every", seconds(0.0, LONGEST_S), "every_s"),
    )


def _stop() -> tuple[Key, ...]:
    return (
        Key("signal", one_of(job.StopSignal), "signal"),
        Key("kill_after", seconds(1.0, 3_600.0), "kill_after_s"),
    )


def _restart() -> tuple[Key, ...]:
    return (
        Key("attempts", whole(0, 1_000), "attempts"),
        Key("wait", seconds(0.0, 86_400.0), "wait_s"),
    )


def _progress(places: Places) -> tuple[Key, ...]:
    return (
        Key("format", one_of(job.ProgressFormat), "form"),
        Key("file", path_from(places), "file"),
        Key("pattern", pattern(), "pattern"),
        Key("fields", fields(), "fields"),
    )


def _quality() -> tuple[Key, ...]:
    return (
        Key("metric", metric(), "metric"),
        Key("better", one_of(Better), "better"),
    )


def _target(places: Places) -> tuple[Key, ...]:
    return (
        Key("deliver", number(), "deliver"),
        Key("final", number(), "final"),
        Key("publish", path_from(places), "publish"),
        Key("hook", command(), "hook"),
        Key("hook_limit", seconds(1.0, MOST_HOOK_S), "hook_limit_s"),
    )


def _costs() -> tuple[Key, ...]:
    return tuple(
        Key(name, seconds(0.0, 86_400.0), f"{name}_s")
        for name in ("grow", "shrink", "start")
    )
