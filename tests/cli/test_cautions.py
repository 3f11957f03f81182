"""What is said where figures are larger than a site can expect."""

from dataclasses import replace
from pathlib import Path

import pytest

from freetrain.api.compare import (
    hole_cautions,
    missing_basis,
    ran_out,
)
from freetrain.replay.pool import PoolTimeline
from freetrain.replay.trainers import builtin_trainers
from logs.csv_tables import Fragments
from tests.cli.commands import run
from tests.logs.log_content import content
from tests.report.comparisons import result

OUTAGE = [f"{node},21600,43200" for node in range(1, 10)]
SHARE = 100 * 10 * 21600 / (86400 + 9 * 21600)


@pytest.mark.parametrize(
    ("rows", "days", "said"),
    [
        (["0,0,86400", "1,100,86400"], None, []),
        (
            ["0,0,86400", *OUTAGE],
            None,
            ["idle for 25.0 % of the time", f"holds {SHARE:.1f} % of the idle node-"],
        ),
        (["0,0,86400", *(f"{node},0,30" for node in range(1, 10))], None, []),
        (["0,5000,9000"], 0.01, ["Nothing is idle in the first"]),
        (
            ["0,0,43200"],
            2,
            ["The log ends 1.5 d before the replay: nothing is idle from there."],
        ),
        (
            ["0,1700000000,1700003600"],
            None,
            ["Nothing is idle in the first 19676 d: --start can ", "1700000000 s out."],
        ),
    ],
    ids=[
        "no outage",
        "an outage with its shares",
        "an outage too short to matter",
        "nothing idle in the span",
        "a replay that outlasts its log",
        "a log that begins late",
    ],
)
def test_traits_of_the_holes_that_inflate_figures_are_reported(
    rows: list[str], days: float | None, said: list[str]
) -> None:
    log = content("# 10 nodes", "node,idle_start_s,idle_end_s", *rows)
    timeline = PoolTimeline.from_trace(Fragments().read(log), days=days)

    cautions = hole_cautions(timeline)

    assert len(cautions) == bool(said)
    assert all(part in cautions[0] for part in said)


def test_policies_that_ran_out_of_trainers_are_told() -> None:
    results = (result("freetrain", days=2.0), result("equal", days=3.0))

    said = ran_out(results, trainers=90, span_s=3 * 86400)

    assert said == (
        "All trainers were done before the end, after: freetrain 2 d. "
        "--requeue keeps them coming."
    )
    assert ran_out(results, trainers=91, span_s=3 * 86400) == ""


def test_priorities_that_have_missing_basis_are_told() -> None:
    one = result("freetrain")
    names = ("slaq", "weight", "deadline", "flowcon")
    results = [replace(one, priority=name) for name in names]
    trainers = builtin_trainers("hps")[:2]

    assert missing_basis(results, trainers) == (
        "No trainer tells a loss, which is what flowcon, slaq would go by.",
        "No trainer has a deadline, which is what deadline would go by.",
    )
    late = replace(trainers[0], deadline_s=9.0)
    assert len(missing_basis(results, [late, *trainers])) == 1
    assert missing_basis([one, replace(results[0], policy="equal")], trainers) == ()


def test_a_replay_says_that_its_trainers_tell_no_loss() -> None:
    words = ("replay", "--pool", "4", "--trainers", "mine.toml", "--priority", "slaq")
    text = '[[trainer]]\nname = "a"\nsamples = 1e4\nmodel = "vgg16"\n'
    Path("mine.toml").write_text(text)

    shown = run(*words, "--policy", "freetrain").stdout

    assert "No trainer tells a loss, which is what slaq would go by." in shown


def test_priorities_that_ran_out_of_trainers_are_told_apart() -> None:
    one = result("freetrain", days=2.0)
    results = (one, replace(one, priority="fair"))

    said = ran_out(results, trainers=90, span_s=3 * 86400)

    assert "after: throughput 2 d, fair 2 d. " in said
