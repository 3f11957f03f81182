"""``freetrain explain``: plan, trainers, holes; and what came of what was expected."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pytest

from freetrain.broker.limits import HoleReason, TrainerReason
from freetrain.cli.explain import plan_lines
from freetrain.lookahead.base import NodeForecast
from freetrain.lookahead.promises import DelayInterval
from freetrain.state.files import Ended
from freetrain.state.tables import TrainerState
from freetrain.tick.status_report import HoleLine, LeaseOutcome, TrainerLine
from milp.answer import PlanStatus
from tests.cli.commands import NOW_S, at_home, refused, run, run_json
from tests.client.client_states import a_page, assign, end, put_page

if TYPE_CHECKING:
    from freetrain.state.files import StateDir


EVIL = "\x1b[2J\nforged line"


def hole(number: int, reason: HoleReason, **said: str) -> HoleLine:
    ends = NOW_S + 600.0
    line = HoleLine(node=f"n{number}", reason=str(reason), end_s=ends)
    return replace(line, **said)  # type: ignore[arg-type]


def ticked(state: StateDir) -> None:
    """Let a tick have seen one trainer and seven holes."""
    line = TrainerLine(
        name="digits",
        state="wanted",
        reason=str(TrainerReason.AWAITS_LEASES),
        planned_nodes=5,
        usable_nodes=6,
        generation=1,
    )
    why = {"refusal": "too short for a lease", "blocker": EVIL}
    holes = (
        *(hole(n, HoleReason.TRAINING, trainer="digits") for n in (1, 2)),
        *(hole(n, HoleReason.UNWANTED, ends_by="planned job") for n in (3, 4, 5)),
        *(hole(n, HoleReason.UNUSABLE, **why) for n in (6, 7)),
    )
    page = a_page(
        at_s=NOW_S - 90.0, trainers=(line,), holes=holes, problems=(f"odd {EVIL}",)
    )
    put_page(state, page)


def test_a_trainer_is_explained_by_the_tick_and_by_its_files(digits: StateDir) -> None:
    assign(digits, "digits", 1, nodes=2)
    end(digits, "digits", 1, Ended.KILLED, message=EVIL)
    assign(digits, "digits", 2, nodes=1, reason="a lease is lost")
    ticked(digits)

    shown = run("explain", "digits").stdout

    lines = " ".join(shown.split())
    assert "Why: leases for it are on their way." in lines
    assert "1 now, 5 planned; 6 meet its requirement; it can use 1 to 8." in lines
    assert "did not know of 1 newer generation yet" in lines
    assert "generation 1 ended without a word, step 10, committed 10: " in lines
    assert "committed 10: \\x1b[2J forged line" in lines
    assert "generation 2 on n1, by broker: a lease is lost" in lines
    assert "2030-03-17 17:46:41Z" in lines
    assert "\x1b" not in shown


def test_a_generation_that_agents_made_is_told_without_their_long_names(
    digits: StateDir,
) -> None:
    none = {"step": 0, "committed_step": 0}
    assign(
        digits, "digits", 1, nodes=1, author="0a1b2c3d-0000-4000-8000-0123456789ab-0"
    )
    end(digits, "digits", 1, Ended.FAILED, message="exit code 1", **none)

    told = " ".join(run("explain", "digits").stdout.split())
    more = " ".join(run("status", "digits").stdout.split())

    assert "generation 1 on n1, by its agents: " in told
    assert "generation 1 failed: exit code 1" in told
    assert "by its agents: " in more
    assert "asks for 1 to 8 nodes" in more


@pytest.mark.parametrize("verb", ["explain", "status"])
def test_nobody_is_said_to_have_killed_what_ended_by_itself(
    digits: StateDir, verb: str
) -> None:
    none = {"step": 0, "committed_step": 0}
    assign(digits, "digits", 1, nodes=1)
    end(digits, "digits", 1, Ended.KILLED, message="exit code 3", **none)

    told = " ".join(run(verb, "digits").stdout.split())

    assert re.search(r"generation 1 ended without a word.*: exit code 3", told)
    assert "killed" not in told


def test_without_a_name_every_hole_has_a_reason(digits: StateDir) -> None:
    ticked(digits)

    shown = run("explain").stdout

    rows = [" ".join(line.split()) for line in shown.splitlines()]
    assert any(row.startswith("2 n[1-2] digits in 10 min") for row in rows)
    assert any(row.startswith("3 n[3-5] nothing: no trainer gains") for row in rows)
    assert any(row.startswith("2 n[6-7] nothing: it cannot be") for row in rows)
    assert "Seen 1 min 30 s ago" in shown
    assert "odd \\x1b[2J forged line" in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("trainer_state", "is_told"), [("wanted", True), ("failed", False)]
)
def test_what_keeps_leases_away_is_told_where_somebody_wants_nodes(
    digits: StateDir, trainer_state: str, *, is_told: bool
) -> None:
    line = TrainerLine(name="digits", state=trainer_state)
    holes = (hole(1, HoleReason.UNWANTED),)
    put_page(digits, a_page(trainers=(line,), holes=holes, brake="a pause"))

    shown = run("explain").stdout

    assert ("No more leases are asked for: a pause." in shown) is is_told


def test_before_the_first_tick_it_says_so(digits: StateDir) -> None:
    shown = run("explain").stdout

    assert "No tick has seen it yet; `freetrain cron show` tells" in shown
    assert "ten minutes" not in shown
    assert "`freetrain holes` looks now." in shown
    assert digits.path.exists()


def test_all_of_it_is_there_for_programs(digits: StateDir) -> None:
    assign(digits, "digits", 1, nodes=2)
    end(digits, "digits", 1, Ended.RESCALED)
    ticked(digits)

    shown = run_json("explain")

    (one,) = shown["trainers"]
    assert one["tick"]["planned_nodes"] == 5
    assert one["generations"][0]["nodes"] == ["n1", "n2"]
    assert one["generations"][0]["ending"]["ended"] == "rescaled"
    assert len(shown["holes"]) == 7


def test_an_unknown_trainer_is_refused(digits: StateDir) -> None:
    assert "Did you mean 'digits'?" in refused("explain", "digit", code=64)
    assert digits.path.exists()


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


def hole_expecting(
    number: int, reason: HoleReason, expected: NodeForecast, trainer: str = ""
) -> HoleLine:
    return HoleLine(
        node=f"n{number}", reason=str(reason), expected=expected, trainer=trainer
    )


def looked_ahead(state: StateDir) -> None:
    """Let a tick have told what it expects of two nodes, and what came of others."""
    line = TrainerLine(name="digits", state="wanted", node_names=("n1",))
    holes = (
        hole_expecting(1, HoleReason.TRAINING, SOON, trainer="digits"),
        hole_expecting(
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


def test_what_is_expected_of_a_trainers_nodes_is_told(digits: StateDir) -> None:
    assign(digits, "digits", 1, nodes=1)
    looked_ahead(digits)

    lines = " ".join(run("explain", "digits").stdout.split())

    assert (
        "Expected of n1: 25 % to leave within 6 min; as likely as not to stay 16 min "
        "or longer; together with 2 nodes more; promised to another job in 8 min."
    ) in lines
    assert "Expected of n2" not in lines


def test_what_is_learned_of_other_nodes_only_is_no_caution(digits: StateDir) -> None:
    line = TrainerLine(name="digits", state="wanted", node_names=("n1",))
    holes = (
        hole_expecting(1, HoleReason.TRAINING, SOON, trainer="digits"),
        hole_expecting(2, HoleReason.UNWANTED, replace(SOON, is_learning=True)),
    )
    assign(digits, "digits", 1, nodes=1)
    put_page(digits, a_page(at_s=NOW_S - 90.0, trainers=(line,), holes=holes))

    assert "Too little" not in run("explain", "digits").stdout
    assert "Too little was seen" in run("explain").stdout


def test_what_was_expected_and_what_came_is_told_with_the_holes(
    digits: StateDir,
) -> None:
    looked_ahead(digits)

    lines = " ".join(run("explain").stdout.split())

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
        "Slurm reports 12 leaf switches or blocks: two idle nodes below one are taken "
        "to leave together 62 % of the times that either leaves."
    ) in lines


def test_who_goes_first_for_its_place_in_line_is_told(digits: StateDir) -> None:
    alone = replace(SOON, together=1, promised_s=None)
    told = {
        1: replace(alone, run=4, times_in_line=2.5),
        2: replace(alone, run=4, times_in_line=2.5),
        3: replace(alone, run=4, times_in_line=0.5),
        4: SOON,
    }
    holes = tuple(
        hole_expecting(k, HoleReason.UNWANTED, one) for k, one in told.items()
    )
    line = TrainerLine(name="digits", state="wanted", node_names=("n1",))
    put_page(digits, a_page(at_s=NOW_S - 90.0, trainers=(line,), holes=holes))

    lines = " ".join(run("explain").stdout.split())
    own = run("explain", "digits").stdout
    record = run_json("explain")

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
    digits: StateDir,
) -> None:
    looked_ahead(digits)

    shown = run("explain").stdout

    assert "Neighbours" not in shown
    assert "in line" not in shown


def test_all_alike_in_line_are_neither_first_nor_last(digits: StateDir) -> None:
    both = replace(SOON, run=4, times_in_line=2.5)
    holes = tuple(hole_expecting(k, HoleReason.UNWANTED, both) for k in (1, 2))
    put_page(digits, a_page(at_s=NOW_S - 90.0, holes=holes))

    shown = " ".join(run("explain").stdout.split())

    assert "Neighbours by name leave together here, up to 4 nodes in a row." in shown
    assert "For their place" not in shown


def test_who_looks_ahead_is_named(digits: StateDir) -> None:
    put_page(digits, a_page(at_s=NOW_S - 90.0))
    before = run("explain").stdout + run("status").stdout
    verbs = ("explain", "status")
    nobody = [run_json(verb)["forecaster"] for verb in verbs]
    put_page(digits, a_page(at_s=NOW_S - 90.0, forecaster="life-table"))

    named = [run_json(verb)["forecaster"] for verb in verbs]

    assert "life-table" not in before
    assert (nobody, named) == ([None, None], ["life-table", "life-table"])
    assert "How long nodes stay is predicted by life-table." in run("explain").stdout
    assert (
        "Last tick 1 min 30 s ago. It looks ahead by the forecaster life-table."
        in " ".join(run("status").stdout.split())
    )


def test_that_ticks_are_missing_is_said_of_the_last_one(digits: StateDir) -> None:
    put_page(digits, a_page(at_s=NOW_S - 960.0, forecaster="learned"))

    said = " ".join(run("status").stdout.split())

    assert "Last tick 16 min ago. That is long: does cron call it?" in said
    assert said.endswith("It looks ahead by the forecaster learned.")


def test_what_came_is_told_where_no_hole_is_left(digits: StateDir) -> None:
    put_page(digits, a_page(at_s=NOW_S - 90.0, came=(CAME,), promises=(PROMISES,)))

    lines = " ".join(run("explain").stdout.split())

    assert "the lease on n9 was over after 10 min (preempted)" in lines
    assert "Of 12 nodes promised 10 min ahead or more" in lines
    assert "It saw no hole." in lines


def test_programs_are_told_what_was_expected_and_what_came(digits: StateDir) -> None:
    looked_ahead(digits)

    record = run_json("explain")

    assert [one["expected"]["leaves"] for one in record["holes"]] == [0.25, 0.25]
    assert record["came"] == [asdict(CAME)]
    assert record["promises"] == [asdict(PROMISES)]
    assert (record["leaves"], record["leaf_rate"]) == (12, 0.625)


ONE = (TrainerLine(name="a", state=str(TrainerState.WANTED)),)


@pytest.mark.parametrize(
    ("outcome", "gap", "by_lives", "said"),
    [
        (
            PlanStatus.PROVEN,
            0.0,
            False,
            "The plan is proven to be the best, counted as if every node stayed.",
        ),
        (
            PlanStatus.INCUMBENT,
            0.0082,
            True,
            (
                "The plan is at most 0.82 % below the best, counted by how long "
                "nodes are expected to stay."
            ),
        ),
        (
            PlanStatus.KEPT,
            0.5,
            False,
            (
                "The plan that stays is at most 50.00 % below the best, counted as if "
                "every node stayed."
            ),
        ),
    ],
)
def test_a_plan_is_held_against_the_best_by_its_own_objective(
    outcome: PlanStatus,
    gap: float,
    by_lives: bool,  # noqa: FBT001
    said: str,
) -> None:
    page = a_page(
        trainers=ONE, planner=str(outcome), planner_gap=gap, is_by_lives=by_lives
    )

    assert list(plan_lines(page)) == [said]


def test_why_a_plan_is_no_better_follows_as_a_sentence() -> None:
    page = a_page(
        trainers=ONE,
        planner=str(PlanStatus.INCUMBENT),
        planner_gap=0.1,
        planner_reason="x",
    )

    assert list(plan_lines(page))[1:] == ["Of the plan: x."]


def test_nothing_is_said_of_a_plan_that_nobody_wanted_or_told() -> None:
    assert not list(plan_lines(a_page(planner_gap=0.0)))
    assert not list(plan_lines(a_page(trainers=ONE)))


def test_explain_tells_it_to_people_and_to_programs() -> None:
    page = a_page(
        trainers=ONE,
        planner=str(PlanStatus.INCUMBENT),
        planner_gap=0.0082,
        planner_reason="why",
        is_by_lives=True,
    )
    state = at_home()
    assert run("submit", "job.toml").code == 0
    put_page(state, page)

    shown = " ".join(run("explain").stdout.split())
    record = run_json("explain")

    assert all(line in shown for line in plan_lines(page))
    assert record["plan"] == {
        "outcome": "incumbent",
        "reason": "why",
        "gap": 0.0082,
        "is_by_lives": True,
    }
