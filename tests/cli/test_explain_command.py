"""``freetrain explain``: what the last tick said, and what files tell since."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from freetrain.broker.actions import HoleReason, TrainerReason
from freetrain.state.files import Ended
from freetrain.tick.status_report import HoleLine, TrainerLine
from tests.cli.desk_files import at_home, refused, run_json
from tests.cli.worlds import NOW_S, run
from tests.client.client_states import a_page, assign, end, put_page

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.state.files import StateDir

EVIL = "\x1b[2J\nforged line"


@pytest.fixture
def digits(tmp_path: Path) -> StateDir:
    state = at_home(tmp_path)
    assert run("submit", "job.toml", cwd=tmp_path).code == 0
    return state


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


def test_a_trainer_is_explained_by_the_tick_and_by_its_files(
    tmp_path: Path, digits: StateDir
) -> None:
    assign(digits, "digits", 1, nodes=2)
    end(digits, "digits", 1, Ended.KILLED, message=EVIL)
    assign(digits, "digits", 2, nodes=1, reason="a lease is lost")
    ticked(digits)

    shown = run("explain", "digits", cwd=tmp_path).stdout

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
    tmp_path: Path, digits: StateDir
) -> None:
    none = {"step": 0, "committed_step": 0}
    assign(
        digits, "digits", 1, nodes=1, author="0a1b2c3d-0000-4000-8000-0123456789ab-0"
    )
    end(digits, "digits", 1, Ended.FAILED, message="exit code 1", **none)

    told = " ".join(run("explain", "digits", cwd=tmp_path).stdout.split())
    more = " ".join(run("status", "digits", cwd=tmp_path).stdout.split())

    assert "generation 1 on n1, by its agents: " in told
    assert "generation 1 failed: exit code 1" in told
    assert "by its agents: " in more
    assert "asks for 1 to 8 nodes" in more


@pytest.mark.parametrize("verb", ["explain", "status"])
def test_nobody_is_said_to_have_killed_what_ended_by_itself(
    tmp_path: Path, digits: StateDir, verb: str
) -> None:
    none = {"step": 0, "committed_step": 0}
    assign(digits, "digits", 1, nodes=1)
    end(digits, "digits", 1, Ended.KILLED, message="exit code 3", **none)

    told = " ".join(run(verb, "digits", cwd=tmp_path).stdout.split())

    assert re.search(r"generation 1 ended without a word.*: exit code 3", told)
    assert "killed" not in told


def test_without_a_name_every_hole_has_a_reason(
    tmp_path: Path, digits: StateDir
) -> None:
    ticked(digits)

    shown = run("explain", cwd=tmp_path).stdout

    rows = [" ".join(line.split()) for line in shown.splitlines()]
    assert any(row.startswith("2 n[1-2] digits in 10 min") for row in rows)
    assert any(row.startswith("3 n[3-5] nothing: no trainer gains") for row in rows)
    assert any(row.startswith("2 n[6-7] nothing: it cannot be") for row in rows)
    assert "Seen 1 min 30 s ago" in shown
    assert "odd \\x1b[2J forged line" in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(("state", "is_told"), [("wanted", True), ("failed", False)])
def test_what_keeps_leases_away_is_told_where_somebody_wants_nodes(
    tmp_path: Path, digits: StateDir, state: str, *, is_told: bool
) -> None:
    line = TrainerLine(name="digits", state=state)
    holes = (hole(1, HoleReason.UNWANTED),)
    put_page(digits, a_page(trainers=(line,), holes=holes, brake="a pause"))

    shown = run("explain", cwd=tmp_path).stdout

    assert ("No more leases are asked for: a pause." in shown) is is_told


def test_before_the_first_tick_it_says_so(tmp_path: Path, digits: StateDir) -> None:
    shown = run("explain", cwd=tmp_path).stdout

    assert "No tick has seen it yet; `freetrain cron show` tells" in shown
    assert "ten minutes" not in shown
    assert "`freetrain holes` looks now." in shown
    assert digits.path.exists()


def test_all_of_it_is_there_for_programs(tmp_path: Path, digits: StateDir) -> None:
    assign(digits, "digits", 1, nodes=2)
    end(digits, "digits", 1, Ended.RESCALED)
    ticked(digits)

    shown = run_json("explain", cwd=tmp_path)

    (one,) = shown["trainers"]
    assert one["tick"]["planned_nodes"] == 5
    assert one["generations"][0]["nodes"] == ["n1", "n2"]
    assert one["generations"][0]["ending"]["ended"] == "rescaled"
    assert len(shown["holes"]) == 7


def test_an_unknown_trainer_is_refused(tmp_path: Path, digits: StateDir) -> None:
    assert "Did you mean 'digits'?" in refused(
        "explain", "digit", cwd=tmp_path, code=64
    )
    assert digits.path.exists()
