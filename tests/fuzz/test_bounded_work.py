"""Small inputs whose reading took gigabytes or minutes, each within its limits now."""

from __future__ import annotations

import gzip
import json
import re
from typing import TYPE_CHECKING

import pytest

from freetrain.config.document import ROOT
from freetrain.config.job import parse_job
from freetrain.errors import BadConfigurationError
from freetrain.state.files import (
    TrainerDir,
    UnreadableFileError,
    read_assigned,
    read_ending,
    read_environment,
    read_heartbeat,
    read_tick_sign,
)
from freetrain.tick.status_report import read_status_report
from logs.format import MOST_COMMENTS
from logs.read import read_trace
from logs.sacct import expand_hostlist
from logs.trace import UnreadableLogError
from slurm.errors import UnreadableOutputError
from slurm.json import parse_jobs_json, parse_nodes_json
from slurm.records import expand
from slurm.text import parse_config, parse_nodes, parse_sdiag
from tests.fuzz.limits import MOST_BYTES, check_bounded
from tests.slurm.clusters import recorded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SACCT = "JobIDRaw|Submit|Start|End|NNodes|NodeList\n"


def written(folder: Path, content: bytes) -> Path:
    path = folder / "log"
    path.write_bytes(content)
    return path


def test_node_lists_of_a_small_dump_mean_no_more_names_than_it_can_have(
    tmp_path: Path,
) -> None:
    times = "2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T01:00:00"
    lines = "".join(f"{n}|{times}|1|n[{n}-{999_000 + n}]\n" for n in range(30))
    path = written(tmp_path, (SACCT + lines).encode())
    assert path.stat().st_size < 3_000

    found = check_bounded(lambda: read_trace(path), UnreadableLogError)

    assert found.error == "UnreadableLogError"
    assert "nodes" in found.message


def headless_with_many_counts() -> bytes:
    """A list of 20,000 nodes, and 140 columns that could be its length, but for one."""
    row = ["1", "1600000000", "1600000001", "1600000002", "a1" + ",1" * 19_999]
    last = ["2", "1600000000", "1600000001", "1600000002", "a1", *["2"] * 140]
    return "\n".join(map("|".join, ([*row, *["20000"] * 140], last, ""))).encode()


def headless_with_a_broken_line() -> bytes:
    """A record whose last field, a name, has 200,000 line breaks."""
    row = "{}|1600000000|1600000001|1600000002|1|name\n"
    return (row.format(1) + row.format(2) + "a\n" * 200_000).encode()


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (headless_with_many_counts, "UnreadableLogError"),
        (headless_with_a_broken_line, ""),
    ],
)
def test_a_dump_without_header_is_read_in_time_that_grows_with_its_size(
    tmp_path: Path, make: Callable[[], bytes], error: str
) -> None:
    path = written(tmp_path, make())
    assert path.stat().st_size < 450_000

    found = check_bounded(lambda: read_trace(path), UnreadableLogError)

    assert (found.error or "") == error


LONG_NAMES = ["a." * 3_000 + "[0-199999]", "[1]" * 3_000 + "[0-199999]"]


@pytest.mark.parametrize(
    "text", ["n[0-999999],m", "n[0-999999999999999999]", *LONG_NAMES], ids=len
)
def test_a_node_list_is_counted_before_it_is_written_out(text: str) -> None:
    in_dump = check_bounded(lambda: expand_hostlist(text), ValueError)
    in_answer = check_bounded(lambda: expand(text), UnreadableOutputError)

    assert in_dump.error == "ValueError"
    assert in_answer.error == "UnreadableOutputError"
    # A million names take 60 MB; a child writes to some MB of its parent's pages.
    assert max(in_dump.grown_bytes, in_answer.grown_bytes) < MOST_BYTES / 30


def test_a_small_gzip_file_does_not_unpack_to_a_gigabyte(tmp_path: Path) -> None:
    path = written(tmp_path, gzip.compress(b"; x\n" * (100 << 18)))
    assert path.stat().st_size < 300_000

    found = check_bounded(lambda: read_trace(path), UnreadableLogError)

    assert "more than a log of this size has" in found.message


def test_of_endless_comments_the_first_are_kept(tmp_path: Path) -> None:
    job = " ".join(["1", "0", "0", "10", "1", *["-1"] * 13])
    path = written(tmp_path, b"; x\n" * 1_000_000 + job.encode() + b"\n")

    check_bounded(lambda: read_trace(path), UnreadableLogError)

    assert len(read_trace(path).comments) == MOST_COMMENTS


JOB = {"job_id": 1, "job_state": ["RUNNING"], "partition": "p"}
NODE = {"name": "n1", "state": ["IDLE"], "cpus": 1, "real_memory": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"start_time": float("nan")},
        {"end_time": {"set": True, "infinite": False, "number": float("nan")}},
        {"time_limit": "nan"},
        {"node_count": -1},
        {"cpus": {"set": True, "number": -4}},
        {"job_id": -7},
        {"priority": -1},
        {"cpus": 10**400},
    ],
)
def test_json_of_jobs_has_no_times_that_are_no_number_and_no_counts_below_0(
    change: dict[str, object],
) -> None:
    answer = json.dumps({"jobs": [JOB | change]})

    with pytest.raises(UnreadableOutputError):
        parse_jobs_json(answer)


@pytest.mark.parametrize("key", ["cpus", "real_memory", "alloc_cpus"])
def test_json_of_nodes_has_no_counts_below_0(key: str) -> None:
    with pytest.raises(UnreadableOutputError):
        parse_nodes_json(json.dumps({"nodes": [NODE | {key: -1}]}))


LONG = "9" * 400


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("CPUTot=", f"CPUTot={LONG}"),
        ("CPUTot=", "CPUTot=-"),
        ("RealMemory=", "RealMemory=1_0"),
        ("Gres=(null)", f"Gres=gpu:{LONG}G"),
    ],
)
def test_text_of_nodes_has_no_endless_numbers(old: str, new: str) -> None:
    nodes = recorded("quiet", "nodes.txt")
    assert old in nodes

    with pytest.raises(UnreadableOutputError):
        parse_nodes(nodes.replace(old, new))


def test_text_of_settings_and_statistics_has_no_endless_numbers() -> None:
    settings = recorded("quiet", "config.txt")
    statistics = recorded("quiet", "sdiag-before.txt")

    with pytest.raises(UnreadableOutputError):
        parse_config(re.sub(r"(?m)^KillWait .*$", f"KillWait = {LONG}", settings))
    with pytest.raises(UnreadableOutputError):
        parse_sdiag(statistics.replace("(1", f"({LONG}"))
    parameters = f"SchedulerParameters = bf_window={'9' * 5_000}\n"
    wide = parse_config(parameters + settings.replace("SchedulerParameters", "Other"))
    assert wide.bf_window_s > 0


DEEP_KEYS = {
    "one key": "a." * 500_000 + "a = 1\n",
    "a header above many lines": f"[{'a.' * 400}a]\n"
    + "".join(f"k{n} = 1\n" for n in range(60_000)),
    "in an inline table": "x = {" + "a." * 300_000 + "a = 1}\n",
    "quoted": '"=".' * 200_000 + "a = 1\n",
}


@pytest.mark.parametrize("text", DEEP_KEYS.values(), ids=DEEP_KEYS)
def test_a_key_of_many_parts_is_refused_at_once(text: str) -> None:
    found = check_bounded(
        lambda: parse_job(text.encode(), path="job.toml", places=ROOT),
        BadConfigurationError,
    )

    assert "parts, joined by dots" in found.message


@pytest.mark.parametrize(
    "text",
    [
        '"""' + '\\"""' * 250_000,
        '"' + "\\x" * 400_000,
        "'''" + "'" * 800_000,
        "#" + "." * 900_000,
        "x = " + "[" * 400_000,
        "x = " + "9" * 900_000,
        "x = 0x" + "f" * 900_000,
        "weight = 0x" + "f" * 9_000,
        "x = " + "1." * 400_000,
    ],
    ids=str,
)
def test_a_megabyte_of_anything_is_refused_in_time(text: str) -> None:
    content = text.encode()[: 1 << 20]

    found = check_bounded(
        lambda: parse_job(content, path="job.toml", places=ROOT), BadConfigurationError
    )

    assert found.error == "BadConfigurationError"


def test_dots_in_texts_and_comments_are_no_keys() -> None:
    ruler = "." * 100
    text = (
        f'# {ruler}\nname = "t"\ncommand = ["x", "{ruler}", \'{ruler}\']\n'
        f'environment = {{ A = """\n{ruler}"\n{ruler}\n""" }}\n[nodes]\nmax = 1\n'
    )

    job = parse_job(text.encode(), path="job.toml", places=ROOT)

    assert job.command == ("x", ruler, ruler)


@pytest.mark.parametrize(
    "read",
    [
        lambda folder: read_assigned(folder, 1),
        lambda folder: read_ending(folder, 1),
        read_environment,
        lambda folder: read_heartbeat(folder.assignment(1)),
        lambda folder: read_tick_sign(folder.assignment(1)),
        lambda folder: read_status_report(folder.assignment(1)),
    ],
)
@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"t": NaN}', b"[]", b"7"])
def test_a_file_of_the_state_directory_that_is_nested_too_deep_is_unreadable(
    tmp_path: Path, read: Callable[[TrainerDir], object], content: bytes
) -> None:
    folder = TrainerDir(tmp_path / "trainers" / "t")
    folder.create()
    for path in (folder.assignment(1), folder.ending(1), folder.environment):
        path.write_bytes(content)

    with pytest.raises(UnreadableFileError):
        read(folder)
