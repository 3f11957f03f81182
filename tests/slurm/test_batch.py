"""Submitting and ending jobs: what Slurm's commands are told."""

import shlex
import time
from dataclasses import replace
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.batch import (
    LeaseRequest,
    SubmittedJob,
    only_gone,
    parse_sbatch,
    sbatch_argv,
    scancel_argv,
)
from slurm.errors import UnreadableOutputError

PLAIN = LeaseRequest(
    name="ft-0b5e",
    comment="freetrain 0b5e",
    partition="freetrain",
    limit_min=20,
    nice=10_000,
    script="/home/alice/agent.sh",
)
TEXT_FIELDS = sorted(
    field for field, kind in get_type_hints(LeaseRequest).items() if kind is str
)
HOSTILE = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        [
            *("'", '"', "a\nb", "$(id)", "`id`", "; rm -rf ~", "&& id", "| id", "a\0b"),
            *("--uid=0", "-h", "x" * 1_000_000, "é" * 600, "\x1b[2J", "\udce9"),
            *("\\", "%j"),
        ]
    ),
)


def test_a_lease_is_one_whole_node_nice_never_requeued_and_named() -> None:
    assert shlex.join(sbatch_argv(PLAIN)) == (
        "sbatch --parsable --no-requeue --nodes=1 --ntasks=1 --time=20 --nice=10000 "
        "--exclusive --mem=0 --job-name=ft-0b5e '--comment=freetrain 0b5e' "
        "--partition=freetrain --output=/dev/null --export-file=/dev/null "
        "/home/alice/agent.sh"
    )


@pytest.mark.parametrize(
    ("change", "option"),
    [
        ({"tasks": 2}, "--array=0-1"),
        ({"deadline_s": 1_795_249_340.9}, "--deadline=2026-11-21T08:22:20"),
        ({"qos": "low"}, "--qos=low"),
        ({"account": "physics"}, "--account=physics"),
        ({"features": "ib&a100"}, "--constraint=ib&a100"),
        ({"gres": "gpu:a100:2"}, "--gres=gpu:a100:2"),
        ({"excluded": "n[1-4]"}, "--exclude=n[1-4]"),
        ({"exclusive": False, "memory_mib": 600}, "--mem=600M"),
        ({"exclusive": False, "cpus": 2}, "--cpus-per-task=2"),
        ({"output": "/home/alice/%j.out"}, "--output=/home/alice/%j.out"),
    ],
)
def test_what_a_lease_asks_for_becomes_an_option(
    change: dict[str, Any], option: str
) -> None:
    request = replace(PLAIN, **change)

    assert option in sbatch_argv(request)
    assert option not in sbatch_argv(PLAIN)


def test_a_deadline_is_written_in_utc_wherever_the_broker_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        argv = sbatch_argv(replace(PLAIN, deadline_s=1_795_249_340))
    finally:
        monkeypatch.undo()
        time.tzset()

    assert "--deadline=2026-11-21T08:22:20" in argv


def test_a_lease_that_shares_its_node_does_not_ask_for_all_of_it() -> None:
    argv = sbatch_argv(replace(PLAIN, exclusive=False))

    assert not {"--exclusive", "--mem=0"} & set(argv)


@given(st.sampled_from(TEXT_FIELDS), HOSTILE)
def test_a_hostile_value_is_refused_or_stays_within_its_one_argument(
    field: str, value: str
) -> None:
    change: dict[str, Any] = {field: value}
    try:
        argv = sbatch_argv(replace(PLAIN, **change))
    except ValueError:
        return

    plain = sbatch_argv(PLAIN)
    assert abs(len(argv) - len(plain)) <= 1
    assert value.isprintable()
    assert len(value.encode()) <= 1000
    carrying = [word for word in argv if word not in plain]
    assert all(word.startswith(("--", "/")) for word in carrying)
    assert all(word.endswith(value) for word in carrying)


def test_a_refusal_of_a_huge_value_is_short() -> None:
    with pytest.raises(ValueError, match="comment") as caught:
        sbatch_argv(replace(PLAIN, comment="x" * 1_000_000))

    assert len(str(caught.value)) < 300


@given(st.lists(st.text(max_size=30), max_size=5))
def test_arguments_of_the_script_come_last_each_as_it_is(arguments: list[str]) -> None:
    request = replace(PLAIN, arguments=tuple(arguments))
    if any("\0" in argument for argument in arguments):
        with pytest.raises(ValueError, match="script argument"):
            sbatch_argv(request)
        return

    assert sbatch_argv(request) == [*sbatch_argv(PLAIN), *arguments]


@pytest.mark.parametrize(
    "change",
    [
        *({"name": name} for name in ("", "a b", "-x", "a,b", "x" * 65, "a\n")),
        *({"limit_min": 0}, {"tasks": 0}, {"nice": -1}, {"memory_mib": -1}),
        *({"script": "agent.sh"}, {"script": "-x"}, {"output": "out"}, {"cpus": -1}),
        *({"partition": ""}, {"comment": "a\0b"}, {"comment": "x" * 1001}),
        {"arguments": ("x" * 1_000_000,)},
    ],
)
def test_what_slurm_would_misread_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Slurm was not asked"):
        sbatch_argv(replace(PLAIN, **change))


def test_the_number_of_a_submitted_job_is_read() -> None:
    assert parse_sbatch("4711\n") == SubmittedJob(4711, "")
    assert parse_sbatch("4711;cluster2\n") == SubmittedJob(4711, "cluster2")


@pytest.mark.parametrize(
    "text",
    [
        *("", "\n", "47", "47a\n", "-1\n", "4" * 99),
        *("Submitted batch job 4711\n", "4711\n4712\n"),
    ],
)
def test_an_answer_without_a_number_is_refused(text: str) -> None:
    with pytest.raises(UnreadableOutputError, match="`sbatch`"):
        parse_sbatch(text)


def test_ending_jobs_names_them_and_nothing_that_would_widen_it() -> None:
    assert scancel_argv(["18_0", "19"]) == ["scancel", "18_0", "19"]


def test_a_signal_goes_to_the_steps_and_not_to_the_batch_script() -> None:
    argv = scancel_argv(["18_0"], signal="TERM")

    assert argv == ["scancel", "--signal=TERM", "18_0"]


def test_ending_no_job_is_refused() -> None:
    with pytest.raises(ValueError, match="no job named"):
        scancel_argv([])


@pytest.mark.parametrize(
    ("display_id", "signal"),
    [
        *((bad, "") for bad in ("18_[0-3]", "-u", "18_", "", "١٨", "18\n")),
        ("18", "TERM --me"),
    ],
)
def test_a_job_that_scancel_would_misread_is_refused(
    display_id: str, signal: str
) -> None:
    with pytest.raises(ValueError, match="not a usable"):
        scancel_argv([display_id], signal=signal)


def test_only_jobs_that_have_ended_are_no_complaint() -> None:
    gone = "Kill job error on job id 9: Invalid job id specified\n"

    assert only_gone(f"scancel: error: {gone}")
    assert only_gone("scancel: error: x: Job/step already completing or completed\n")
    assert not only_gone(f"{gone}b: Access/permission denied\n")
    assert only_gone("60_0,2-3: Job has already finished\n60_1: No error\n")
    assert not only_gone("60_0: Access/permission denied\n60_1: No error\n")
    assert not only_gone("")
