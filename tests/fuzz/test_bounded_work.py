"""Small inputs whose reading took gigabytes or minutes, each within its limits now."""

from __future__ import annotations

import gzip
import json
import re
from typing import TYPE_CHECKING

import pytest

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


@pytest.mark.parametrize("text", ["n[0-999999],m", "n[0-999999999999999999]"])
def test_a_node_list_is_counted_before_it_is_written_out(text: str) -> None:
    in_dump = check_bounded(lambda: expand_hostlist(text), ValueError)
    in_answer = check_bounded(lambda: expand(text), UnreadableOutputError)

    assert in_dump.error == "ValueError"
    assert in_answer.error == "UnreadableOutputError"
    assert max(in_dump.grown_bytes, in_answer.grown_bytes) < MOST_BYTES / 100


def test_a_small_gzip_file_does_not_unpack_to_a_gigabyte(tmp_path: Path) -> None:
    path = written(tmp_path, gzip.compress(b"; x\n" * (100 << 18)))
    assert path.stat().st_size < 300_000

    found = check_bounded(lambda: read_trace(path), UnreadableLogError)

    assert "more than a log of this size has" in found.message


def test_of_endless_comments_the_first_are_kept(tmp_path: Path) -> None:
    job = " ".join(["1", "0", "0", "10", "1", *["-1"] * 13])
    path = written(tmp_path, b"; x\n" * 2_000_000 + job.encode() + b"\n")

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
