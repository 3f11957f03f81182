"""What is said where figures are larger than a site can expect."""

from dataclasses import replace

from freetrain.cli.cautions import cautions, ran_out
from freetrain.replay.timeline import PoolTimeline
from logs.fragments import read_fragments
from tests.logs.readers.log_content import content
from tests.report.comparisons import result


def told(*lines: str, days: float | None = None) -> tuple[str, ...]:
    log = content("# 10 nodes", "node,idle_start_s,idle_end_s", *lines)
    return cautions(PoolTimeline.from_trace(read_fragments(log), days=days))


def test_nothing_is_said_of_a_log_without_outages() -> None:
    assert told("0,0,86400", "1,100,86400") == ()


def test_outages_are_told_with_their_share_of_time_and_of_node_time() -> None:
    outage = [f"{node},21600,43200" for node in range(1, 10)]

    (said,) = told("0,0,86400", *outage)

    share = 10 * 21600 / (86400 + 9 * 21600)
    assert "were idle for 25.0 % of the time" in said
    assert f"which holds {100 * share:.1f} % of the idle node-time" in said


def test_a_short_outage_is_not_worth_telling() -> None:
    assert told("0,0,86400", *(f"{node},0,30" for node in range(1, 10))) == ()


def test_a_replay_that_outlasts_its_log_is_told() -> None:
    (said,) = told("0,0,43200", days=2)

    assert said == "The log ends 1.5 d before the replay: nothing is idle from there."


def test_a_log_that_begins_late_tells_how_to_leave_that_out() -> None:
    (said,) = told("0,1700000000,1700003600")

    assert said == (
        "Nothing is idle in the first 19676 d: --start can leave 1700000000 s out."
    )


def test_policies_that_ran_out_of_trainers_are_told() -> None:
    results = (result("freetrain", days=2.0), result("equal", days=3.0))

    said = ran_out(results, trainers=90, span_s=3 * 86400)

    assert said == (
        "All trainers were done before the end, after: freetrain 2 d. "
        "--requeue keeps them coming."
    )
    assert ran_out(results, trainers=91, span_s=3 * 86400) == ""


def test_priorities_that_ran_out_of_trainers_are_told_apart() -> None:
    one = result("freetrain", days=2.0)
    results = (one, replace(one, priority="fair"))

    said = ran_out(results, trainers=90, span_s=3 * 86400)

    assert "after: throughput 2 d, fair 2 d. " in said
