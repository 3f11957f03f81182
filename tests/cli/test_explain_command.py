"""``freetrain explain``: plan, trainers and holes; forecasts and their outcomes."""

import re
from dataclasses import asdict, replace
from typing import Any

import pytest

from freetrain.broker.reasons import Brake, HoleReason, TrainerReason
from freetrain.cli.explain import plan_lines
from freetrain.lookahead.base import NodeForecast
from freetrain.lookahead.promises import DelayInterval
from freetrain.state.files import GO_ON, USER, EndingKind, StateDir, TriedSize
from freetrain.tick.status_report import HoleLine, LeaseOutcome, TrainerLine
from milp.answer import PlanStatus
from tests.cli.commands import NOW_S, run, run_json
from tests.client.client_states import a_page, assign, end, put_page

EVIL = "\x1b[2J\nforged line"
LINE = TrainerLine(name="digits", state="wanted", node_names=("n1",))


def explain(*words: str, verb: str = "explain") -> str:
    """Return what the verb shows, with single blanks."""
    return " ".join(run(verb, *words).stdout.split())


def ticked(state: StateDir, **seen: Any) -> None:  # noqa: ANN401 - fields of the page
    put_page(state, a_page(**{"at_s": NOW_S - 90.0, "trainers": (LINE,)} | seen))


def hole(number: int, reason: HoleReason, **said: Any) -> HoleLine:  # noqa: ANN401
    line = HoleLine(node=f"n{number}", reason=str(reason), end_s=NOW_S + 600.0)
    return replace(line, **said)


WHY_UNUSED = {"refusal": "too short for a lease", "blocker": EVIL}
SEEN = {
    "trainers": (
        TrainerLine(
            name="digits",
            state="wanted",
            reason=str(TrainerReason.AWAITS_LEASES),
            planned_nodes=5,
            usable_nodes=6,
            generation=1,
        ),
    ),
    "holes": (
        *(hole(n, HoleReason.TRAINING, trainer="digits") for n in (1, 2)),
        *(hole(n, HoleReason.UNWANTED, ends_by="planned job") for n in (3, 4, 5)),
        *(hole(n, HoleReason.UNUSABLE, **WHY_UNUSED) for n in (6, 7)),
    ),
    "problems": (f"odd {EVIL}",),
}
"""A tick has seen a trainer and seven holes."""


def test_a_trainer_is_explained_by_the_tick_and_by_its_files(digits: StateDir) -> None:
    assign(digits, "digits", 1, nodes=2)
    end(digits, "digits", 1, EndingKind.KILLED, message=EVIL, lost_lease=True)
    assign(digits, "digits", 2, nodes=1, reason="a lease is lost")
    ticked(digits, **SEEN)

    shown = explain("digits")

    assert "Why: leases for it are on their way." in shown
    assert "1 now, 5 planned; 6 meet its requirement; it can use 1 to 8." in shown
    assert "did not know of 1 newer generation yet" in shown
    assert "generation 1 ended without a word, step 10, committed 10: " in shown
    assert "committed 10: \\x1b[2J forged line" in shown
    assert "generation 2 on n1, by broker: a lease is lost" in shown
    assert "2030-03-17 17:46:41Z" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("verb", ["explain", "status"])
def test_a_trainer_that_lost_its_nodes_after_a_tick_is_not_said_to_have_them(
    digits: StateDir, verb: str
) -> None:
    assign(digits, "digits", 1, nodes=2)
    end(digits, "digits", 1, EndingKind.KILLED, lost_lease=True)
    assign(digits, "digits", 2, nodes=0, reason="generation 1: a lease leaves")
    reason = str(TrainerReason.AS_PLANNED)
    ticked(digits, trainers=(replace(LINE, reason=reason, generation=1),))

    shown = explain("digits", verb=verb)

    assert "it lost its nodes after the last tick; the next one looks" in shown
    assert reason not in shown


def test_a_generation_that_agents_made_is_shown_without_their_long_names(
    digits: StateDir,
) -> None:
    author = "0a1b2c3d-0000-4000-8000-0123456789ab-0"
    assign(digits, "digits", 1, nodes=1, author=author)
    message = {"message": "exit code 1", "step": 0, "committed_step": 0}
    end(digits, "digits", 1, EndingKind.FAILED, **message)

    assert "generation 1 on n1, by its agents: " in explain("digits")
    assert "generation 1 failed: exit code 1" in explain("digits")
    assert "by its agents: " in explain("digits", verb="status")
    assert "asks for 1 to 8 nodes" in explain("digits", verb="status")


@pytest.mark.parametrize("verb", ["explain", "status"])
def test_a_size_that_is_left_out_is_named_with_its_error_and_what_to_do(
    digits: StateDir, verb: str
) -> None:
    tried = (
        TriedSize(leases=2, has_trained=True),
        TriedSize(
            leases=3, failures=2, failed_s=NOW_S, why=f"ValueError: 3 ranks\n{EVIL}"
        ),
        TriedSize(leases=4, failures=1, why="exit code 1"),
    )
    assign(digits, "digits", 1, nodes=3)
    end(digits, "digits", 1, EndingKind.FAILED, leases=3, tried=tried)
    assign(digits, "digits", 2, nodes=2)
    ticked(digits, **SEEN)

    shown = explain("digits", verb=verb)

    assert "or 6 h it is not given 3 nodes, where it failed before its first" in shown
    assert "first step (ValueError: 3 ranks); it has trained on other sizes" in shown
    assert "forged" not in shown.split("(ValueError")[1].split("sizes of its job")[0]
    assert "`freetrain pause digits` and then `freetrain resume digits` try" in shown
    assert "given 4 nodes" not in shown
    if verb == "explain":
        assert "it can use 1, 2, 4, 5, 6, 7, 8." in shown
    (record,) = run_json("status", "digits")["trainers"]
    assert list(record["sizes_left_out"]) == ["3"]

    assign(digits, "digits", 3, nodes=0, author=USER, reason=GO_ON)
    assert "not given" not in explain("digits", verb=verb)


@pytest.mark.parametrize("verb", ["explain", "status"])
def test_a_world_that_ended_by_itself_is_not_said_to_have_been_killed(
    digits: StateDir, verb: str
) -> None:
    assign(digits, "digits", 1, nodes=1)
    message = {"message": "exit code 3", "step": 0, "committed_step": 0}
    end(digits, "digits", 1, EndingKind.KILLED, **message)

    shown = explain("digits", verb=verb)

    assert re.search(r"generation 1 ended without a word.*: exit code 3", shown)
    assert "killed" not in shown


AS_PLANNED = replace(
    LINE,
    reason=str(TrainerReason.AS_PLANNED),
    generation=1,
    nodes=2,
    planned_nodes=2,
)


@pytest.mark.parametrize(
    ("line", "seen", "said"),
    [
        (
            {"sizes": (1, 2)},
            {},
            "More: 2 are the most that it can use, by [nodes] of its job file.",
        ),
        (
            {"larger_nodes": 4, "free_nodes": 1},
            {"holes": SEEN["holes"], "limit": "MaxJobs=3 of account a"},
            (
                "More: its next size, 4, takes 2 more that are idle and meet its "
                "requirement; there is 1. Idle, but not to be planned with: 2, as too "
                "short for a lease. Slurm's limit: MaxJobs=3 of account a."
            ),
        ),
        (
            {"larger_nodes": 8, "free_nodes": 6, "pays_after_s": 300.0},
            {"t_fwd_s": 120.0},
            (
                "More: 6 nodes would be left for it, and a change to 8 makes up for "
                "its pause after 5 min; a plan counts 2 min."
            ),
        ),
        (
            {"larger_nodes": 8, "free_nodes": 6, "pays_after_s": 300.0},
            {"t_fwd_s": 120.0, "is_by_lives": True},
            "a change to 8 gains too little for as long as nodes are expected to stay.",
        ),
        (
            {"larger_nodes": 8, "free_nodes": 6},
            {"t_fwd_s": 120.0},
            "a change to 8 is not expected to make it faster.",
        ),
    ],
)
def test_what_keeps_a_trainer_from_idle_nodes_is_explained(
    digits: StateDir, line: dict[str, Any], seen: dict[str, Any], said: str
) -> None:
    assign(digits, "digits", 1, nodes=2)
    ticked(digits, trainers=(replace(AS_PLANNED, **line),), **seen)

    assert said in explain("digits")


@pytest.mark.parametrize("verb", ["explain", "status"])
@pytest.mark.parametrize("is_lost", [True, False])
def test_a_world_that_lost_a_lease_is_not_said_to_have_failed(
    digits: StateDir, verb: str, *, is_lost: bool
) -> None:
    assign(digits, "digits", 1, nodes=2)
    message = "RuntimeError: Connection reset by peer"
    end(digits, "digits", 1, EndingKind.FAILED, message=message, lost_lease=is_lost)

    shown = explain("digits", verb=verb)

    words = "ended as a part of it was lost" if is_lost else "failed"
    assert re.search(rf"generation 1 {words}\b.*: RuntimeError: Conn", shown)


def test_without_a_name_every_hole_has_a_reason(digits: StateDir) -> None:
    ticked(digits, **SEEN)

    shown = run("explain").stdout

    rows = [" ".join(line.split()) for line in shown.splitlines()]
    assert any(row.startswith("2 n[1-2] digits in 10 min") for row in rows)
    assert any(row.startswith("3 n[3-5] nothing: no trainer gains") for row in rows)
    assert any(row.startswith("2 n[6-7] nothing: it cannot be") for row in rows)
    assert "Seen 1 min 30 s ago" in shown
    assert "odd \\x1b[2J forged line" in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("trainer_state", "is_shown"), [("wanted", True), ("failed", False)]
)
def test_the_brake_on_leases_is_shown_if_a_trainer_wants_nodes(
    digits: StateDir, trainer_state: str, *, is_shown: bool
) -> None:
    line, holes = replace(LINE, state=trainer_state), (hole(1, HoleReason.UNWANTED),)
    ticked(digits, trainers=(line,), holes=holes, brake="a pause")

    assert ("No more leases are asked for: a pause." in explain()) is is_shown


def test_the_limit_that_allows_no_more_leases_is_named(digits: StateDir) -> None:
    line, holes = replace(LINE, state="wanted"), (hole(1, HoleReason.UNWANTED),)
    limit = "GrpTRES=node=6 of account physics, 2 of them for other jobs"
    for brake in ("", str(Brake.SUBMIT_LIMIT)):
        ticked(digits, trainers=(line,), holes=holes, brake=brake, limit=limit)
        assert f"limits let this user have: {limit}." in " ".join(explain().split())
    assert run_json("explain")["limit"] == limit
    ticked(digits, trainers=(line,), holes=holes, brake="a pause", limit=limit)
    assert "No more leases are asked for: a pause." in explain()


@pytest.mark.usefixtures("digits")
def test_before_the_first_tick_it_says_so() -> None:
    shown = explain()

    assert "No tick has seen it yet; `freetrain cron show` tells" in shown
    assert "ten minutes" not in shown
    assert "`freetrain holes` looks now." in shown


def test_all_of_it_is_there_for_programs(digits: StateDir) -> None:
    assign(digits, "digits", 1, nodes=2)
    end(digits, "digits", 1, EndingKind.RESCALED)
    ticked(digits, **SEEN)

    shown = run_json("explain")

    (trainer,) = shown["trainers"]
    assert trainer["tick"]["planned_nodes"] == 5
    assert trainer["generations"][0]["nodes"] == ["n1", "n2"]
    assert trainer["generations"][0]["ending"]["ended"] == "rescaled"
    assert len(shown["holes"]) == 7


SOON = NodeForecast(
    horizon_s=400.0,
    leaves=0.25,
    even_s=960.0,
    together=3,
    promised_s=NOW_S + 500.0,
    is_learning=False,
)
ALONE = replace(SOON, together=1, promised_s=None)
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


def expecting(*forecasts: NodeForecast) -> tuple[HoleLine, ...]:
    """Return holes n1 and so on with these forecasts; digits trains in the first."""
    return tuple(
        HoleLine(
            node=f"n{number}",
            reason=str(HoleReason.UNWANTED if number > 1 else HoleReason.TRAINING),
            expected=forecast,
            trainer="" if number > 1 else "digits",
        )
        for number, forecast in enumerate(forecasts, 1)
    )


FORECASTS: dict[str, Any] = {
    "holes": expecting(SOON, replace(ALONE, even_s=0.0)),
    "came": (CAME,),
    "promises": (PROMISES,),
    "leaves": 12,
    "leaf_rate": 0.625,
}
"""A tick has forecasts of two nodes, and knows how others turned out."""


def test_the_forecasts_of_a_trainers_nodes_are_shown(digits: StateDir) -> None:
    assign(digits, "digits", 1, nodes=1)
    ticked(digits, **FORECASTS)

    shown = explain("digits")

    assert (
        "Expected of n1: 25 % to leave within 6 min; as likely as not to stay 16 min "
        "or longer; together with 2 nodes more; promised to another job in 8 min."
    ) in shown
    assert "Expected of n2" not in shown


def test_the_forecasts_of_a_trainers_pieces_are_shown(digits: StateDir) -> None:
    assign(digits, "digits", 1, nodes=1)
    ours = hole(1, HoleReason.TRAINING, trainer="digits", expected=SOON)
    pieces = (
        replace(ours, piece="n1#1"),
        replace(ours, piece="n1#2", expected=ALONE),
        replace(ours, piece="n1#3", trainer="other"),
        replace(ours, node="n2", piece="n2#2", trainer="", expected=ALONE),
    )
    ticked(digits, holes=pieces)

    shown, every = explain("digits"), explain()

    assert (
        "Expected of GPU 1 of n1: 25 % to leave within 6 min; as likely as not to stay "
        "16 min or longer; together with 2 GPUs more;"
    ) in shown
    assert "Expected of GPU 2 of n1: 25 % to leave within" in shown
    assert "GPU 3" not in shown
    assert "Expected of GPU 1 of n1, GPU 3 of n1: " in every
    assert "Expected of GPU 2 of n[1-2]: " in every


def test_forecasts_that_still_learn_are_a_caution_for_their_own_nodes_only(
    digits: StateDir,
) -> None:
    assign(digits, "digits", 1, nodes=1)
    ticked(digits, holes=expecting(SOON, replace(SOON, is_learning=True)))

    assert "Too little" not in explain("digits")
    assert "Too little was seen" in explain()


def test_forecasts_and_their_outcomes_are_shown_with_the_holes(
    digits: StateDir,
) -> None:
    ticked(digits, **FORECASTS)

    shown, record = explain(), run_json("explain")

    assert "Expected of n2: 25 % to leave within 6 min; more likely than not" in shown
    assert (
        "1 min 40 s ago: the lease on n9 was over after 10 min (preempted); expected "
        "were 10 % to leave within 6 min."
    ) in shown
    assert (
        "Of 12 nodes promised 10 min ahead or more, 50 % left early and 25 % late; "
        "eight of ten between 5 min early and 2 min late, half by 30 s early."
    ) in shown
    assert (
        "Slurm reports 12 leaf switches or blocks: two idle nodes below one are taken "
        "to leave together 62 % of the times that either leaves."
    ) in shown
    assert "Neighbours" not in shown
    assert "in line" not in shown
    assert [each["expected"]["leaves"] for each in record["holes"]] == [0.25, 0.25]
    assert record["came"] == [asdict(CAME)]
    assert record["promises"] == [asdict(PROMISES)]
    assert (record["leaves"], record["leaf_rate"]) == (12, 0.625)


def test_the_neighbours_that_go_first_for_their_place_are_named(
    digits: StateDir,
) -> None:
    first = replace(ALONE, run=4, times_in_line=2.5)
    last = replace(ALONE, run=4, times_in_line=0.5)
    ticked(digits, holes=expecting(first, first, last, SOON))

    shown, own, record = explain(), explain("digits"), run_json("explain")

    assert "Expected of n[1-2]: 25 % to leave within 6 min" in shown
    assert "or longer; for its place in line 2.5 times as likely as others." in shown
    assert (
        "Neighbours by name leave together here, up to 4 nodes in a row. For their "
        "place among them n[1-2] are expected first, n3 last."
    ) in shown
    assert "2.5 times as likely" in own
    assert "Neighbours" not in own
    expected = [each["expected"] for each in record["holes"][:4]]
    assert [each["run"] for each in expected] == [4, 4, 4, 1]
    assert [each["times_in_line"] for each in expected] == [2.5, 2.5, 0.5, 1.0]


def test_all_alike_in_line_are_neither_first_nor_last(digits: StateDir) -> None:
    both = replace(SOON, run=4, times_in_line=2.5)
    ticked(digits, holes=expecting(both, both))

    shown = explain()

    assert "Neighbours by name leave together here, up to 4 nodes in a row." in shown
    assert "For their place" not in shown


@pytest.mark.parametrize("name", ["", "life-table"])
def test_the_forecaster_is_named_where_there_is_one(
    digits: StateDir, name: str
) -> None:
    ticked(digits, forecaster=name)

    records = [run_json(verb)["forecaster"] for verb in ("explain", "status")]
    assert records == [name or None] * 2
    by, ahead = f"predicted by {name}.", f"It looks ahead by the forecaster {name}."
    assert ("How long nodes stay is " + by in explain()) == bool(name)
    last = f"Last tick 1 min 30 s ago. {ahead}"
    assert (last in explain(verb="status")) == bool(name)


def test_missing_ticks_are_reported_with_the_last_one(digits: StateDir) -> None:
    ticked(digits, at_s=NOW_S - 960.0, trainers=(), forecaster="learned")

    said = explain(verb="status")

    assert "Last tick 16 min ago. That is long: does cron call it?" in said
    assert said.endswith("It looks ahead by the forecaster learned.")


def test_outcomes_are_shown_where_no_hole_is_left(digits: StateDir) -> None:
    ticked(digits, came=(CAME,), promises=(PROMISES,))

    shown = explain()

    assert "the lease on n9 was over after 10 min (preempted)" in shown
    assert "Of 12 nodes promised 10 min ahead or more" in shown
    assert "It saw no hole." in shown


STAYED = "counted as if every node stayed."
BY_LIVES = "counted by how long nodes are expected to stay."


@pytest.mark.parametrize(
    ("outcome", "gap", "by_lives", "said"),
    [
        (PlanStatus.PROVEN, 0.0, 0, f"The plan is proven to be the best, {STAYED}"),
        (
            PlanStatus.INCUMBENT,
            0.0082,
            1,
            f"The plan is at most 0.82 % below the best, {BY_LIVES}",
        ),
        (
            PlanStatus.KEPT,
            0.5,
            0,
            f"The plan that stays is at most 50.00 % below the best, {STAYED}",
        ),
    ],
)
def test_a_plan_is_held_against_the_best_by_its_own_objective(
    digits: StateDir, outcome: PlanStatus, gap: float, by_lives: int, said: str
) -> None:
    plan = {"planner": str(outcome), "planner_gap": gap, "planner_reason": "why"}
    ticked(digits, **plan, is_by_lives=bool(by_lives))

    assert f"{said} Of the plan: why." in explain()
    assert run_json("explain")["plan"] == {
        "outcome": str(outcome),
        "reason": "why",
        "gap": gap,
        "is_by_lives": bool(by_lives),
    }


def test_nothing_is_said_of_a_plan_without_a_gap_or_a_trainer_that_wants_nodes() -> (
    None
):
    assert not list(plan_lines(a_page(planner_gap=0.0)))
    assert not list(plan_lines(a_page(trainers=(LINE,))))
    without_reason = a_page(trainers=(LINE,), planner_gap=0.1)
    assert len(list(plan_lines(without_reason))) == 1
