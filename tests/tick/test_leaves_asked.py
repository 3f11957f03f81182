"""When Slurm is asked which leaf switch nodes are below, and what is kept of that."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from freetrain.config.site import PlannerSettings
from freetrain.tick.lookahead import ASKED_EVERY_S, LeafSwitches, leaf_switches_of
from slurm.backend import CommandLine
from slurm.errors import SlurmUnavailableError
from slurm.records import ClusterConfig, Leaf
from slurm.text import parse_config
from tests.fakes.slurm.state import Act
from tests.slurm_library.clusters import RECORDINGS, recorded
from tests.tick.test_looking_ahead import pass_by, taken
from tests.tick.tick_worlds import TickWorld, tick_world

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NOW_S = 1.9e9
TOLD = (RECORDINGS / "tree" / "topology.txt").read_text("utf-8")
RACKS = {"rack1": ["n1", "n2", "n3", "n4"], "rack2": ["n5", "n6", "n7", "n8"]}
SHOW_TOPOLOGY = ["--oneliner", "show", "topology"]


@dataclass(slots=True)
class Runner:
    """Answers one text to everything; None for no answer.

    Attributes:
        text: The answer.
        asked: Every command line so far.
    """

    text: str | None = TOLD
    asked: list[list[str]] = field(default_factory=list)

    def run(self, argv: Sequence[str], *, timeout_s: float) -> str:
        del timeout_s
        self.asked.append(list(argv))
        if self.text is None:
            raise SlurmUnavailableError("no answer")
        return self.text


def config(plugin: str, *, major: int = 22) -> ClusterConfig:
    plain = parse_config(recorded("quiet", "config.txt"))
    release = replace(plain.release, major=major)
    return replace(plain, topology_plugin=plugin, release=release)


TREE = config("topology/tree")
NEWER = config("topology/flat", major=25)
NEWER = replace(NEWER, release=replace(NEWER.release, minor=5))


def found(
    runner: Runner, config: ClusterConfig, state: object = None, *, now_s: float = NOW_S
) -> LeafSwitches | None:
    return leaf_switches_of(CommandLine(runner, user="ada"), config, state, now_s=now_s)


def known(
    runner: Runner,
    config: ClusterConfig = TREE,
    state: object = None,
    *,
    now_s: float = NOW_S,
) -> LeafSwitches:
    leaves = found(runner, config, state, now_s=now_s)
    assert leaves is not None
    return leaves


@pytest.mark.parametrize("plugin", ["topology/none", "topology/default", ""])
def test_a_site_without_topology_is_not_asked(plugin: str) -> None:
    runner = Runner()

    assert found(runner, config(plugin)) is None
    assert runner.asked == []


def test_it_is_asked_once_an_hour_and_kept_as_json_meanwhile() -> None:
    runner = Runner()
    state = json.loads(json.dumps(known(runner).to_state()))
    soon, late = NOW_S + ASKED_EVERY_S - 1.0, NOW_S + ASKED_EVERY_S

    again = found(runner, TREE, state, now_s=soon)
    assert again == known(Runner())
    assert len(runner.asked) == 1

    later = found(runner, TREE, state, now_s=late)
    assert later == replace(known(Runner()), asked_s=late)
    assert len(runner.asked) == 2


def test_another_topology_and_a_clock_that_went_back_are_asked_for_at_once() -> None:
    runner = Runner()
    state = known(runner).to_state()

    found(runner, config("topology/block"), state)
    found(runner, TREE, state, now_s=NOW_S - 1.0)

    assert len(runner.asked) == 3


def looks(
    runner: Runner, config: ClusterConfig, leaves: LeafSwitches, *texts: str | None
) -> list[LeafSwitches]:
    """Return what is known at looks a minute apart, an hour after *leaves*."""
    seen = []
    for number, text in enumerate(texts):
        runner.text, state = text, json.loads(json.dumps(leaves.to_state()))
        later_s = NOW_S + ASKED_EVERY_S + 60.0 * number
        leaves = known(runner, config, state=state, now_s=later_s)
        seen.append(leaves)
    return seen


def test_a_newer_slurm_that_says_nothing_once_or_twice_takes_no_leaves_away() -> None:
    runner = Runner()
    first = known(runner, NEWER)

    seen = looks(runner, NEWER, first, "", "", TOLD, TOLD)

    assert [one.leaves for one in seen] == [first.leaves] * 4
    assert [bool(one.problem) for one in seen] == [True, True, False, False]
    assert "Slurm names none of those that it named before" in seen[0].problem
    assert len(runner.asked) == 4, "a silence is asked about at the next look"


def test_a_newer_slurm_that_says_nothing_again_and_again_has_no_leaves() -> None:
    runner = Runner()

    seen = looks(runner, NEWER, known(runner, NEWER), *[""] * 5)

    assert [len(one.leaves) for one in seen] == [2, 2, 0, 0, 0]
    assert (seen[2].by_node, seen[2].problem) == ({}, "")
    assert len(runner.asked) == 4, "then once an hour again"


def test_no_answer_is_no_silence() -> None:
    runner = Runner()

    seen = looks(runner, NEWER, known(runner, NEWER), "", "", None, "", "")

    assert [len(one.leaves) for one in seen] == [2] * 5


def test_silence_where_there_must_be_leaves_takes_none_away() -> None:
    runner = Runner()

    seen = looks(runner, TREE, known(runner), *[""] * 4)

    assert [len(one.leaves) for one in seen] == [2] * 4
    assert len(runner.asked) == 2


@pytest.mark.parametrize("text", [None, "", "\x1b[31m<html>502 Bad Gateway</html>\n"])
def test_where_it_cannot_be_had_the_last_answer_holds_for_another_hour(
    text: str | None,
) -> None:
    runner = Runner()
    state, late = known(runner).to_state(), NOW_S + ASKED_EVERY_S
    runner.text = text

    leaves = found(runner, TREE, state, now_s=late)
    first = known(Runner(text))

    assert leaves is not None
    assert leaves.by_node == known(Runner()).by_node
    assert "are not known now" in leaves.problem
    assert (first.by_node, first.leaves) == ({}, ())
    assert "not known now" in first.problem
    after = found(runner, TREE, leaves.to_state(), now_s=late + 60.0)
    assert after == leaves, "why is told for as long as it holds"
    assert len(runner.asked) == 2


def test_from_25_05_on_silence_is_an_answer_and_a_file_in_yaml_is_found() -> None:
    flat = config("topology/flat", major=25)

    silent, told = known(Runner(""), flat), known(Runner(), flat)

    assert (silent.by_node, silent.problem) == ({}, "")
    assert set(told.by_node) == {f"n{n}" for n in range(1, 9)}


@pytest.mark.parametrize(
    "spoilt",
    [
        None,
        7,
        {},
        {"plugin": "topology/tree", "asked_s": NOW_S, "told": [["s1", "n[1-"]]},
        {"plugin": "topology/tree", "asked_s": "x", "told": []},
        {"plugin": "topology/tree", "asked_s": NOW_S, "told": [["s1"]]},
    ],
)
def test_what_was_kept_and_cannot_be_read_is_asked_for_anew(spoilt: object) -> None:
    assert found(Runner(), TREE, spoilt) == known(Runner())


@pytest.fixture
def world(quick_folder: Path) -> TickWorld:
    world = tick_world(quick_folder)
    planner = PlannerSettings(policy="lookahead")
    return replace(world, site=structs.replace(world.site, planner=planner))


def topologies_asked(world: TickWorld) -> int:
    return world.slurm.calls("scontrol").count(SHOW_TOPOLOGY)


def test_a_tick_asks_once_an_hour_and_tells_how_many_leaves_it_knows(
    world: TickWorld,
) -> None:
    world.slurm.standin.wire(RACKS)
    first = world.tick()
    requests = first.status.requests
    world.now_s += 60.0
    second = world.tick()
    asked = topologies_asked(world)
    pass_by(world, ASKED_EVERY_S)

    assert (first.status.leaves, first.status.leaf_rate) == (2, 0.3)
    assert (second.status.leaves, second.status.requests) == (2, requests - 1)
    assert asked == 1
    assert topologies_asked(world) == 2
    assert not first.status.problems


def test_a_tick_without_topology_asks_for_none_and_tells_none(world: TickWorld) -> None:
    status = world.status()

    assert topologies_asked(world) == 0
    assert (status.leaves, status.leaf_rate, status.problems) == (0, None, ())
    assert "topology" not in world.forecast()


def test_the_published_planner_asks_for_no_topology(quick_folder: Path) -> None:
    world = tick_world(quick_folder)
    world.slurm.standin.wire(RACKS)
    world.tick()

    assert topologies_asked(world) == 0


def test_a_topology_that_is_not_told_stops_no_tick(world: TickWorld) -> None:
    world.slurm.standin.wire(RACKS)
    world.slurm.script("scontrol", *[Act.NORMAL] * 4, Act.HANG)

    status = world.status()
    world.now_s += 60.0
    after = world.status()

    assert any("switches" in problem for problem in status.problems)
    assert (status.leaves, after.problems) == (0, status.problems)


def test_racks_that_leave_whole_become_what_is_usual_and_are_kept(
    world: TickWorld,
) -> None:
    world.slurm.standin.wire(RACKS)
    world.tick()
    before = world.status().leaf_rate
    for rack in ("rack1", "rack2"):
        taken(world, *RACKS[rack])

    rate = world.status().leaf_rate

    assert before is not None
    assert rate is not None
    assert rate > before == 0.3
    assert world.forecast()["leaves"]["together"] > 1.9


def test_what_was_learned_before_a_topology_was_known_is_kept(world: TickWorld) -> None:
    world.tick()
    world.now_s += 300.0
    world.slurm.standin.wire(RACKS)

    status = world.status()

    assert status.leaves == 2
    assert not status.problems
    assert world.forecast()["watched_s"] > 300.0


def test_leaves_are_told_as_slurm_wrote_them() -> None:
    assert known(Runner()).leaves == (Leaf("rack1", "n[1-4]"), Leaf("rack2", "n[5-8]"))
