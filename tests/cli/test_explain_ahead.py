"""``freetrain explain`` where ticks look ahead: what is expected, and what came."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pytest

from freetrain.broker.actions import HoleReason
from freetrain.lookahead.base import NodeForecast
from freetrain.lookahead.promises import DelayInterval
from freetrain.tick.status_report import HoleLine, LeaseOutcome, TrainerLine
from tests.cli.desk_files import at_home, run_json
from tests.cli.worlds import NOW_S, run
from tests.client.client_states import a_page, assign, put_page

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.state.files import StateDir

SOON = NodeForecast(
    horizon_s=400.0,
    leaves=0.25,
    even_s=960.0,
    together=3,
    promised_s=NOW_S + 500.0,
    is_learning=False,
)
CAME = LeaseOutcome(
    name="u-0",
    node="n9",
    at_s=NOW_S - 700.0,
    horizon_s=400.0,
    leaves=0.1,
    even_s=3_840.0,
    promised_s=None,
    ended_s=NOW_S - 100.0,
    came="preempted",
)
PROMISES = DelayInterval(
    lead_s=600.0,
    nodes=12,
    early=0.5,
    late=0.25,
    low_s=-300.0,
    middle_s=-30.0,
    high_s=120.0,
)


@pytest.fixture
def digits(tmp_path: Path) -> StateDir:
    state = at_home(tmp_path)
    assert run("submit", "job.toml", cwd=tmp_path).code == 0
    return state


def hole(
    number: int, reason: HoleReason, expected: NodeForecast, trainer: str = ""
) -> HoleLine:
    return HoleLine(
        node=f"n{number}", reason=str(reason), expected=expected, trainer=trainer
    )


def looked_ahead(state: StateDir) -> None:
    """Let a tick have told what it expects of two nodes, and what came of others."""
    line = TrainerLine(name="digits", state="wanted", node_names=("n1",))
    holes = (
        hole(1, HoleReason.TRAINING, SOON, trainer="digits"),
        hole(
            2,
            HoleReason.UNWANTED,
            replace(SOON, promised_s=None, together=1, even_s=0.0),
        ),
    )
    page = a_page(
        at_s=NOW_S - 90.0,
        trainers=(line,),
        holes=holes,
        came=(CAME,),
        promises=(PROMISES,),
        leaves=12,
        leaf_rate=0.625,
    )
    put_page(state, page)


def test_what_is_expected_of_a_trainers_nodes_is_told(
    tmp_path: Path, digits: StateDir
) -> None:
    assign(digits, "digits", 1, nodes=1)
    looked_ahead(digits)

    lines = " ".join(run("explain", "digits", cwd=tmp_path).stdout.split())

    assert (
        "Expected of n1: 25 % to leave within 6 min; as likely as not to stay 16 min "
        "or longer; together with 2 nodes more; promised to somebody's job in 8 min."
    ) in lines
    assert "Expected of n2" not in lines


def test_what_is_learned_of_other_nodes_only_is_no_caution(
    tmp_path: Path, digits: StateDir
) -> None:
    line = TrainerLine(name="digits", state="wanted", node_names=("n1",))
    holes = (
        hole(1, HoleReason.TRAINING, SOON, trainer="digits"),
        hole(2, HoleReason.UNWANTED, replace(SOON, is_learning=True)),
    )
    assign(digits, "digits", 1, nodes=1)
    put_page(digits, a_page(at_s=NOW_S - 90.0, trainers=(line,), holes=holes))

    assert "Too little" not in run("explain", "digits", cwd=tmp_path).stdout
    assert "Too little was seen" in run("explain", cwd=tmp_path).stdout


def test_what_was_expected_and_what_came_is_told_with_the_holes(
    tmp_path: Path, digits: StateDir
) -> None:
    looked_ahead(digits)

    lines = " ".join(run("explain", cwd=tmp_path).stdout.split())

    assert "Expected of n2: 25 % to leave within 6 min; more likely than not" in lines
    assert (
        "1 min 40 s ago: the lease on n9 was over after 10 min (preempted); expected "
        "were 10 % to leave within 6 min."
    ) in lines
    assert (
        "Of 12 nodes promised 10 min ahead or more, 50 % left early and 25 % late; "
        "eight of ten between 5 min early and 2 min late, half by 30 s early."
    ) in lines
    assert (
        "Slurm tells 12 leaf switches or blocks: two idle nodes below one are taken to "
        "leave together 62 % of the times that either leaves."
    ) in lines


def test_who_goes_first_for_its_place_in_line_is_told(
    tmp_path: Path, digits: StateDir
) -> None:
    alone = replace(SOON, together=1, promised_s=None)
    told = {
        1: replace(alone, run=4, times_in_line=2.5),
        2: replace(alone, run=4, times_in_line=2.5),
        3: replace(alone, run=4, times_in_line=0.5),
        4: SOON,
    }
    holes = tuple(hole(k, HoleReason.UNWANTED, one) for k, one in told.items())
    line = TrainerLine(name="digits", state="wanted", node_names=("n1",))
    put_page(digits, a_page(at_s=NOW_S - 90.0, trainers=(line,), holes=holes))

    lines = " ".join(run("explain", cwd=tmp_path).stdout.split())
    own = run("explain", "digits", cwd=tmp_path).stdout
    record = run_json("explain", cwd=tmp_path)

    assert "Expected of n[1-2]: 25 % to leave within 6 min" in lines
    assert "or longer; for its place in line 2.5 times as likely as others." in lines
    assert (
        "Neighbours by name leave together here, up to 4 nodes in a row. For their "
        "place among them n[1-2] are expected first, n3 last."
    ) in lines
    assert "2.5 times as likely" in " ".join(own.split())
    assert "Neighbours" not in own
    expected = [one["expected"] for one in record["holes"][:4]]
    assert [one["run"] for one in expected] == [4, 4, 4, 1]
    assert [one["times_in_line"] for one in expected] == [2.5, 2.5, 0.5, 1.0]


def test_nothing_is_said_of_a_line_where_neighbours_are_strangers(
    tmp_path: Path, digits: StateDir
) -> None:
    looked_ahead(digits)

    shown = run("explain", cwd=tmp_path).stdout

    assert "Neighbours" not in shown
    assert "in line" not in shown


def test_all_alike_in_line_are_neither_first_nor_last(
    tmp_path: Path, digits: StateDir
) -> None:
    both = replace(SOON, run=4, times_in_line=2.5)
    holes = tuple(hole(k, HoleReason.UNWANTED, both) for k in (1, 2))
    put_page(digits, a_page(at_s=NOW_S - 90.0, holes=holes))

    shown = " ".join(run("explain", cwd=tmp_path).stdout.split())

    assert "Neighbours by name leave together here, up to 4 nodes in a row." in shown
    assert "For their place" not in shown


def test_who_looks_ahead_is_named(tmp_path: Path, digits: StateDir) -> None:
    put_page(digits, a_page(at_s=NOW_S - 90.0))
    before = run("explain", cwd=tmp_path).stdout + run("status", cwd=tmp_path).stdout
    verbs = ("explain", "status")
    nobody = [run_json(verb, cwd=tmp_path)["forecaster"] for verb in verbs]
    put_page(digits, a_page(at_s=NOW_S - 90.0, forecaster="life-table"))

    named = [run_json(verb, cwd=tmp_path)["forecaster"] for verb in verbs]

    assert "life-table" not in before
    assert (nobody, named) == ([None, None], ["life-table", "life-table"])
    assert (
        "How long nodes stay is foretold by life-table."
        in run("explain", cwd=tmp_path).stdout
    )
    assert (
        "Last tick 1 min 30 s ago. It looks ahead by the forecaster life-table."
        in " ".join(run("status", cwd=tmp_path).stdout.split())
    )


def test_that_ticks_are_missing_is_said_of_the_last_one(
    tmp_path: Path, digits: StateDir
) -> None:
    put_page(digits, a_page(at_s=NOW_S - 960.0, forecaster="learned"))

    said = " ".join(run("status", cwd=tmp_path).stdout.split())

    assert "Last tick 16 min ago. That is long: does cron call it?" in said
    assert said.endswith("It looks ahead by the forecaster learned.")


def test_what_came_is_told_where_no_hole_is_left(
    tmp_path: Path, digits: StateDir
) -> None:
    put_page(digits, a_page(at_s=NOW_S - 90.0, came=(CAME,), promises=(PROMISES,)))

    lines = " ".join(run("explain", cwd=tmp_path).stdout.split())

    assert "the lease on n9 was over after 10 min (preempted)" in lines
    assert "Of 12 nodes promised 10 min ahead or more" in lines
    assert "It saw no hole." in lines


def test_programs_are_told_what_was_expected_and_what_came(
    tmp_path: Path, digits: StateDir
) -> None:
    looked_ahead(digits)

    record = run_json("explain", cwd=tmp_path)

    assert [one["expected"]["leaves"] for one in record["holes"]] == [0.25, 0.25]
    assert record["came"] == [asdict(CAME)]
    assert record["promises"] == [asdict(PROMISES)]
    assert (record["leaves"], record["leaf_rate"]) == (12, 0.625)
