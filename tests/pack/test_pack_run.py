"""Packs that really run: members come, end, fail, are stopped, and leave nothing."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from freetrain.elastic.files import Clock
from freetrain.pack.cpu_controllers import (
    PREFIX,
    own_cgroups,
    this_packer,
)
from freetrain.pack.pack import ControllerName
from freetrain.pack.run import pack_id, sweep
from tests.pack.packs import Stage, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ONCE = "[restart]\nattempts = 1\n"
SHORT = "print('step 1 loss 0.5', flush=True)"
FOR_EVER = "import time, sys\nprint('up', flush=True)\nwhile True: time.sleep(0.05)\n"
ELASTIC = """
import time
import numpy as np
from freetrain import elastic
with elastic.join(commit_every_s=0) as run:
    state = run.restore({"n": 0})
    for batch in run.batches(samples=100_000, global_batch=1, epochs=1):
        state["n"] += 1
        time.sleep(0.01)
        run.end_step(state, loss=1.0 / state["n"])
"""
BRIEF = ELASTIC.replace("100_000", "3")
PROGRESS = r"""
[progress]
format = "pattern"
pattern = 'step (?P<step>\d+) loss (?P<loss>.*)'
"""
REPORTS = """
import time
for i in range(400):
    time.sleep(0.01)
    print("step", i, "loss", {loss}, flush=True)
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    found = Stage(tmp_path)
    yield found
    for pack in found.packs:
        pack.kill()
        pack.wait()
        if pack.stdout is not None:
            pack.stdout.close()
    sweep(this_packer(pack_id(found.run)), Clock())
    assert not found.processes()


def log_of(stage: Stage, member: str, generation: int = 1) -> str:
    logs = stage.run.path / "members" / member / "logs"
    path = logs / f"{generation:010d}.log"
    return path.read_text() if path.exists() else ""


def groups_of(stage: Stage) -> list[str]:
    return [
        path.name
        for place in own_cgroups()
        for path in place.path.iterdir()
        if path.name.startswith(f"{PREFIX}{pack_id(stage.run)}")
    ]


def test_a_pack_is_finished_when_all_members_are(stage: Stage) -> None:
    stage.job("a", SHORT, more=PROGRESS)
    stage.job("b", SHORT, more=PROGRESS)
    code, said = stage.run_to_end('members = ["a.toml", "b.toml"]')
    assert code == 0, said
    assert stage.ends() == {"a": "finished", "b": "finished"}
    assert stage.outcome(1)["outcome"] == "finished"
    assert stage.outcome(1)["committed_step"] == 2
    assert '"step": 2' in stage.run.progress.read_text().splitlines()[-1]


def test_a_member_that_fails_lets_the_others_end_and_fails_the_pack(
    stage: Stage,
) -> None:
    stage.job("bad", "raise SystemExit(3)", more=ONCE)
    stage.job("good", f"import time; time.sleep(0.5)\n{SHORT}")
    code, _ = stage.run_to_end(
        'members = ["bad.toml", "good.toml"]', FREETRAIN_GENERATION="7"
    )
    assert code == 1
    assert stage.ends() == {"bad": "failed", "good": "finished"}
    assert stage.outcome(7)["outcome"] == "failed"
    assert "bad" in stage.outcome(7)["message"]


def test_a_member_that_fails_is_started_again_a_few_times_and_then_says_why(
    stage: Stage,
) -> None:
    stage.job(
        "bad", "print('no data')\nraise SystemExit(3)", more='[restart]\nwait = "0.2s"'
    )
    stage.job("good", SHORT)
    code, said = stage.run_to_end('members = ["bad.toml", "good.toml"]')

    assert code == 1
    assert [said.count(f"bad started, generation {k}") for k in (1, 2, 3)] == [1, 1, 1]
    assert "bad is started again in 0.2 s" in said
    assert "bad is started again in 0.4 s" in said
    assert said.count("bad started") == 3
    assert "bad failed 3 times: no data" in stage.outcome(1)["message"]
    line = stage.record()["members"]["bad"]
    assert (line["end"], line["failures"], line["again_s"]) == ("failed", 3, None)


def test_a_member_that_does_well_the_next_time_fails_no_pack(stage: Stage) -> None:
    flag = stage.folder / "flag"
    once = f"import pathlib\nflag = pathlib.Path({str(flag)!r})\n"
    stage.job(
        "a",
        f"{once}if not flag.exists():\n    flag.touch()\n    raise SystemExit(3)\n",
        more='[restart]\nwait = "0.2s"',
    )
    code, said = stage.run_to_end('members = ["a.toml"]')

    assert code == 0, said
    assert stage.ends() == {"a": "finished"}
    assert stage.outcome(1)["outcome"] == "finished"


def test_an_elastic_member_that_fails_before_it_begins_can_be_started_again(
    stage: Stage,
) -> None:
    flag = stage.folder / "flag"
    fails = f"""
import os, pathlib
from freetrain import elastic
flag = pathlib.Path({str(flag)!r})
if not flag.exists():
    flag.touch()
    os.environ["FREETRAIN_WORLD_SIZE"] = "2"  # refused, as its outcome says
"""
    stage.job("a", f"{fails}\n{BRIEF}", more='[restart]\nwait = "0.2s"')
    _, said = stage.run_to_end('members = ["a.toml"]')

    assert "a failed once: " in said
    assert stage.ends() == {"a": "finished"}, said


def test_the_next_generation_starts_only_those_that_are_not_over(stage: Stage) -> None:
    stage.job("done", SHORT)
    flag = stage.folder / "flag"
    stage.job(
        "twice",
        f"import pathlib, sys\nsys.exit(not pathlib.Path({str(flag)!r}).exists())",
        more=ONCE,
    )
    text = 'members = ["done.toml", "twice.toml"]'
    stage.end(stage.start(text))
    flag.touch()
    code, said = stage.run_to_end(text)
    assert code == 0, said
    assert "done started" not in said
    assert stage.ends() == {"done": "finished", "twice": "finished"}
    assert stage.outcome(2)["outcome"] == "finished"


@pytest.mark.parametrize("by_file", [True, False])
def test_asked_to_stop_it_asks_its_members_and_is_rescaled(
    stage: Stage, *, by_file: bool
) -> None:
    stage.job("elastic", ELASTIC)
    stage.job("plain", FOR_EVER)
    pack = stage.start('members = ["elastic.toml", "plain.toml"]')
    progress = stage.run.path / "members/elastic/run/progress.jsonl"
    until(lambda: progress.exists() and "loss" in progress.read_text())
    until(lambda: "up" in log_of(stage, "plain"))
    if by_file:
        stage.run.stop_request(1).touch()
    else:
        pack.send_signal(signal.SIGTERM)
    said = stage.end(pack)
    assert pack.returncode == 0, said
    assert stage.ends() == {"elastic": "stopped", "plain": "stopped"}
    assert stage.outcome(1)["outcome"] == "rescaled"
    outcome = stage.run.path / "members/elastic/run/outcomes/0000000001.json"
    assert '"rescaled"' in outcome.read_text()
    assert not stage.processes()


def test_a_member_that_does_not_stop_is_killed_in_time(stage: Stage) -> None:
    deaf = f"import signal\nsignal.signal(signal.SIGUSR2, signal.SIG_IGN)\n{FOR_EVER}"
    stage.job("deaf", deaf, more='[stop]\nkill_after = "1s"\n')
    pack = stage.start('members = ["deaf.toml"]')
    until(lambda: "up" in log_of(stage, "deaf"))
    pack.send_signal(signal.SIGTERM)
    stage.end(pack)
    assert stage.outcome(1)["outcome"] == "rescaled"
    assert not stage.processes()


def test_killed_for_not_stopping_in_time_a_member_has_not_failed_by_itself(
    stage: Stage,
) -> None:
    busy = ELASTIC.replace(
        "time.sleep(0.01)", "print('up', flush=True); time.sleep(99)"
    )
    stage.job("busy", busy, more='[stop]\nkill_after = "1s"\n')
    pack = stage.start('members = ["busy.toml"]')
    until(lambda: "up" in log_of(stage, "busy"))
    pack.send_signal(signal.SIGTERM)
    stage.end(pack)
    assert stage.outcome(1)["outcome"] == "rescaled"
    line = stage.record()["members"]["busy"]
    assert (line["end"], line["failures"]) == ("failed", 0)
    assert line["message"] == "signal 9, Killed; up"


def test_what_a_member_leaves_running_is_ended_with_it(stage: Stage) -> None:
    daemon = "[sys.executable, '-c', 'import time; time.sleep(600)']"
    stage.job(
        "parent",
        f"import subprocess, sys\nsubprocess.Popen({daemon}, start_new_session=True)\n",
    )
    code, said = stage.run_to_end('members = ["parent.toml"]')
    assert code == 0, said
    assert not stage.processes()


def test_a_trainer_put_into_the_inbox_joins_a_pack_that_runs(stage: Stage) -> None:
    (stage.folder / "inbox").mkdir()
    pack = stage.start('inbox = "inbox"\nstay = "600s"')
    (stage.folder / "inbox" / "broken.toml").write_text("name = ")
    stage.job("late", SHORT, to="inbox")
    until(lambda: stage.run.path.joinpath("pack.json").exists())
    until(lambda: stage.ends() == {"late": "finished"})
    stage.run.stop_request(1).touch()
    said = stage.end(pack)
    assert "broken.toml" in said
    assert stage.outcome(1)["outcome"] == "finished"  # nothing was left to stop


@pytest.mark.parametrize("means", ["auto", "duty-cycle"])
def test_a_killed_packer_is_cleaned_up_after_by_the_next(
    stage: Stage, means: str
) -> None:
    stage.job("a", FOR_EVER)
    stage.job("b", FOR_EVER)
    text = f'members = ["a.toml", "b.toml"]\nmeans = "{means}"\ncpus = 1'
    pack = stage.start(text)
    until(lambda: all("up" in log_of(stage, name) for name in "ab"))
    pack.kill()
    pack.communicate()
    left = stage.processes()
    assert len(left) == 2  # this is what is to be cleaned up
    second = stage.start(text)
    until(lambda: all("up" in log_of(stage, name, 2) for name in "ab"))
    assert not set(left) & set(stage.processes())
    second.send_signal(signal.SIGTERM)
    stage.end(second)
    assert not stage.processes()


def test_groups_of_a_killed_packer_are_removed_by_the_next(stage: Stage) -> None:
    stage.job("a", FOR_EVER)
    pack = stage.start('members = ["a.toml"]')
    until(lambda: "up" in log_of(stage, "a"))
    until((stage.run.path / "pack.json").exists)
    if stage.record()["means"] not in {
        ControllerName.CGROUP_V1,
        ControllerName.CGROUP_V2,
    }:
        pytest.skip("no control group can be written here")
    pack.kill()
    pack.communicate()
    (left,) = groups_of(stage)
    second = stage.start('members = ["a.toml"]')
    until(lambda: "up" in log_of(stage, "a", 2))
    assert left not in groups_of(stage)
    second.send_signal(signal.SIGTERM)
    stage.end(second)
    assert groups_of(stage) == []


def test_a_pack_that_a_later_one_follows_stops_and_says_so(stage: Stage) -> None:
    stage.job("a", FOR_EVER)
    pack = stage.start('members = ["a.toml"]')
    until(lambda: "up" in log_of(stage, "a"))
    (stage.run.generations / "0000000002.started").touch()
    stage.end(pack)
    assert pack.returncode == 0
    assert stage.outcome(1)["outcome"] == "superseded"
    assert not stage.processes()


def test_a_pack_launched_ahead_waits_for_the_one_before(stage: Stage) -> None:
    stage.job("a", FOR_EVER)
    text = 'members = ["a.toml"]'
    first = stage.start(text, FREETRAIN_GENERATION="1")
    until(lambda: "up" in log_of(stage, "a"))
    second = stage.start(text, FREETRAIN_GENERATION="2", FREETRAIN_AFTER="1")
    until(stage.run.ready(2).exists)
    assert len(stage.processes()) == 1
    stage.run.stop_request(1).touch()
    stage.end(first)
    until(lambda: "up" in log_of(stage, "a", 2))
    second.send_signal(signal.SIGTERM)
    stage.end(second)
    assert [stage.outcome(g)["outcome"] for g in (1, 2)] == ["rescaled", "rescaled"]


def test_a_member_is_no_rank_of_the_packs_own_world(stage: Stage) -> None:
    program = "import json, os; print(json.dumps(dict(os.environ)), flush=True)"
    stage.job("a", program)
    theirs = {
        "OMPI_COMM_WORLD_SIZE": "4",
        "PMIX_RANK": "1",
        "SLURM_JOB_ID": "7",
        "FREETRAIN_AFTER": "",
        "FREETRAIN_LEASE": "u-1",
        "FREETRAIN_WORLD": "t/1",
    }
    stage.end(stage.start('members = ["a.toml"]', **theirs))
    variables = json.loads(log_of(stage, "a"))
    assert not {
        name for name in variables if name.startswith(("OMPI_", "PMI", "SLURM_"))
    }
    assert variables["FREETRAIN_LEASE"] == "u-1"  # the agent sweeps by these
    assert variables["FREETRAIN_WORLD"] == "t/1"
    assert variables["FREETRAIN_WORLD_SIZE"] == "1"
    assert variables["FREETRAIN_RUN_DIR"].endswith("members/a/run")


def test_a_generation_that_was_taken_starts_nothing(stage: Stage) -> None:
    stage.job("a", SHORT)
    stage.end(stage.start('members = ["a.toml"]', FREETRAIN_GENERATION="1"))
    code, said = stage.run_to_end('members = ["a.toml"]', FREETRAIN_GENERATION="1")
    assert code == 1
    assert "a started" not in said
    assert stage.outcome(1)["outcome"] == "finished"


def test_a_program_that_is_not_there_fails_alone(stage: Stage) -> None:
    stage.job("a", SHORT)
    path = stage.folder / "none.toml"
    path.write_text(
        'name = "none"\ncommand = ["/no/such"]\nelastic = false\n[nodes]\nmax = 1\n'
        f"{ONCE}"
    )
    code, _ = stage.run_to_end('members = ["none.toml", "a.toml"]')
    assert code == 1
    assert stage.outcome(1)["outcome"] == "failed"
    assert stage.ends() == {"none": "failed", "a": "finished"}


def test_shares_go_by_growth_in_a_pack_that_runs(stage: Stage) -> None:
    stage.job("falls", REPORTS.format(loss="0.99**i"), more=PROGRESS)
    stage.job("flat", REPORTS.format(loss="10 if i < 5 else 1"), more=PROGRESS)
    code, said = stage.run_to_end(
        'members = ["falls.toml", "flat.toml"]\ninterval = "0.5s"'
    )
    assert code == 0, said
    assert "flat 25 % (completing" in said
    assert "falls 75 % (new" in said
