"""Packs that really run: members come, end, fail, are stopped, and leave nothing."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from freetrain.pack.cpu_controllers import PREFIX, own_cgroups
from freetrain.pack.pack import MemberRecord, PackRecord, write_record
from freetrain.pack.run import pack_id
from tests.pack.packs import PROGRESS, Stage, staged, until

SHORT = "print('step 1 loss 0.5', flush=True)"
FOR_EVER = "import time, sys\nprint('up', flush=True)\nwhile True: time.sleep(0.05)\n"
DEAF = f"import signal\nsignal.signal(signal.SIGUSR2, signal.SIG_IGN)\n{FOR_EVER}"
DAEMON = """
import subprocess, sys
sleeps = [sys.executable, '-c', 'import time; time.sleep(600)']
subprocess.Popen(sleeps, start_new_session=True)
"""
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
BUSY = ELASTIC.replace("time.sleep(0.01)", "print('up', flush=True); time.sleep(99)")
FIRST_TIME = """
import os, pathlib, sys
flag = pathlib.Path(__file__ + ".flag")
is_first = not flag.exists()
flag.touch()
"""
REPORTS = """
import itertools, pathlib, time
for i in itertools.takewhile(
    lambda _: not pathlib.Path({over!r}).exists(), itertools.count()
):
    time.sleep(0.01)
    print("step", i, "loss", {loss}, flush=True)
"""
ONCE = "[restart]\nattempts = 1\n"
SOON = '[restart]\nwait = "0.2s"\n'
IMPATIENT = '[stop]\nkill_after = "1s"\n'


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with staged(tmp_path) as made:
        yield made


def pack_of(*names: str, more: str = "") -> str:
    return f"members = {json.dumps([f'{name}.toml' for name in names])}\n{more}"


def are_up(stage: Stage, names: str, generation: int = 1) -> bool:
    return all("up" in stage.log(name, generation) for name in names.split())


def groups_of(stage: Stage) -> list[str]:
    return [
        path.name
        for _, parent in own_cgroups()
        for path in parent.glob(f"{PREFIX}{pack_id(stage.run)}*")
    ]


@pytest.mark.parametrize("means", ["auto", "duty-cycle"])
def test_a_pack_is_finished_when_all_members_are_and_leaves_no_process(
    stage: Stage, means: str
) -> None:
    stage.job("a", SHORT, more=PROGRESS)
    stage.job("b", SHORT, more=PROGRESS)
    stage.job("parent", DAEMON)
    stage.job("diverged", ELASTIC.replace("time.sleep(0.01)", "run.stop_for_good('')"))

    more = f'means = "{means}"'
    code, said = stage.run_to_end(pack_of("a", "b", "parent", "diverged", more=more))

    assert code == 0, said
    ends = dict.fromkeys(("a", "b", "parent"), "finished") | {"diverged": "gave up"}
    assert stage.ends() == ends
    assert stage.outcome(1)["outcome"] == "finished"
    assert stage.outcome(1)["committed_step"] == 3
    assert '"step": 3' in stage.run.progress.read_text().splitlines()[-1]
    assert not stage.processes()


def test_members_that_fail_are_started_again_a_few_times_and_fail_the_pack(
    stage: Stage,
) -> None:
    stage.job("bad", "print('no data')\nraise SystemExit(3)", more=SOON)
    stage.job("good", SHORT)
    stage.job("none", SHORT, more=ONCE)
    path = stage.folder / "none.toml"
    path.write_text(path.read_text().replace("command = [", 'command = ["/no/such", '))

    code, said = stage.run_to_end(
        pack_of("bad", "good", "none"), FREETRAIN_GENERATION="7"
    )

    assert code == 1
    assert [said.count(f"bad started, generation {k}") for k in (7, 8, 9)] == [1, 1, 1]
    assert "bad is started again in 0.2 s" in said
    assert "bad is started again in 0.4 s" in said
    assert said.count("bad started") == 3
    assert stage.ends() == {"bad": "failed", "good": "finished", "none": "failed"}
    assert stage.outcome(7)["outcome"] == "failed"
    assert "bad failed 3 times: no data" in stage.outcome(7)["message"]
    line = stage.record()["members"]["bad"]
    assert (line["failures"], line["again_s"]) == (3, None)


def test_members_that_do_well_the_next_time_fail_no_pack(stage: Stage) -> None:
    refused = 'if is_first: os.environ["FREETRAIN_WORLD_SIZE"] = "2"\n'
    brief = ELASTIC.replace("100_000", "3")
    stage.job("plain", f"{FIRST_TIME}sys.exit(3 * is_first)", more=SOON)
    # It fails before it begins; its number is then taken, as its outcome says.
    stage.job("elastic", f"{FIRST_TIME}{refused}{brief}", more=SOON)

    code, said = stage.run_to_end(pack_of("plain", "elastic"))

    assert code == 0, said
    assert "elastic failed once: " in said
    assert stage.ends() == {"plain": "finished", "elastic": "finished"}
    assert stage.outcome(1)["outcome"] == "finished"


def test_a_member_that_sees_no_checkpoint_is_started_again_and_has_not_failed(
    stage: Stage,
) -> None:
    missing = "from freetrain.elastic.contract import CheckpointMissingError\n"
    unseen = "as run:\n    if is_first: raise CheckpointMissingError('not seen')\n"
    brief = ELASTIC.replace("100_000", "3").replace("as run:\n", unseen)
    # One failure would be its last.
    more = '[restart]\nattempts = 1\nwait = "0.2s"\n'
    stage.job("late", f"{FIRST_TIME}{missing}{brief}", more=more)

    code, said = stage.run_to_end(pack_of("late"))

    assert code == 0, said
    assert "late not started: CheckpointMissingError: not seen" in said
    assert "late is started again in 0.2 s" in said
    assert stage.record()["members"]["late"]["failures"] == 0
    assert stage.ends() == {"late": "finished"}


def test_the_next_generation_starts_only_members_that_are_not_over(
    stage: Stage,
) -> None:
    stage.job("done", SHORT)
    stage.job("twice", f"{FIRST_TIME}sys.exit(is_first)", more=ONCE)
    stage.run_to_end(pack_of("done", "twice"))

    code, said = stage.run_to_end(pack_of("done", "twice"))

    assert code == 0, said
    assert "done started" not in said
    assert stage.ends() == {"done": "finished", "twice": "finished"}
    assert stage.outcome(2)["outcome"] == "finished"


def test_a_generation_that_was_taken_starts_nothing(stage: Stage) -> None:
    stage.job("a", SHORT)
    stage.run_to_end(pack_of("a"), FREETRAIN_GENERATION="1")

    code, said = stage.run_to_end(pack_of("a"), FREETRAIN_GENERATION="1")

    assert code == 1
    assert "a started" not in said
    assert stage.outcome(1)["outcome"] == "finished"


@pytest.mark.parametrize("by_file", [True, False])
def test_asked_to_stop_it_asks_its_members_and_is_rescaled(
    stage: Stage, *, by_file: bool
) -> None:
    stage.job("elastic", ELASTIC)
    stage.job("plain", FOR_EVER)
    pack = stage.start(pack_of("elastic", "plain"))
    own = stage.run.path / "members/elastic/run"
    progress = own / "progress.jsonl"
    until(lambda: progress.exists() and "loss" in progress.read_text())
    until(lambda: are_up(stage, "plain"))

    if by_file:
        stage.run.stop_request(1).touch()
    else:
        pack.send_signal(signal.SIGTERM)
    said = stage.end(pack)

    assert pack.returncode == 0, said
    assert stage.ends() == {"elastic": "stopped", "plain": "stopped"}
    assert stage.outcome(1)["outcome"] == "rescaled"
    assert '"rescaled"' in (own / "outcomes/0000000001.json").read_text()
    assert not (stage.run.path / "members/plain/run/control").exists()
    assert not stage.processes()


def test_members_that_do_not_stop_in_time_are_killed_and_have_not_failed_by_themselves(
    stage: Stage,
) -> None:
    stage.job("deaf", DEAF, more=IMPATIENT)
    stage.job("busy", BUSY, more=IMPATIENT)
    pack = stage.start(pack_of("deaf", "busy"))
    until(lambda: are_up(stage, "deaf busy"))

    pack.send_signal(signal.SIGTERM)
    stage.end(pack)

    assert stage.outcome(1)["outcome"] == "rescaled"
    line = stage.record()["members"]["busy"]
    assert (line["end"], line["failures"]) == ("failed", 0)
    assert line["message"] == "signal 9, Killed; up"
    assert not stage.processes()


def test_a_trainer_put_into_the_inbox_joins_a_pack_that_runs(stage: Stage) -> None:
    (stage.folder / "inbox").mkdir()
    pack = stage.start('inbox = "inbox"\nstay = "600s"')
    (stage.folder / "inbox" / "broken.toml").write_text("name = ")
    stage.job("late", SHORT, to="inbox")
    until(lambda: bool(stage.record()) and stage.ends() == {"late": "finished"})

    stage.run.stop_request(1).touch()

    assert "broken.toml" in stage.end(pack)
    assert stage.outcome(1)["outcome"] == "finished"  # nothing was left to stop


@pytest.mark.parametrize("means", ["auto", "duty-cycle"])
def test_a_killed_packer_is_cleaned_up_after_by_the_next(
    stage: Stage, means: str
) -> None:
    stage.job("a", FOR_EVER)
    stage.job("b", FOR_EVER)
    text = pack_of("a", "b", more=f'means = "{means}"\ncpus = 1')
    pack = stage.start(text)
    until(lambda: are_up(stage, "a b") and bool(stage.record()))
    pack.kill()
    pack.communicate()
    left, groups = stage.processes(), groups_of(stage)
    assert len(left) == 2  # these are to be cleaned up
    assert len(groups) == stage.record()["means"].startswith("cgroup")

    second = stage.start(text)
    until(lambda: are_up(stage, "a b", 2))

    assert not set(left) & set(stage.processes())
    assert not set(groups) & set(groups_of(stage))
    second.send_signal(signal.SIGTERM)
    stage.end(second)
    assert not stage.processes()
    assert not groups_of(stage)


def test_a_pack_that_a_later_one_follows_stops_and_says_so(stage: Stage) -> None:
    stage.job("a", FOR_EVER)
    pack = stage.start(pack_of("a"))
    until(lambda: are_up(stage, "a"))

    (stage.run.generations / "0000000002.started").touch()
    stage.end(pack)

    assert pack.returncode == 0
    assert stage.outcome(1)["outcome"] == "superseded"
    assert not stage.processes()


def test_a_pack_launched_ahead_waits_for_the_one_before(stage: Stage) -> None:
    stage.job("a", FOR_EVER)
    first = stage.start(pack_of("a"), FREETRAIN_GENERATION="1")
    until(lambda: are_up(stage, "a"))
    second = stage.start(pack_of("a"), FREETRAIN_GENERATION="2", FREETRAIN_AFTER="1")
    until(stage.run.ready(2).exists)
    assert len(stage.processes()) == 1

    stage.run.stop_request(1).touch()
    stage.end(first)
    until(lambda: are_up(stage, "a", 2))
    second.send_signal(signal.SIGTERM)
    stage.end(second)

    assert [stage.outcome(g)["outcome"] for g in (1, 2)] == ["rescaled", "rescaled"]


def test_a_member_is_no_rank_of_the_packs_own_world(stage: Stage) -> None:
    stage.job("a", "import json, os; print(json.dumps(dict(os.environ)), flush=True)")
    theirs = {
        "OMPI_COMM_WORLD_SIZE": "4",
        "PMIX_RANK": "1",
        "SLURM_JOB_ID": "7",
        "FREETRAIN_AFTER": "",
        "FREETRAIN_LEASE": "u-1",
        "FREETRAIN_WORLD": "t/1",
    }

    stage.run_to_end(pack_of("a"), **theirs)

    variables = json.loads(stage.log("a"))
    assert not [n for n in variables if n.startswith(("OMPI_", "PMI", "SLURM_"))]
    assert variables["FREETRAIN_LEASE"] == "u-1"  # the agent sweeps by these
    assert variables["FREETRAIN_WORLD"] == "t/1"
    assert variables["FREETRAIN_WORLD_SIZE"] == "1"
    assert variables["FREETRAIN_RUN_DIR"].endswith("members/a/run")


def test_a_pack_whose_member_is_not_over_and_cannot_be_read_has_not_finished(
    stage: Stage,
) -> None:
    stage.run.path.mkdir(exist_ok=True)
    stopped = MemberRecord(arrived_s=0.0, ended_s=1.0, end="stopped", generation=1)
    write_record(stage.run, PackRecord(members={"m": stopped}))
    (stage.folder / "in").mkdir()

    code, said = stage.run_to_end('inbox = "in"')

    assert code != 0
    assert "m was stopped and not started again" in said


BY_GROWTH = 'interval = "0.5s"\nsharing = "flowcon"'


def test_shares_go_by_growth_in_a_pack_that_runs(stage: Stage) -> None:
    """They run until it is seen: how soon depends on the machine's other work."""
    over = stage.folder / "over"
    for name, loss in (("falls", "-(1.01**i)"), ("flat", "10 if i < 5 else 1")):
        program = REPORTS.format(loss=loss, over=str(over))
        stage.job(name, program, more=PROGRESS)

    pack = stage.start(pack_of("falls", "flat", more=BY_GROWTH))

    def is_seen() -> bool:
        shares = stage.record().get("shares", {})
        # Shares that would change by less than a twentieth stay as they were.
        return 0.0 < shares.get("flat", 0.0) < 0.25 * 1.06 and "falls" in shares

    until(is_seen)
    over.touch()
    said = stage.end(pack)
    assert pack.returncode == 0, said
    assert re.search(
        r"falls 7[345] % \(new .*flat 2[567] % \((watching|completing)", said
    )
