"""Pack files and inboxes, with every mistake; records that come back; failures."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.config.document import keys_of, toml_value
from freetrain.config.job import (
    CheckpointSettings,
    NodeSettings,
    RestartSettings,
    TrainerJob,
)
from freetrain.elastic.files import RunDir
from freetrain.errors import BadConfigurationError, FreeTrainError
from freetrain.losscurve.forecast import MetricDirection
from freetrain.pack.pack import (
    ControllerName,
    Inbox,
    MemberRecord,
    Pack,
    PackRecord,
    SharingName,
    count_failure,
    how_it_failed,
    member_folder,
    member_folders,
    read_pack,
    read_record,
    write_record,
)
from freetrain.priority.flowcon import DEFAULT_ALPHA

WHOLE = """
members = ["a/job.toml", "/b.toml"]
inbox = "inbox"
stay = "10min"
sharing = "flowcon"
interval = "5s"
alpha = 0.1
metric = "accuracy"
better = "higher"
means = "duty-cycle"
cpus = 3
"""


def read(folder: Path, text: str) -> Pack:
    path = folder / "pack.toml"
    path.write_text(text)
    return read_pack(path)


def test_every_key_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, WHOLE) == Pack(
        members=(tmp_path / "a/job.toml", (tmp_path / "/b.toml")),
        inbox=tmp_path / "inbox",
        stay_s=600.0,
        sharing=SharingName.FLOWCON,
        interval_s=5.0,
        alpha=0.1,
        metric="accuracy",
        better=MetricDirection.HIGHER,
        means=ControllerName.DUTY_CYCLE,
        cpus=3,
    )


def test_members_share_the_cpus_equally_unless_the_file_says_otherwise(
    tmp_path: Path,
) -> None:
    assert read(tmp_path, 'members = ["a.toml"]').sharing is SharingName.FAIR


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "members"),
        ("members = 3", "members"),
        ("members = ['../x']", "members"),
        ("inbox = 'x'\nsharing = 'slaq'", "sharing"),
        ("inbox = 'x'\ninterval = 3", "interval"),
        ("inbox = 'x'\nalpha = 0", "alpha"),
        ("inbox = 'x'\nmetric = 'a b'", "metric"),
        ("inbox = 'x'\nmeans = 'magic'", "means"),
        ("inbox = 'x'\ncpus = 0", "cpus"),
        ("inbox = 'x'\nmember = []", "member"),
        ("inbox = ", "TOML"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(BadConfigurationError, match=named):
        read(tmp_path, text)


PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "packs.md"
ROW = re.compile(r"^\| `([a-z_]+)` \| [^|]+ \| (`[^`]+`|-) \|", re.MULTILINE)


def test_the_page_has_every_key_and_its_default() -> None:
    assert dict(ROW.findall(PAGE.read_text())) == {
        key.name: "-"
        if key.default is None
        else f"`{toml_value(key.written(key.default))}`"
        for key in keys_of(Pack)
    }
    assert Pack().alpha == DEFAULT_ALPHA


def write_job(folder: Path, file: str, name: str, *, more: str = "") -> Path:
    path = folder / file
    nodes = "" if "nodes" in more else "nodes = { max = 4 }\n"
    command = "" if "pack" in more else 'command = "true"\nelastic = false\n'
    path.write_text(f'name = "{name}"\n{command}{nodes}{more}')
    return path


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("nodes = { min = 2, max = 4 }", r"a\.toml: .*needs 2 nodes"),
        ("launch = { processes_per_node = 2 }", r"a\.toml: .*one process each"),
        (
            'nodes = { max = 1 }\nlaunch = { launcher = "pack", pack = "pack.toml" }',
            "no members of packs",
        ),
    ],
)
def test_a_trainer_that_does_not_fit_a_pack_is_refused(
    tmp_path: Path, more: str, why: str
) -> None:
    path = write_job(tmp_path, "a.toml", "a", more=more)

    with pytest.raises(FreeTrainError, match=why):
        Inbox(Pack(members=(path,)), home=None, say=print)


@pytest.mark.parametrize(
    ("names", "more", "why"),
    [
        ("ab", 'checkpoint = {{ path = "{place}" }}', "the trainer 'a' has"),
        ("ab", 'logs = "{place}"', "the trainer 'a' has"),
        ("aa", "", "has a trainer 'a' already"),
    ],
)
def test_two_trainers_of_one_folder_or_name_are_refused(
    tmp_path: Path, names: str, more: str, why: str
) -> None:
    (tmp_path / "y").symlink_to(tmp_path / "x")
    both = tuple(
        write_job(tmp_path, f"{place}.toml", name, more=more.format(place=place))
        for name, place in zip(names, "xy", strict=True)
    )

    with pytest.raises(FreeTrainError, match=why):
        Inbox(Pack(members=both), home=None, say=print)


def test_members_arrive_once_and_mistakes_in_the_inbox_are_reported_once(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    folder = tmp_path / "inbox"
    folder.mkdir()
    named = write_job(tmp_path, "named.toml", "named")
    inbox = Inbox(Pack(members=(named,), inbox=folder), home=None, say=said.append)
    write_job(folder, "a.toml", "a")
    (folder / "half.toml").write_text('name = "h')
    (folder / "notes.txt").write_text("no job file")
    assert [job.name for job in inbox.arrivals()] == ["named", "a"]
    assert inbox.arrivals() == ()
    assert len(said) == 1
    assert "half.toml" in said[0]
    write_job(folder, "half.toml", "half")
    assert [job.name for job in inbox.arrivals()] == ["half"]
    assert len(said) == 1


def test_an_inbox_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    inbox = Inbox(Pack(inbox=tmp_path / "later"), home=None, say=print)
    assert inbox.arrivals() == ()


def test_members_are_the_folders_and_no_file_beside_or_in_place_of_them(
    tmp_path: Path,
) -> None:
    run, other = RunDir(tmp_path), RunDir(tmp_path / "other")
    member_folder(run, "b").mkdir(parents=True)
    member_folder(run, "a").mkdir()
    member_folder(run, "notes.txt").write_text("of mine")
    other.path.mkdir()
    (other.path / "members").write_text("of mine")

    assert member_folders(run) == (member_folder(run, "a"), member_folder(run, "b"))
    assert member_folders(other) == ()


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    failed = MemberRecord(
        arrived_s=1.0, end="failed", failures=2, again_s=9.0, message="no"
    )
    record = PackRecord(
        ran_s=5.0, members={"a": failed, "b": MemberRecord(arrived_s=2.0)}
    )
    write_record(RunDir(tmp_path), record)

    assert read_record(RunDir(tmp_path)) == record


def test_a_record_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    (tmp_path / "pack.json").write_text(
        '{"members": {"a": {"arrived_s": 1.0, "ended_s": 2.0, "end": "failed", '
        '"steps": 3, "samples": 4.0}}}'
    )

    assert read_record(RunDir(tmp_path)).members == {
        "a": MemberRecord(
            arrived_s=1.0, ended_s=2.0, end="failed", steps=3, samples=4.0
        )
    }


def fail(
    member: MemberRecord,
    *,
    at_s: float,
    committed: int = 0,
    attempts: int = 3,
    elastic: bool = True,
) -> None:
    job = TrainerJob(
        name="a",
        directory=Path("/"),
        nodes=NodeSettings(max_nodes=1),
        elastic=elastic,
        checkpoint=CheckpointSettings(every_s=60.0),
        restart=RestartSettings(attempts=attempts, wait_s=10.0),
    )
    count_failure(member, job, committed_step=committed, now_s=at_s)


def test_pauses_double_until_attempts_are_used_up() -> None:
    member, pauses = MemberRecord(arrived_s=0.0), []
    for at_s in (5.0, 100.0, 200.0, 201.0):
        fail(member, at_s=at_s)
        pauses.append(None if member.again_s is None else member.again_s - at_s)

    assert pauses == [10.0, 20.0, None, None]
    assert member.failures == 4


def test_a_commit_in_between_makes_it_the_first_failure_again() -> None:
    member = MemberRecord(arrived_s=0.0)
    fail(member, at_s=1.0, committed=7)
    fail(member, at_s=20.0, committed=7)
    before = member.failures
    fail(member, at_s=50.0, committed=8)

    assert (before, member.failures, member.again_s) == (2, 1, 60.0)


def test_a_program_without_known_commits_made_one_in_two_intervals() -> None:
    member, in_a_row = MemberRecord(arrived_s=0.0), []
    for started_s, at_s in ((0.0, 1.0), (11.0, 130.0), (150.0, 270.0)):
        member.started_s = started_s
        fail(member, at_s=at_s, elastic=False)
        in_a_row.append(member.failures)

    assert in_a_row == [1, 2, 1]


@given(st.integers(0, 9), st.lists(st.integers(0, 3), max_size=12))
def test_no_member_is_started_more_often_without_a_commit_than_its_attempts(
    attempts: int, commits: list[int]
) -> None:
    member, in_a_row = MemberRecord(arrived_s=0.0), 0
    for at_s, committed in enumerate(commits):
        in_a_row = 1 if committed > member.committed_step else in_a_row + 1
        fail(member, at_s=float(at_s), committed=committed, attempts=attempts)

        assert (member.again_s is None) == (in_a_row >= max(1, attempts))


@pytest.mark.parametrize(
    ("failures", "message", "text"),
    [
        (1, "", "failed once"),
        (3, "ValueError: no", "failed 3 times: ValueError: no"),
        (0, "signal 9, Killed", "failed: signal 9, Killed"),
    ],
)
def test_a_failure_is_described_by_how_often_and_why(
    failures: int, message: str, text: str
) -> None:
    member = MemberRecord(arrived_s=0.0, failures=failures, message=message)

    assert how_it_failed(member) == text


def arrivals_of(inbox: Path) -> tuple[list[str], list[str]]:
    """Return names of the members that come from *inbox*, and what was said."""
    said: list[str] = []
    found = Inbox(Pack(inbox=inbox), home=None, say=said.append).arrivals()
    return [job.name for job in found], said


def test_a_pipe_in_the_inbox_is_named_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.toml")
    write_job(tmp_path, "b.toml", "b")

    names, said = arrivals_of(tmp_path)

    assert names == ["b"]
    assert "not a plain file" in said[0]


def test_a_link_in_the_inbox_is_named_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "a.toml").symlink_to(write_job(tmp_path, "a.toml", "a"))

    assert arrivals_of(tmp_path / "inbox")[0] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a file of another user")
def test_a_job_file_of_another_user_in_the_inbox_is_named_and_not_started(
    tmp_path: Path,
) -> None:
    os.chown(write_job(tmp_path, "a.toml", "a"), 4_711, -1)

    names, said = arrivals_of(tmp_path)

    assert names == []
    assert "belongs to user 4711, and could run anything as you" in said[0]
