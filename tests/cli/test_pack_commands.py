"""submit, status and explain of a pack, as its user calls them."""

from pathlib import Path

import pytest

from freetrain.pack.pack import MemberRecord, PackRecord, member_folder, write_record
from freetrain.state.files import StateDir
from tests.cli.commands import at_home, refused, run, run_json
from tests.client.client_states import leave_checkpoint

PACK_JOB = """\
name = "small"

[nodes]
max = 1

[launch]
launcher = "pack"
pack = "pack.toml"
"""
MEMBER = 'name = "{}"\ncommand = "{}"\nelastic = false\n[nodes]\nmax = 1\n'


@pytest.fixture
def state() -> StateDir:
    made = at_home(PACK_JOB)
    Path("pack.toml").write_text('members = ["a.toml", "b.toml"]\n')
    for name in "ab":
        Path(f"{name}.toml").write_text(MEMBER.format(name, "python3 x.py"))
    return made


@pytest.fixture
def small(state: StateDir) -> StateDir:
    assert run("submit", "job.toml").code == 0
    return state


def stand(state: StateDir) -> None:
    """Let one of two members be finished, and the other train."""
    a = MemberRecord(arrived_s=0.0, ended_s=9.0, end="finished", steps=300, samples=900)
    b = MemberRecord(arrived_s=0.0, steps=1_200, samples=2_400.0)
    shares, members = {"a": 0.5, "b": 0.75}, {"a": a, "b": b}
    record = PackRecord(means="affinity", shares=shares, members=members)
    state.trainer("small").run.create()
    write_record(state.trainer("small").run, record)


def test_a_pack_is_submitted_as_any_trainer(tmp_path: Path, state: StateDir) -> None:
    shown = run_json("submit", "job.toml", "--dry-run")

    launch = shown["would_run"]["launch"]
    assert launch[-3:] == ["-m", "freetrain.pack", str(tmp_path / "pack.toml")]
    assert not any("launcher" in remark for remark in shown["remarks"])

    assert run("submit", "job.toml").code == 0
    kept = state.trainer("small").job.read_text()
    assert f'pack = "{tmp_path / "pack.toml"}"' in kept


def test_a_pack_is_refused_for_what_a_member_says(state: StateDir) -> None:
    Path("b.toml").write_text(MEMBER.format("b", "no-such-program"))
    assert "no-such-program" in refused("submit", "job.toml", code=78)

    Path("b.toml").write_text(MEMBER.format("a", "python3"))
    assert "has a trainer 'a'" in refused("submit", "job.toml", code=78)

    Path("b.toml").unlink()
    assert "b.toml" in refused("submit", "job.toml", code=66)
    assert not state.path.exists()

    assert run("submit", "job.toml", "--unchecked").code == 0


def test_a_member_that_stops_slower_than_its_pack_is_remarked(state: StateDir) -> None:
    slow = MEMBER.format("b", "python3 x.py") + '[stop]\nkill_after = "31s"\n'
    Path("b.toml").write_text(slow)

    said = run("submit", "job.toml")

    assert said.code == 0
    assert "b may take longer to stop than the pack's" in said.stdout + said.stderr
    assert state.trainer("small").job.exists()


def test_members_are_shown_by_status_and_explain(small: StateDir) -> None:
    assert "no member was started" in run("status").stdout

    stand(small)

    assert "small: 1 of 2 members are over" in run("status").stdout
    shown = run("status", "small").stdout
    assert "members        a: finished, step 300\n" in shown
    assert "               b: step 1,200, 75 % of the CPUs\n" in shown
    why = run("explain", "small").stdout
    assert "It is a pack: 1 of 2 members are over.\na: finished, step 300\n" in why
    records = [run_json(verb)["trainers"][0]["pack"] for verb in ("status", "explain")]
    assert records[0] == records[1]
    a, b = records[0]["members"]
    assert (a["end"], a["is_over"], a["share"]) == ("finished", True, None)
    assert (b["end"], b["step"], b["share"]) == (None, 1_200, 0.75)


def test_how_often_and_why_a_member_failed_is_told(small: StateDir) -> None:
    run_dir = small.trainer("small").run
    run_dir.create()
    again = MemberRecord(arrived_s=0.0, ended_s=9.0, end="failed", steps=7, failures=2)
    again.again_s, again.message = 60.0, "KeyError: 'x'"
    ended = MemberRecord(arrived_s=0.0, ended_s=9.0, end="failed", failures=3)
    ended.message = "ValueError: \x1b[31mno"
    write_record(run_dir, PackRecord(members={"a": again, "b": ended}))
    why = r"failed 3 times: ValueError: \x1b[31mno"

    calls = (("status",), ("status", "small"), ("explain", "small"))
    said = [" ".join(run(*call).stdout.split()) for call in calls]
    assert f"small: 0 of 2 members are over, 2 failed; b {why} " in said[0]
    assert "a: is tried again, step 7, failed 2 times: KeyError: 'x' b:" in said[1]
    assert all(f"b: step 0, {why}" in one for one in said[1:])
    (told,) = run_json("status")["trainers"]
    a, b = told["pack"]["members"]
    assert (a["failures"], a["is_tried_again"], b["is_tried_again"]) == (2, True, False)
    assert a["message"] == "KeyError: 'x'"


def test_what_members_committed_is_what_a_pack_goes_on_from(small: StateDir) -> None:
    pack = small.trainer("small").run
    for name, step in (("a", 300), ("b", 40)):
        folder = member_folder(pack, name) / "run"
        leave_checkpoint(folder, generation=1, step=step)

    (told,) = run_json("status")["trainers"]
    assert told["committed_step"] == 340
    assert run("cancel", "small").code == 0
    again = run("submit", "job.toml", "--go-on").stdout
    assert "to go on from step 340" in again
