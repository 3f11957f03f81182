"""Limits and mode of leases at a site, and the Slurm job of a lease."""

from __future__ import annotations

import math
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from freetrain.agent.agent import TO_SWEEP
from freetrain.broker.lease import Intent, LeaseKey
from freetrain.broker.limits import Limits, Mode
from freetrain.config.site import LeaseMode, Site
from freetrain.errors import BadConfigurationError
from freetrain.launch.base import LEASE_MARK, WORLD_MARK
from freetrain.state.files import StateDir, lease_name, read_heartbeat
from freetrain.tick.leases import (
    grace_s,
    lease_script,
    limits_of,
    margin_s,
    may_stand_for,
    mode_of,
    request_for,
    shape_name,
    shape_of,
    write_lease_script,
)
from slurm.batch import sbatch_argv
from slurm.records import Gres, JobRecord, JobState, Partition, Requirement
from slurm.text import parse_config
from tests.cluster.processes import processes
from tests.cluster.waiting import wait_for
from tests.slurm.clusters import recorded
from tests.tick.tick_worlds import tick_world

SITE = Site(state_directory=Path("/state"))
CONFIG = parse_config(recorded("quiet", "config.txt"))
OURS = Partition(
    name="freetrain",
    nodes="n[1-8]",
    is_up=True,
    max_time_s=7_200.0,
    preempt_mode="CANCEL",
    grace_time_s=10.0,
)
MAIN = replace(OURS, name="main", priority_tier=10)


def limits(site: Site = SITE, ours: Partition = OURS, **changes: Any) -> Limits:  # noqa: ANN401
    """Return the limits, with *changes* of Slurm's configuration."""
    return limits_of(site, replace(CONFIG, **changes), ours, partitions=[ours, MAIN])


def site_with(part: str, **changes: object) -> Site:
    return structs.replace(
        SITE, **{part: structs.replace(getattr(SITE, part), **changes)}
    )


def test_every_setting_of_the_site_becomes_a_limit() -> None:
    lease = limits(site_with("lease", shortest_s=150.0, longest_s=3_600.0))
    caps = {"leases": 7, "leases_per_tick": 5, "rpcs_per_tick": 3}
    capped = limits(site_with("caps", churn_per_hour=9, **caps))
    starts = limits(site_with("starts", pause_after=2, pause_s=7_200.0))

    assert (lease.least_limit_min, lease.most_limit_min) == (3, 60)
    assert (capped.most_leases, capped.most_new_leases, capped.most_calls) == (7, 5, 3)
    assert (capped.most_churn, capped.churn_window_s) == (9, 3_600.0)
    assert capped.most_array_tasks == 5
    assert (starts.most_failed_starts, starts.pause_s) == (2, 7_200.0)
    assert starts.most_pause_s >= starts.pause_s


def test_slurm_caps_arrays_and_the_partition_caps_time_limits() -> None:
    refused = limits_of(SITE, CONFIG, OURS, partitions=[OURS], takes_arrays=False)

    assert limits(max_array_size=3).most_array_tasks == 3
    assert refused.most_array_tasks == 1
    assert limits().most_limit_min == 120
    assert limits(ours=replace(OURS, max_time_s=math.inf)).most_limit_min == 240


@pytest.mark.parametrize(
    ("config", "ours", "other", "mode"),
    [
        ({}, {}, {}, Mode.PREEMPT),
        ({"preempt_type": "preempt/none"}, {}, {}, Mode.YIELD),
        ({"preempt_type": "preempt/qos"}, {}, {}, Mode.YIELD),
        ({}, {"preempt_mode": "OFF"}, {}, Mode.YIELD),
        ({}, {"preempt_mode": "GANG,SUSPEND"}, {}, Mode.YIELD),
        ({}, {"preempt_mode": "REQUEUE"}, {}, Mode.PREEMPT),
        ({}, {}, {"priority_tier": 1}, Mode.YIELD),
        ({}, {}, {"priority_tier": 1, "nodes": "m[1-8]"}, Mode.PREEMPT),
    ],
)
def test_slurm_makes_room_only_where_it_does_so_for_everybody(
    config: dict[str, object],
    ours: dict[str, object],
    other: dict[str, object],
    mode: Mode,
) -> None:
    set_up = replace(CONFIG, **config)  # type: ignore[arg-type]
    partition = replace(OURS, **ours)  # type: ignore[arg-type]
    beside = replace(MAIN, **other)  # type: ignore[arg-type]
    found = mode_of(SITE, set_up, partition, partitions=[partition, beside])
    assert found is mode


def test_the_mode_that_the_site_sets_counts() -> None:
    assert limits(site_with("lease", mode=LeaseMode.YIELD)).mode is Mode.YIELD


def test_holes_are_left_early_enough_for_overrun_kill_and_epilog() -> None:
    own = site_with("holes", margin_s=45.0, epilog_s=8.0)
    late = replace(OURS, over_time_limit_s=60.0)

    assert margin_s(SITE, CONFIG, OURS) == CONFIG.kill_wait_s
    assert margin_s(SITE, CONFIG, late) == CONFIG.kill_wait_s + 60.0
    assert margin_s(own, CONFIG, late) == 53.0
    assert grace_s(CONFIG, OURS, Mode.PREEMPT) == 10.0 + CONFIG.kill_wait_s


def test_a_lease_that_yields_must_be_gone_before_a_tick_cancels_it() -> None:
    slow, quick = (replace(CONFIG, kill_wait_s=wait_s) for wait_s in (30.0, 5.0))

    assert grace_s(slow, OURS, Mode.YIELD) == Limits().claim_patience_s
    assert grace_s(quick, OURS, Mode.YIELD) == 5.0


REQUIREMENTS = st.builds(
    Requirement,
    partition=st.sampled_from(["a", "b", "a b"]),
    features=st.frozensets(st.sampled_from("fg"), max_size=2),
    gres=st.lists(
        st.builds(Gres, st.just("gpu"), st.sampled_from(["", "a"]), st.integers(1, 2)),
        max_size=2,
    ).map(tuple),
    memory_mib=st.integers(0, 2),
    cpus=st.integers(0, 2),
    exclusive=st.booleans(),
)


@given(one=REQUIREMENTS, other=REQUIREMENTS)
def test_two_requirements_have_one_name_only_if_they_ask_the_same(
    one: Requirement, other: Requirement
) -> None:
    def asked(of: Requirement) -> tuple[object, ...]:
        gres = sorted((g.name, g.kind, g.count) for g in of.gres)
        return (of.partition, of.features, gres, of.memory_mib, of.cpus, of.exclusive)

    assert (shape_name(one) == shape_name(other)) == (asked(one) == asked(other))


GPUS = (Gres("gpu", "a100", 2),)
WHOLE = Requirement(partition="freetrain", gres=GPUS)
PIECE = replace(WHOLE, cpus=4, memory_mib=4_000, exclusive=False)
OF_WHOLE = {"least_cpus": 1, "least_memory_mib": 0}
OF_PIECE = {"least_cpus": 4, "least_memory_mib": 4_000}


@pytest.mark.parametrize("written", ["gres:gpu:a100:2", "gres/gpu:a100:2"])
@pytest.mark.parametrize(
    ("asked", "shown"), [(WHOLE, OF_WHOLE), (PIECE, OF_PIECE)], ids=["whole", "piece"]
)
def test_the_shape_of_a_lease_is_found_again_from_what_slurm_shows_of_it(
    asked: Requirement, shown: dict[str, int], written: str
) -> None:
    job = JobRecord(
        job_id=1,
        display_id="1",
        states=frozenset({JobState.RUNNING}),
        partitions=("freetrain",),
        gres_per_node=written,
        **shown,  # type: ignore[arg-type]
    )

    assert shape_of(job) == shape_name(asked)


@pytest.mark.parametrize("is_shared_site", [True, False])
def test_a_piece_is_asked_for_by_its_gpus_cpus_and_memory(
    tmp_path: Path, *, is_shared_site: bool
) -> None:
    site = site_with("lease", exclusive=not is_shared_site)
    intent = Intent(
        uuid=str(uuid4()),
        shape="",
        limit_min=5,
        deadline_s=600.0,
        tasks=1,
        created_s=0.0,
    )
    whole, piece = (
        sbatch_argv(request_for(site, StateDir(tmp_path), intent, asked, grace_s=5.0))
        for asked in (WHOLE, PIECE)
    )

    assert ("--exclusive" in whole) is not is_shared_site
    assert "--exclusive" not in piece
    assert {"--gres=gpu:a100:2", "--cpus-per-task=4", "--mem=4000M"} <= set(piece)


@pytest.mark.parametrize("status", [0, TO_SWEEP])
def test_no_path_breaks_out_of_the_lease_script(tmp_path: Path, status: int) -> None:
    odd = tmp_path / "a b'; touch broken; $(touch broken) \\ %j"
    odd.mkdir()
    world = tick_world(tmp_path)
    python = odd / "python"
    note = 'printf "<%s>" "$@" >> "$0.called"'
    is_guard = '[ -n "$FREETRAIN_LISTENER" ] && exit 0'
    python.write_text(f"#!/bin/sh\n{is_guard}\n{note}\nexit {status}\n")
    python.chmod(0o755)
    srun = odd / "srun"
    srun.write_text('#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\n"$@"\n')
    srun.chmod(0o755)
    environment = replace(
        world.environment, path=f"{odd}:/usr/bin:/bin", python=str(python)
    )
    site = structs.replace(SITE, state_directory=odd, launch_agent=odd / "agent")

    path = odd / "lease.sh"
    assert write_lease_script(path, lease_script(environment, site))
    assert not write_lease_script(path, lease_script(environment, site))
    subprocess.run([str(path), "u", "5", "15"], check=True, cwd=tmp_path)  # noqa: S603

    called = (odd / "python.called").read_text()
    run = ("-P", "-m", "freetrain.agent", str(odd), "u", "0", "5", "15")
    sweep = ("-P", "-m", "freetrain.agent", "sweep", str(odd), "u", "0")
    words = (*run, *sweep) if status else run  # what ended well left nothing
    assert called == "".join(f"<{word}>" for word in words)
    assert not list(tmp_path.rglob("broken"))
    assert path.stat().st_mode & 0o777 == 0o700
    text = path.read_text()
    assert f"FREETRAIN_LAUNCH_AGENT={shlex.quote(str(odd / 'agent'))}" in text


def test_what_slurm_kills_at_once_leaves_no_process(tmp_path: Path) -> None:
    """Without cgroups KILL reaches script and agent, and none that detached itself."""
    state = StateDir(tmp_path / "state")
    state.leases.mkdir(parents=True, mode=0o700)
    site = structs.replace(SITE, state_directory=state.path)
    usual = tick_world(tmp_path).environment
    environment = replace(usual, path=os.environ["PATH"], python=sys.executable)
    write_lease_script(state.lease_script, lease_script(environment, site))
    key = LeaseKey(str(uuid4()), 0)
    marks = {LEASE_MARK: lease_name(key), WORLD_MARK: "t/1"}
    words = [str(state.lease_script), key.uuid, "5", "15"]
    outside = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}

    with (
        subprocess.Popen(["sleep", "600"], env=marks) as stray,  # noqa: S607
        subprocess.Popen(words, env=outside) as script,  # noqa: S603 -- our own words
    ):
        beat = wait_for("the agent", lambda: read_heartbeat(state.lease(key).heartbeat))
        assert stray.poll() is None
        script.kill()
        os.kill(beat.pid, signal.SIGKILL)
        script.wait()

        assert stray.wait(60.0) == -signal.SIGTERM
        wait_for("the guard to end", lambda: not processes_with(str(state.path)))


def processes_with(text: str) -> list[list[str]]:
    return [argv for _, argv, _ in processes() if text in argv]


def test_a_path_that_no_script_can_name_is_refused(tmp_path: Path) -> None:
    environment = replace(tick_world(tmp_path).environment, path="/bin\n/evil")
    with pytest.raises(BadConfigurationError, match="No lease was asked for"):
        lease_script(environment, SITE)


def test_leases_find_the_libraries_of_the_python_that_ticks(tmp_path: Path) -> None:
    """They get no other variable of the tick or of the user's login."""
    usual = tick_world(tmp_path).environment
    assert "LD_LIBRARY_PATH" not in lease_script(usual, SITE)
    environment = replace(usual, libraries="/opt/python 3/lib")
    line = "export LD_LIBRARY_PATH='/opt/python 3/lib'\n"
    assert line in lease_script(environment, SITE)


def test_agents_are_as_patient_as_whoever_ticks_says(tmp_path: Path) -> None:
    usual = tick_world(tmp_path).environment
    hasty = replace(usual, agent_patience="silent_s=3,stuck_s='3; date'")
    assert "FREETRAIN_AGENT_PATIENCE" not in lease_script(usual, SITE)
    line = f"export FREETRAIN_AGENT_PATIENCE={shlex.quote(hasty.agent_patience)}\n"
    assert line in lease_script(hasty, SITE)


def test_a_lease_stands_for_one_that_asks_for_no_more_cpus_and_memory() -> None:
    gpus = (Gres("gpu", "a100", 2),)
    piece = Requirement(
        partition="cpus", gres=gpus, cpus=4, memory_mib=4000, exclusive=False
    )
    less = replace(piece, cpus=3, memory_mib=3995)
    unlike = (replace(piece, gres=(Gres("gpu", "a100", 4),)), replace(less, cpus=5))

    def stands_for(held: Requirement, asked: Requirement) -> bool:
        return may_stand_for(shape_name(held), shape_name(asked))

    assert stands_for(piece, less)
    assert stands_for(piece, replace(less, memory_mib=0))
    assert not stands_for(less, piece)
    assert not any(stands_for(piece, other) for other in unlike)
