"""A recording says the same of a cluster, and names nobody and nothing there."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.errors import SlurmRefusedError, UnreadableOutputError
from slurm.holes import Hole, HoleEnd, Snapshot, find_holes
from slurm.json import JSON
from slurm.records import JobRecord, Node, NodeState, Requirement, expand
from slurm.text import (
    parse_config,
    parse_nodes,
    parse_sdiag,
    parse_squeue,
    parse_version,
)
from tests.fakes.slurm.installing import FakeSlurm, install
from tests.fakes.slurm.state import Act
from tests.record_slurm import (
    COMMANDS,
    RECORDED,
    Pseudonyms,
    anonymous_config,
    anonymous_jobs,
    anonymous_json,
    anonymous_nodes,
    anonymous_statistics,
    recording,
)
from tests.slurm.clusters import (
    RECORDINGS,
    SCENARIOS,
    recorded,
    recorded_snapshot,
    scontrol_text,
    snapshot_from,
    squeue_text,
)

REPOSITORY = Path(__file__).parents[2]
FILES = tuple(path.name for path in (RECORDINGS / "busy").glob("*.txt"))
LEASES = Requirement(partition="freetrain")


def answers(scenario: str) -> dict[str, str]:
    return {file: recorded(scenario, file) for file in FILES if file != COMMANDS}


def holes(snapshot: Snapshot, partition: str) -> tuple[Hole, ...]:
    leases = replace(LEASES, partition=partition)
    return find_holes(snapshot, leases, is_ours=lambda _: False, margin_s=30)


def renamed(hole: Hole, names: Pseudonyms) -> Hole:
    is_reserved = hole.ends_by is HoleEnd.RESERVATION
    blocker = names.word("reservation", hole.blocker) if is_reserved else None
    node = names.hosts(hole.node)
    return replace(hole, node=node, blocker=blocker or hole.blocker)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_recording_has_the_same_holes_under_other_names(scenario: str) -> None:
    names = Pseudonyms()
    before = recorded_snapshot(scenario)

    after = snapshot_from(recording(answers(scenario), names=names).__getitem__)

    for partition in before.partitions:
        expected = holes(before, partition.name)
        named = names.word("part", partition.name)
        assert holes(after, named) == tuple(renamed(h, names) for h in expected)
    assert after.is_torn == before.is_torn
    assert [node.states for node in after.nodes] == [n.states for n in before.nodes]
    assert list(map(kept_of, after.jobs)) == list(map(kept_of, before.jobs))


def kept_of(job: JobRecord) -> tuple[object, ...]:
    """What a recording keeps of a job as it was."""
    return (
        *(job.key, job.states, job.array_tasks, job.priority, job.nice, job.start_s),
        *(job.submit_s, job.limit_s, job.node_count, job.cpu_count, job.is_planned),
        *(len(expand(job.planned_nodes or "")), len(expand(job.nodes))),
        *(bool(job.name), bool(job.comment), bool(job.dependency), bool(job.features)),
        *(len(job.partitions), bool(job.gres_per_node), bool(job.reservation)),
    )


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_settings_stay_and_no_name_of_a_recorded_cluster_survives(
    scenario: str,
) -> None:
    snapshot = recorded_snapshot(scenario)
    files = recording(answers(scenario))

    before = parse_config(recorded(scenario, "config.txt"))
    assert parse_config(files["config.txt"]) == replace(
        before, cluster="cluster1", slurm_uid=None
    )
    assert str(parse_version(files["version.txt"])) == "22.05.8"
    of_people = ("nodes.txt", "jobs.txt", "partitions.txt", "reservations.txt")
    text = "".join(files[name] for name in (*of_people, "config.txt"))

    for word in secrets_of(snapshot):
        assert not re.search(rf"(?<![A-Za-z]){re.escape(word)}(?![A-Za-z])", text), word


def secrets_of(snapshot: Snapshot) -> set[str]:
    """Return all words of people's that *snapshot* has, three letters or more."""
    texts = [text for job in snapshot.jobs for text in (job.name, job.comment)]
    texts += [job.user for job in snapshot.jobs]
    texts += [part.name for part in snapshot.partitions]
    texts += [reservation.name for reservation in snapshot.reservations]
    texts += [text for node in snapshot.nodes for text in (node.reason, node.comment)]
    texts += [feature for node in snapshot.nodes for feature in node.features]
    words = {word for text in texts for word in re.findall(r"[^\W\d_]{3,}", text)}
    ours = {"job", "comment", "user", "feature", "reason", "main", "gpu", "State"}
    return words - ours - {str(state) for state in NodeState} - {"NodeName"}


SECRET = st.text("qxzQXZ", min_size=6, max_size=12)
"""Letters of which no word of Slurm's, or of ours, is made."""

HOSTILE = st.one_of(
    SECRET,
    SECRET.map(lambda word: f"a b|{word};$({word})\n{word}"),
    SECRET.map(lambda word: f"NodeName={word} State=IDLE"),
    SECRET.map(lambda word: f"é{word}漢 Comment={word}\n NodeName={word}"),
)
HOST = SECRET.map(lambda word: f"{word}[1-4,07]")
JOBS = st.lists(
    st.fixed_dictionaries(
        {"JobID": st.integers(1, 10**6).map(str)},
        optional={
            "Name": HOSTILE,
            "Comment": HOSTILE,
            "Feature": SECRET.map(lambda word: f"{word}&[{word}*2|{word}x]"),
            "Reason": HOSTILE,
            "Dependency": SECRET.map(lambda word: f"afterok:{word}"),
            "QOS": SECRET,
            "tres-per-node": SECRET.map(lambda word: f"gres:{word}:{word}:2"),
            "UserName": SECRET,
            "Partition": SECRET.map(lambda word: f"{word},{word}x"),
            "State": SECRET,
            "Reservation": SECRET,
            "SchedNodes": HOST,
            "NodeList": HOST,
            "StartTime": st.just("2026-11-21T08:00:00"),
        },
    ),
    max_size=8,
)


@given(JOBS)
def test_nothing_that_a_user_can_type_into_a_job_survives(
    jobs: list[dict[str, str]],
) -> None:
    text = squeue_text(jobs)

    made = anonymous_jobs(Pseudonyms(), text)

    assert not re.search("[qxzQXZ]{6}", made)
    before, after = parse_squeue(text), parse_squeue(made)
    assert [job.key for job in after] == [job.key for job in before]
    assert [len(expand(j.nodes)) for j in after] == [
        len(expand(j.nodes)) for j in before
    ]


NODE_DEFAULTS = {"CPUAlloc": "0", "CPUTot": "2", "RealMemory": "9", "Partitions": "p"}


NODES = st.lists(
    st.fixed_dictionaries(
        {
            "NodeName": SECRET.map(lambda word: f"{word}1"),
            "ActiveFeatures": SECRET,
            "Gres": SECRET.map(lambda word: f"gpu:{word}:2(S:0-1),{word}:1"),
            "State": st.sampled_from(["IDLE", "IDLE+PLANNED", "DOWN*", "IDLE+XQZXQZ"]),
        },
        optional=dict.fromkeys(("Arch", "OS", "Reason", "Comment"), HOSTILE),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda node: node["NodeName"],
)


@given(NODES)
def test_nothing_that_an_administrator_can_type_into_a_node_survives(
    records: list[dict[str, str]],
) -> None:
    first = ("NodeName", *NODE_DEFAULTS, "ActiveFeatures", "Gres", "State")
    ordered = [
        {k: one[k] for k in first if k in one} | one
        for one in (NODE_DEFAULTS | record for record in records)
    ]
    text = scontrol_text(ordered)
    names = Pseudonyms()

    made = anonymous_nodes(names, text)

    assert not re.search("[qxzQXZ]{6}", made)
    expected = [comparable(node, names) for node in parse_nodes(text)]
    assert [comparable(node) for node in parse_nodes(made)] == expected


def comparable(node: Node, names: Pseudonyms | None = None) -> tuple[object, ...]:
    name = names.hosts(node.name) if names else node.name
    counts = [gres.count for gres in node.gres]
    return (name, node.states, len(node.unknown_states), len(node.features), counts)


@given(st.lists(SECRET, min_size=1, max_size=20))
def test_names_are_equal_afterwards_if_they_were_before(words: list[str]) -> None:
    names = Pseudonyms()
    hosts = [f"{word}-{i:03d}.{word}" for i, word in enumerate(words)]

    made = [names.hosts(host) for host in hosts]
    again = [names.hosts(host) for host in hosts]

    assert again == made
    assert len(set(made)) == len(set(hosts))
    assert [re.sub(r"[a-z]+", "", name) for name in made] == [
        re.sub(r"[a-zA-Z]+", "", host) for host in hosts
    ]


def test_ranges_of_hosts_stay_ranges_and_two_recordings_share_no_names() -> None:
    first, second = Pseudonyms(), Pseudonyms()
    hosts = "gpu[001-003,7],login2"
    first.word("user", "eve")

    assert expand(first.hosts(hosts)) == tuple(map(first.hosts, expand(hosts)))
    assert (first.word("user", "bob"), second.word("user", "bob")) == ("user2", "user1")


def test_settings_that_are_not_read_are_left_out_and_paths_replaced() -> None:
    text = recorded("busy", "config.txt").replace(
        "Epilog                  = (null)", "Epilog                  = /opt/secret.sh"
    )
    text = text.replace("bf_interval=5", "bf_interval=5,bf_x=secret,ours=secret")

    made = anonymous_config(Pseudonyms(), text)

    assert "secret" not in made
    assert parse_config(made).has_epilog
    assert "bf_interval=5" in made


def test_who_asked_slurmctld_what_is_left_out() -> None:
    text = recorded("busy", "sdiag-before.txt")

    made = anonymous_statistics(Pseudonyms(), text)

    assert "ops1" in text
    assert "ops1" not in made
    assert parse_sdiag(made) == parse_sdiag(text)


def test_an_answer_that_is_none_is_refused_and_not_recorded() -> None:
    broken = answers("busy") | {"nodes.txt": "slurm_load_node: secret\n"}

    with pytest.raises(UnreadableOutputError):
        recording(broken)
    assert "jobs.json" not in recording(answers("busy") | {"jobs.json": "secret"})
    assert "topology.txt" not in recording(answers("busy") | {"topology.txt": "x\n"})


def test_each_file_has_its_command_beside() -> None:
    lines = recording(answers("busy"))[COMMANDS].splitlines()
    optional = {file.file for file in RECORDED if file.is_optional}

    assert [line.partition(": ")[0] for line in lines] == [
        file.file for file in RECORDED if not file.is_optional
    ]
    assert "squeue --all --local" in lines[2]
    sections = ("nodes", "jobs", "reservations", "partitions")
    assert optional == {"topology.txt", *(f"{section}.json" for section in sections)}


@pytest.mark.shared
@pytest.mark.parametrize("release", ["22.05.9", "23.02.8", "23.11.10", "24.11.5"])
@pytest.mark.parametrize("section", ["nodes", "jobs", "reservations", "partitions"])
def test_json_of_every_release_reads_as_before_under_other_names(
    shared: Path, release: str, section: str
) -> None:
    (path,) = (shared / "slurm-recordings" / release).glob(f"*{section}.json")
    text = path.read_text("utf-8")
    parse = getattr(JSON, section).parse

    made = anonymous_json(Pseudonyms(), text, section=section)

    before, after = parse(text), parse(made)
    assert len(after) == len(before)
    kept = (
        *("states", "job_id", "start_s", "end_s", "limit_s", "priority_tier", "is_up"),
        *("max_time_s", "cpus", "memory_mib", "flags", "node_count", "display_id"),
    )
    for old, new in zip(before, after, strict=True):
        for name in kept:
            assert getattr(old, name, None) == getattr(new, name, None), name
    assert shape(json.loads(made)) == shape(json.loads(text))


def shape(value: object) -> object:
    """Return the structure of JSON without its texts and numbers."""
    if isinstance(value, dict):
        return sorted((len(str(k)) > 0, str(shape(v))) for k, v in value.items())
    if isinstance(value, list):
        return [shape(one) for one in value]
    return type(value).__name__


@given(SECRET)
def test_no_text_of_json_survives_whatever_its_key(word: str) -> None:
    inner = {"name": word, "n": 5, "x": [word, {"comment": word, "user_id": 4242}]}
    text = json.dumps({"nodes": [inner | {f"{word}1": 1}], "warnings": [word]})

    made = anonymous_json(Pseudonyms(), text, section="nodes")

    assert word not in made
    assert "4242" not in made


def test_a_refusal_in_json_stays_one() -> None:
    text = json.dumps({"jobs": [], "errors": [{"error": "secret"}]})

    made = anonymous_json(Pseudonyms(), text, section="jobs")

    assert "secret" not in made
    with pytest.raises(SlurmRefusedError):
        JSON.jobs.parse(made)


def test_a_recording_on_disk_has_its_two_holes_and_reads_in_json() -> None:
    folder = RECORDINGS / "recorder"
    files = {path.name: path.read_text("utf-8") for path in folder.iterdir()}
    seen = snapshot_from(files.__getitem__)

    found = find_holes(
        seen,
        Requirement(partition="part2"),
        is_ours=lambda job: job.array_job_id == 319,
        margin_s=0,
    )

    ends = [(hole.node, hole.ends_by, hole.blocker) for hole in found]
    planned = HoleEnd.PLANNED_JOB
    assert ends == [("ha7", planned, "318"), ("ha8", planned, "318")]
    by_id = {job.job_id: job.states for job in JSON.jobs.parse(files["jobs.json"])}
    assert {job.job_id: job.states for job in seen.jobs}.items() <= by_id.items()


@pytest.fixture
def fake_slurm(tmp_path: Path) -> FakeSlurm:
    folder = tmp_path / "fake-slurm"
    folder.mkdir()
    return install(folder)


def record(fake: FakeSlurm, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-m", "tests.record_slurm", str(folder / "rec")],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        env=fake.environ,
    )


def test_the_tool_writes_a_recording_that_reads_and_names_nobody(
    fake_slurm: FakeSlurm, tmp_path: Path
) -> None:
    ran = record(fake_slurm, tmp_path)

    assert (ran.returncode, ran.stderr) == (0, "")
    folder = tmp_path / "rec"
    assert len(parse_nodes((folder / "nodes.txt").read_text())) == 8
    assert parse_squeue((folder / "jobs.txt").read_text()) == ()
    assert "freetrain" not in (folder / "partitions.txt").read_text()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert "look through them" in ran.stdout


def test_a_folder_that_holds_something_is_left_alone_and_nothing_asked(
    fake_slurm: FakeSlurm, tmp_path: Path
) -> None:
    (tmp_path / "rec").mkdir()
    (tmp_path / "rec" / "mine").touch()

    ran = record(fake_slurm, tmp_path)

    assert (ran.returncode, "not an empty folder" in ran.stderr) == (1, True)
    assert [path.name for path in (tmp_path / "rec").iterdir()] == ["mine"]
    assert fake_slurm.calls("sdiag") == []


def test_a_spoilt_answer_is_not_recorded(fake_slurm: FakeSlurm, tmp_path: Path) -> None:
    fake_slurm.script("squeue", Act.GARBAGE)

    ran = record(fake_slurm, tmp_path)

    assert (ran.returncode, "cannot read line" in ran.stderr) == (1, True)
    assert not (tmp_path / "rec").exists()
