"""What a log says is read once: trace info, trace holes and replays agree on it."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.replay.pool import PoolTimeline, idle_of
from freetrain.replay.settings import Accounting
from logs.csv_tables import Fragments
from logs.format import Content
from logs.read import read_trace
from logs.sacct import Sacct
from logs.simulation import Method
from logs.summary import IdleSummary, JobSummary, summarise
from logs.trace import Job, JobTrace
from tests.cli.commands import run, run_json
from tests.schedule.instances import traces

HEAD = "job,submit_s,start_s,run_s,nodes\n"
BUSY_FROM_1000_S = f"# 2 nodes\n{HEAD}a,0,0,1000,1\nb,0,1000,99000,2\n"
SACCT = "JobIDRaw|Submit|Start|End|NNodes|NodeList\n"
THREE_JOBS_ON_ONE_NODE = SACCT + "".join(
    f"{job}|0|{job}|10|1|n1\n" for job in range(1, 4)
)


def replayed(log: str, *options: str) -> dict[str, Any]:
    few = ("--trainers", "hps", "--policy", "equal", *options)
    found: dict[str, Any] = run_json("replay", log, *few)[0]
    return found


def holes_of(log: str) -> list[tuple[str, float, float]]:
    found: Any = run_json("trace", "holes", log)
    return [(hole["node"], hole["start_s"], hole["end_s"]) for hole in found]


@pytest.mark.parametrize("accounting", list(Accounting))
def test_a_replay_lasts_to_the_log_s_end_though_no_node_is_idle_any_more(
    accounting: str,
) -> None:
    Path("busy.csv").write_text(BUSY_FROM_1000_S)

    info = run_json("trace", "info", "busy.csv")
    result = replayed("busy.csv", "--accounting", accounting)

    # Node 1 is idle from 0 to 1,000, of 2 nodes x 100,000 s.
    assert info["span_s"] == result["end_s"] == 100_000
    assert info["idle_node_s"] == result["pool_node_s"] == 1_000
    assert info["used_node_s"] == 199_000
    assert info["utilisation"] == 0.995
    assert result["eq_nodes"] == info["mean_idle_nodes"] == 0.01
    assert holes_of("busy.csv") == [("1", 0, 1_000)]


def test_a_list_of_holes_says_when_the_log_ends() -> None:
    Path("busy.csv").write_text(BUSY_FROM_1000_S)

    run("trace", "holes", "busy.csv", "--out", "holes.csv")

    assert "# ends_s=100000\n" in Path("holes.csv").read_text()
    assert run_json("trace", "info", "holes.csv")["span_s"] == 100_000
    assert replayed("holes.csv")["end_s"] == 100_000


def test_jobs_that_share_a_node_are_on_that_node_and_on_no_other() -> None:
    # From 1, 2 and 3 s until 10 s; n1 is idle from 0 to 1.
    Path("shared.sacct").write_text(THREE_JOBS_ON_ONE_NODE)

    info = run_json("trace", "info", "shared.sacct")

    assert info["machine_nodes"] == 1
    assert (info["used_node_s"], info["idle_node_s"]) == (9, 1)
    # Two or three jobs are on it from 2 to 10.
    assert info["partly_used_node_s"] == 8
    assert info["utilisation"] == 0.9
    assert holes_of("shared.sacct") == [("n1", 0, 1)]


def test_a_node_is_idle_again_once_the_last_job_on_it_has_ended() -> None:
    rows = ("1|0|0|10|1|n1", "2|0|5|20|1|n1", "3|0|0|30|1|n2")
    Path("shared.sacct").write_text(SACCT + "".join(f"{row}\n" for row in rows))

    assert holes_of("shared.sacct") == [("n1", 20, 30)]


def test_a_machine_has_the_nodes_that_jobs_name_also_where_few_ran_at_once() -> None:
    rows = ("1|0|0|10|1|n1", "2|0|20|30|1|n2", "3|0|40|50|1|n3")
    Path("named.sacct").write_text(SACCT + "".join(f"{row}\n" for row in rows))

    info = run_json("trace", "info", "named.sacct")

    assert info["machine_nodes"] == info["machine_units"] == 3
    assert info["idle_node_s"] == 3 * 50 - 30


def test_names_count_for_all_jobs_or_for_none() -> None:
    # Where job 2 ran nobody knows; by number they fill nodes 0 to 2.
    rows = ("1|0|0|10|1|n7", "2|0|0|10|2|", "3|0|10|20|1|n8")
    Path("half.sacct").write_text(SACCT + "".join(f"{row}\n" for row in rows))

    ran = run("trace", "holes", "half.sacct", "--json")

    nodes = {hole["node"] for hole in json.loads(ran.stdout)}
    assert nodes == {"1", "2"}
    assert "1 job of 3 that ran without a node list" in ran.stderr


def test_a_job_that_slurm_gave_no_nodes_never_ran_where_other_jobs_name_theirs() -> (
    None
):
    rows = ("1|0|0|10|1|n7", "2|0|0|10|2|None assigned", "3|0|10|20|1|n8")
    Path("one.sacct").write_text(SACCT + "".join(f"{row}\n" for row in rows))

    info = run_json("trace", "info", "one.sacct")

    assert (info["machine_nodes"], info["never_ran_jobs"]) == (2, 1)
    assert info["cautions"] == [
        "1 job left out: the log gives them a run time and no nodes (None assigned)."
    ]
    assert holes_of("one.sacct") == [("n8", 0, 10), ("n7", 10, 20)]


def test_a_node_of_which_a_part_is_used_is_neither_a_hole_nor_idle() -> None:
    # Nodes of 4 processors: 0-10 s one processor of node 0, then all of both.
    line = "{} {} 0 10 {} -1 -1 -1 -1 -1 1 -1 -1 -1 -1 -1 -1 -1\n"
    head = "; MaxNodes: 2\n; MaxProcs: 8\n"
    Path("parts.swf").write_text(head + line.format(1, 0, 1) + line.format(2, 10, 8))

    info = run_json("trace", "info", "parts.swf")

    assert holes_of("parts.swf") == [("1", 0, 10)]
    assert (info["used_node_s"], info["idle_node_s"]) == (30, 10)
    assert info["partly_used_node_s"] == 10
    assert info["utilisation"] == (10 + 80) / 160


# The same for any log.


def agree(trace: JobTrace) -> None:
    """Check that info, holes, a list of holes and a replay say the same of *trace*."""
    info = summarise(trace)
    assert isinstance(info, JobSummary)
    idle, _ = idle_of(trace, Method.RECORDED)
    idle_node_s = float(((idle.end_s - idle.start_s) * idle.widths).sum())
    assert info.idle_node_s == pytest.approx(idle_node_s)
    assert info.machine_nodes == len(idle.node_names)
    assert info.span_s == idle.span_s
    capacity = info.machine_nodes * info.span_s
    assert info.used_node_s + info.idle_node_s == pytest.approx(capacity)
    assert 0 <= info.partly_used_node_s <= info.used_node_s
    if not len(idle.node):
        return
    timeline = PoolTimeline.from_trace(idle)
    assert timeline.horizon_s == info.span_s
    assert timeline.mean_nodes == pytest.approx(info.mean_idle_nodes)
    text = io.StringIO()
    Fragments().write(idle, text)
    again = Fragments().read(Content("holes", text.getvalue().encode()))
    listed = summarise(again)
    assert isinstance(listed, IdleSummary)
    assert (listed.span_s, listed.idle_node_s) == (info.span_s, idle_node_s)


@given(traces(), st.integers(1, 4))
def test_info_holes_and_replay_agree_on_any_log(
    trace: JobTrace, units_per_node: int
) -> None:
    agree(
        JobTrace("log", "swf", trace.jobs, trace.units, units_per_node=units_per_node)
    )


@st.composite
def dumps(draw: st.DrawFn) -> str:
    """Up to ten jobs on nodes that they may share, each named or only counted."""
    nodes = st.lists(st.sampled_from(["n1", "n2", "n10", "m3"]), min_size=1, max_size=4)
    is_named = draw(st.sampled_from([st.just(value=True), st.booleans()]))
    rows = []
    for number in range(draw(st.integers(1, 10))):
        names = sorted(set(draw(nodes)))
        submit_s, wait_s, run_s = (draw(st.integers(0, 30)) for _ in range(3))
        start_s = submit_s + wait_s
        listed = ",".join(names) if draw(is_named) else ""
        rows.append(
            f"{number}|{submit_s}|{start_s}|{start_s + run_s}|{len(names)}|{listed}\n"
        )
    return SACCT + "".join(rows)


@given(dumps())
def test_no_machine_has_a_node_that_its_log_does_not_name(dump: str) -> None:
    trace = Sacct().read(Content("dump", dump.encode()))
    named = {name for job in trace.jobs for name in job.nodes}

    idle, _ = idle_of(trace, Method.RECORDED)

    agree(trace)
    if named:
        assert set(idle.node_names) == named
        for job in trace.jobs:
            if job.start_s is None:  # never had a node
                continue
            for node, idle_start_s, idle_end_s in idle.rows():
                name = idle.node_names[node]
                overlaps = (
                    idle_start_s < job.start_s + job.run_s and job.start_s < idle_end_s
                )
                assert not (overlaps and job.run_s and name in job.nodes)


def test_a_trace_in_which_only_some_jobs_name_nodes_cannot_be_made() -> None:
    jobs = (
        Job("1", 0, 0, 10, 1, None, nodes=("n1",)),
        Job("2", 0, 0, 10, 1, None),
    )

    with pytest.raises(ValueError, match="'2' names 0 nodes and holds 1"):
        JobTrace("log", "sacct", jobs, 2)


@pytest.mark.shared
@pytest.mark.parametrize("log", ["KTH-SP2-1996.swf.gz", "theta_2022.csv.gz"])
def test_info_holes_and_replay_agree_on_real_logs(log: str, shared: Path) -> None:
    trace = read_trace(shared / "logs" / log)
    assert isinstance(trace, JobTrace)

    agree(trace)
