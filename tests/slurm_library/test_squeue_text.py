"""Jobs as squeue writes them, whatever their names hold."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.errors import UnreadableOutputError
from slurm.records import JobRecord, JobState
from slurm.text import FREE_WIDTH_COLUMNS, TYPED_WIDTHS, parse_squeue, squeue_argv
from tests.slurm_library.clusters import SCENARIOS, recorded
from tests.slurm_library.rendering import squeue_text

TYPED_TEXT = st.text(
    alphabet=st.characters(min_codepoint=1, exclude_categories=["Cs"]), max_size=300
)
HOSTILE = st.one_of(
    TYPED_TEXT,
    st.sampled_from(
        ["|" * 300, "\n" * 99, "a|b|c\n1|1|1|", "é" * 100, "$(id)", "'\";"]
    ),
)


def by_name(scenario: str) -> dict[str, JobRecord]:
    return {job.name: job for job in parse_squeue(recorded(scenario, "jobs.txt"))}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_recording_was_made_by_the_command_built_today(scenario: str) -> None:
    commands = recorded(scenario, "commands.txt").splitlines()

    line = next(line for line in commands if line.startswith("jobs.txt: "))

    assert line.replace("'", "").removeprefix("jobs.txt: ") == " ".join(squeue_argv())


def test_an_empty_queue_is_a_header_and_no_job() -> None:
    assert parse_squeue(recorded("quiet", "jobs.txt")) == ()


def test_a_recorded_plan_has_its_start_and_its_nodes() -> None:
    job = by_name("busy")["big"]

    assert job.is_planned
    assert job.planned_nodes == "n[1,3-7]"
    assert job.start_s == 1_795_253_581.0
    assert (job.limit_s, job.node_count, job.partitions) == (3600.0, 6, ("main",))
    assert job.reason == "ReqNodeNotAvail, UnavailableNodes:n2"


def test_a_start_asked_for_with_begin_is_no_plan() -> None:
    job = by_name("busy")["later"]

    assert job.start_s == job.eligible_s
    assert job.start_s is not None
    assert not job.is_planned
    assert job.reason == "BeginTime"


def test_an_unknown_start_is_not_a_known_one() -> None:
    job = by_name("busy")["dep"]

    assert job.start_s is None
    assert job.dependency.startswith("afterok:2")


def test_names_with_separators_quotes_and_line_breaks_are_read_as_they_are() -> None:
    jobs = by_name("busy")

    weird = jobs["we|ird \"name\"  with 'quotes'  é雪"]
    assert weird.comment == 'pipe|comment "x"  $(id); é'
    assert weird.user == "trainer"
    assert jobs["new\nline\ttab"].comment == "two\nlines Foo=bar JobId=99"


def test_a_name_cut_within_a_letter_spoils_nothing() -> None:
    job = next(job for name, job in by_name("busy").items() if name.startswith("éé"))

    assert job.name == "é" * 50
    assert job.gres_per_node == "gres:gpu:a100:1"


def test_array_tasks_keep_both_of_their_numbers() -> None:
    jobs = parse_squeue(recorded("busy", "jobs.txt"))

    tasks = [job for job in jobs if job.name == "arr"]
    waiting = next(job for job in tasks if job.is_pending)
    first = next(job for job in tasks if job.array_task_id == 0)
    assert (waiting.display_id, waiting.array_tasks) == ("22_[2-20%2]", "2-20%2")
    assert (waiting.job_id, waiting.array_job_id, waiting.array_task_id) == (
        22,
        22,
        None,
    )
    assert (first.display_id, first.job_id, first.array_job_id) == ("22_0", 27, 22)


def test_a_job_outside_of_arrays_has_no_array_number() -> None:
    job = by_name("busy")["big"]

    assert (job.array_job_id, job.array_task_id, job.array_tasks) == (None, None, "")


def test_a_held_job_has_priority_0_and_a_lease_its_nice_value() -> None:
    assert by_name("busy")["held"].priority == 0
    assert by_name("leases")["ft-0b5e"].nice == 10_000


@given(st.lists(st.tuples(HOSTILE, HOSTILE, HOSTILE), max_size=5))
def test_no_text_of_a_user_changes_another_column(
    texts: list[tuple[str, str, str]],
) -> None:
    rows = [
        {
            "JobID": str(number),
            "Name": name,
            "Comment": comment,
            "Feature": features,
            "SchedNodes": f"n[1-{number + 2}]",
            "StartTime": "2026-11-21T08:22:20",
        }
        for number, (name, comment, features) in enumerate(texts)
    ]

    jobs = parse_squeue(squeue_text(rows))

    assert [job.job_id for job in jobs] == list(range(len(texts)))
    assert [job.planned_nodes for job in jobs] == [row["SchedNodes"] for row in rows]
    assert {job.start_s for job in jobs} <= {1_795_249_340.0}


@pytest.mark.parametrize(
    ("column", "text", "field", "value"),
    [
        ("TimeLimit", "UNLIMITED", "limit_s", math.inf),
        ("TimeLimit", "NOT_SET", "limit_s", None),
        ("TimeLimit", "2-03:04:05", "limit_s", 183_845.0),
        ("TimeLimit", "10:00", "limit_s", 600.0),
        ("NumNodes", "2-4", "node_count", 2),
        ("NumCPUs", "4K", "cpu_count", 4096),
        ("State", "COMPLETING", "states", frozenset({JobState.COMPLETING})),
        ("State", "BEWITCHED", "unknown_states", frozenset({"BEWITCHED"})),
        ("Partition", "a,b", "partitions", ("a", "b")),
        ("Nice", "-5", "nice", -5),
    ],
)
def test_values_are_read_in_all_their_forms(
    column: str, text: str, field: str, value: object
) -> None:
    (job,) = parse_squeue(squeue_text([{"JobID": "1", column: text}]))

    assert getattr(job, field) == value


@pytest.mark.parametrize(
    ("column", "text"),
    [
        *(("JobID", "x"), ("StartTime", "tomorrow"), ("TimeLimit", "soon")),
        *(("Nice", "a lot"), ("NumNodes", "many"), ("UserID", "me")),
    ],
)
def test_a_value_that_is_none_is_refused_and_its_line_named(
    column: str, text: str
) -> None:
    answer = squeue_text(
        [{"JobID": "1", "Name": "two\nlines"}, {"JobID": "2", column: text}]
    )

    with pytest.raises(UnreadableOutputError, match="line 4 of `squeue`"):
        parse_squeue(answer)


@pytest.mark.parametrize("answer", ["", "\n", " \n \n"])
def test_an_empty_answer_is_a_failed_query(answer: str) -> None:
    with pytest.raises(UnreadableOutputError, match="empty"):
        parse_squeue(answer)


@pytest.mark.parametrize("scenario", ["busy", "leases"])
def test_an_answer_cut_anywhere_is_refused_or_ends_with_a_whole_job(
    scenario: str,
) -> None:
    answer = recorded(scenario, "jobs.txt")
    whole = parse_squeue(answer)

    for at in range(1, len(answer), 7):
        try:
            jobs = parse_squeue(answer[:at])
        except UnreadableOutputError:
            continue
        assert jobs == whole[: len(jobs)]
        assert answer[at - 1] == "\n"


def test_a_field_that_a_release_does_not_know_is_noticed() -> None:
    answer = recorded("busy", "jobs.txt")

    shorter = re.sub(r"\|[^|\n]*\|$", "|", answer, flags=re.MULTILINE)

    with pytest.raises(UnreadableOutputError, match="line 1 of `squeue`"):
        parse_squeue(shorter)


def test_garbage_is_refused() -> None:
    with pytest.raises(UnreadableOutputError, match="Name is not"):
        parse_squeue("slurm_load_jobs error: Invalid job id specified\n")


def test_nodes_are_asked_for_uncut_and_users_columns_at_a_width() -> None:
    (format_option,) = [a for a in squeue_argv() if a.startswith("--Format=")]
    fields = format_option.removeprefix("--Format=").split(",")

    assert "SchedNodes:|" in fields
    assert fields[: len(TYPED_WIDTHS)] == [f"{f}:{w}|" for f, w in TYPED_WIDTHS.items()]
    assert len(fields) == len(TYPED_WIDTHS) + len(FREE_WIDTH_COLUMNS)


def test_jobs_are_looked_up_by_name_one_line_a_task() -> None:
    argv = squeue_argv(names=["ft-1", "ft-2"], all_states=True)

    assert argv[-3:] == ["--array", "--name=ft-1,ft-2", "--states=all"]


@pytest.mark.parametrize("name", ["", "a,b", "a\0b"])
def test_a_name_that_would_be_read_as_several_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot look for"):
        squeue_argv(names=[name])
