"""``freetrain assess``: what it finds in a log, what it says, and what it writes."""

import re
from pathlib import Path

import pytest

import freetrain as ft
from freetrain.api.assess import IdleShare
from tests.cli.commands import refused, run, run_json, written

MACHINE = """\
# 4 nodes
job,submit_s,start_s,run_s,nodes,req_s,user
a,0,0,100,3,200,u1
b,50,100,100,2,200,u1
c,150,300,100,1,200,u2
e,200,200,100,3,200,u2
"""
"""By hand, in node-seconds idle: 0 to 50 one node, and none waits; to 100 one, and b
waits for two; to 150 two, and none waits; to 200 two, and c waits for one; to 300 one,
and c waits; to 400 three, and none waits."""

DAYS = 6
EVENINGS = "# 8 nodes\njob,submit_s,start_s,run_s,nodes,req_s,user\n" + "".join(
    f"{hour},{hour * 3600},{hour * 3600},3600,{6 if hour % 24 else 1},7200,u\n"
    for hour in range(24 * DAYS)
    if hour % 24 < 20 and not 24 <= hour < 72
)
"""Six of eight nodes are taken, one at midnight, and none in the evenings and on two of
the days."""


@pytest.fixture
def machine() -> Path:
    log = Path("machine.csv")
    log.write_text(MACHINE)
    return log


def test_idle_time_is_told_apart_by_what_waited(machine: Path) -> None:
    found = run_json("assess", machine)

    assert found["machine"] == 4
    assert found["reasons"] == pytest.approx(
        {
            "outage": 100 / 700,
            "quiet": 400 / 700,
            "no-job": 50 / 700,
            "too-large": 50 / 700,
            "held": 100 / 700,
        }
    )
    assert found["idle_mean"] == pytest.approx(700 / 400)
    assert found["normal_share"] == pytest.approx(200 / 400)
    assert found["normal_idle"] == pytest.approx(1.0)
    assert found["load"]["listed_most"] == 2


def test_training_is_worth_no_more_than_what_was_idle() -> None:
    rows = [f"{node},0,{172_800 if node else 345_600}" for node in range(4)]
    rows += [f"{node},0,1" for node in range(4, 12)]  # a larger machine
    Path("idle.csv").write_text("node,idle_start_s,idle_end_s\n" + "\n".join(rows))

    found = run_json("assess", "idle.csv")

    gains = {(gain["policy"], gain["about"]): gain for gain in found["gains"]}
    assert len(gains) == len(found["gains"])
    many = gains["freetrain", "ShuffleNet, 100 at a time"]
    wide = gains["freetrain", "ShuffleNet from 4 nodes on, 20 at a time"]
    assert 0.95 < many["share"]["mean"] <= 1.0
    # Four nodes are idle at once for half of the time, which is 4/5 of the node-time.
    assert wide["share"]["mean"] == pytest.approx(0.8, abs=0.03)
    assert found["reasons"] == {}
    assert found["loop"] is None


def test_the_interval_of_a_share_leaves_out_one_piece_at_a_time() -> None:
    share = IdleShare.of([5.0, 11.0, 14.0], [10.0, 20.0, 30.0])

    # Without one each .5, .475 and .5333: an error of .0338, times 4.303.
    assert share.mean == pytest.approx(0.5)
    assert (share.low, share.high) == pytest.approx((0.3546, 0.6454), abs=1e-4)
    assert IdleShare.of([1.0], [4.0]) == IdleShare(mean=0.25, low=None, high=None)


def test_pieces_are_of_the_time_without_outages() -> None:
    Path("evenings.csv").write_text(EVENINGS)

    found = run_json("assess", "evenings.csv")

    begins, length_s = found["pieces"], found["piece_s"]
    assert found["are_normal"]
    assert len(begins) >= 5
    for begin_s in begins:
        hours = range(int(begin_s // 3600), int((begin_s + length_s) // 3600))
        assert [h for h in hours if h % 24 in {0, 20, 21, 22, 23}] == []
        assert [h for h in hours if 24 <= h < 72] == []


def test_waits_are_compared_over_the_jobs_that_came_meanwhile() -> None:
    made = run("trace", "generate", "--nodes", "32", "--days", "3", "--out", "w.swf")
    assert made.code == 0

    loop = run_json("assess", "w.swf")["loop"]
    submit_s = ft.read_log("w.swf").jobs.submit_s
    meanwhile = submit_s.between(loop["start_s"], loop["start_s"] + loop["span_s"])

    assert [found["mode"] for found in loop["modes"]] == ["preempt", "yield"]
    for found in loop["modes"]:
        assert found["harm"]["jobs"] >= meanwhile.sum() > 0  # and those that waited
        assert found["harm"]["met"] > 0
        assert 0.5 < found["coverage"] <= 1.0
    assert loop["modes"][0]["harm"]["waited_most_s"] <= 30.0


def test_the_page_needs_nothing_else_and_is_the_same_twice(machine: Path) -> None:
    first = run("assess", machine)
    page = Path("freetrain-assess.html").read_text()
    again = run("assess", machine, "--out", "again.html")

    assert (first.code, again.code) == (0, 0)
    assert Path("again.html").read_text() == page
    assert "default-src 'none'" in page
    assert not re.search(r"(src|href)=|<script", page)
    for heading in ("stands idle", "be gained", "others would wait", "cannot tell"):
        assert heading in page
    assert "freetrain-assess.html" in first.stdout
    assert "Of all that stood idle: 14 % half of the machine" in first.stdout


def test_only_its_own_page_is_replaced_unasked(machine: Path) -> None:
    Path("mine.html").write_text("mine")

    assert run("assess", machine).code == 0
    machine.write_text(MACHINE.replace("a,0,0,100", "a,0,0,90"))
    assert run("assess", machine).code == 0
    assert run("assess", machine, "--out", "mine.html").code != 0
    assert Path("mine.html").read_text() == "mine"


def test_json_writes_no_page_unless_asked(machine: Path) -> None:
    run_json("assess", machine)

    assert not list(Path().glob("*.html"))


def test_a_log_without_starts_is_placed_and_says_so() -> None:
    rows = [row.split(",") for row in MACHINE.splitlines()[2:]]
    text = "".join(",".join([*r[:2], "-1", *r[3:]]) + "\n" for r in rows)
    Path("waits.csv").write_text("\n".join(MACHINE.splitlines()[:2]) + "\n" + text)

    found = run_json("assess", "waits.csv")

    assert found["schedule"] == "easy"
    assert found["reasons"] == {}
    assert any("simulated scheduler" in line for line in found["cautions"])


def test_gpus_are_counted_where_a_log_counts_them() -> None:
    rows = [f"{k},{1 + k % 3},1,{600 * k},{600 * k},{600 * k + 900}" for k in range(40)]
    head = "job_id,gpu_num,node_num,submit_time,start_time,end_time\n"
    Path("gpus.csv").write_text("# 2 nodes, gpus_per_node=4\n" + head + "\n".join(rows))

    found = run_json("assess", "gpus.csv")

    assert (found["unit"], found["machine"], found["nodes"]) == ("GPU", 8, 2)
    assert {gain["lease_gpus"] for gain in found["gains"]} == {1, 4}
    assert run("assess", "gpus.csv").stdout.count("on whole nodes of 4 GPUs") == 4


def test_a_log_with_nothing_idle_is_refused() -> None:
    written()
    Path("full.csv").write_text(
        "job,submit_s,start_s,run_s,nodes,req_s,user\na,0,0,600,2,1200,u1\n"
    )

    said = refused("assess", "full.csv", code=65)

    assert "there is nothing to assess and nothing was done" in said
