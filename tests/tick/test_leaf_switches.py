"""When Slurm is asked which leaf switch nodes are below, and what is kept of that."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from freetrain.tick.lookahead import ASKED_EVERY_S, LeafSwitches, leaf_switches_of
from slurm.backend import CommandLine
from slurm.errors import SlurmUnavailableError
from slurm.records import ClusterConfig, Leaf
from slurm.text import parse_config
from tests.fakes.slurm.state import Act
from tests.slurm.clusters import RECORDINGS, recorded
from tests.tick.tick_worlds import TickWorld, pass_by, taken

NOW_S = 1.9e9
AN_HOUR_LATER_S = NOW_S + ASKED_EVERY_S
TREE_TEXT = (RECORDINGS / "tree" / "topology.txt").read_text("utf-8")
RACKS = {"rack1": ["n1", "n2", "n3", "n4"], "rack2": ["n5", "n6", "n7", "n8"]}


def config(plugin: str, *, major: int = 22, minor: int = 5) -> ClusterConfig:
    plain = parse_config(recorded("quiet", "config.txt"))
    release = replace(plain.release, major=major, minor=minor)
    return replace(plain, topology_plugin=plugin, release=release)


TREE = config("topology/tree")
NEWER = config("topology/flat", major=25)


class Asking:
    """Asks a Slurm that answers one text to everything; None for no answer."""

    def __init__(self, text: str | None = TREE_TEXT) -> None:
        self.text, self.asked = text, 0

    def run(self, argv: Sequence[str], *, timeout_s: float) -> str:
        del argv, timeout_s
        self.asked += 1
        if self.text is None:
            raise SlurmUnavailableError("no answer")
        return self.text

    def maybe(
        self, config: ClusterConfig, state: object = None, *, now_s: float = NOW_S
    ) -> LeafSwitches | None:
        backend = CommandLine(self)
        return leaf_switches_of(backend, config, state, now_s=now_s)

    def found(
        self,
        config: ClusterConfig = TREE,
        state: object = None,
        *,
        now_s: float = NOW_S,
    ) -> LeafSwitches:
        leaves = self.maybe(config, state, now_s=now_s)
        assert leaves is not None
        return leaves

    def later(self, config: ClusterConfig, *texts: str | None) -> list[LeafSwitches]:
        """Ask, and again an hour later, once a minute, where Slurm says *texts*."""
        leaves, seen = self.found(config), []
        for number, self.text in enumerate(texts):
            state = json.loads(json.dumps(leaves.to_state()))
            now_s = AN_HOUR_LATER_S + 60.0 * number
            leaves = self.found(config, state, now_s=now_s)
            seen.append(leaves)
        return seen


FIRST = Asking().found()


def test_leaves_are_known_as_slurm_wrote_them() -> None:
    assert FIRST.leaves == (Leaf("rack1", "n[1-4]"), Leaf("rack2", "n[5-8]"))
    assert set(FIRST.by_node) == {f"n{n}" for n in range(1, 9)}


@pytest.mark.parametrize("plugin", ["topology/none", "topology/default", ""])
def test_a_site_without_topology_is_not_asked(plugin: str) -> None:
    slurm = Asking()
    assert slurm.maybe(config(plugin)) is None
    assert slurm.asked == 0


def test_slurm_is_asked_once_an_hour_and_the_answer_kept_as_json_meanwhile() -> None:
    slurm = Asking()
    state = json.loads(json.dumps(slurm.found().to_state()))
    soon = slurm.found(TREE, state, now_s=AN_HOUR_LATER_S - 1.0)
    asked = slurm.asked
    late = slurm.found(TREE, state, now_s=AN_HOUR_LATER_S)
    assert (soon, asked) == (FIRST, 1)
    assert (late, slurm.asked) == (replace(FIRST, asked_s=AN_HOUR_LATER_S), 2)


def test_another_topology_and_a_clock_that_went_back_are_asked_for_at_once() -> None:
    slurm = Asking()
    state = slurm.found().to_state()
    slurm.maybe(config("topology/block"), state)
    slurm.maybe(TREE, state, now_s=NOW_S - 1.0)
    assert slurm.asked == 3


@pytest.mark.parametrize(
    ("config", "texts", "leaves", "asked"),
    [
        (NEWER, ["", "", TREE_TEXT, TREE_TEXT], [2, 2, 2, 2], 4),
        (NEWER, [""] * 5, [2, 2, 0, 0, 0], 4),
        (NEWER, ["", "", None, "", ""], [2, 2, 2, 2, 2], 4),
        (TREE, [""] * 4, [2, 2, 2, 2], 2),
    ],
    ids=[
        "a newer Slurm is silent twice and asked again each minute",
        "silent three times it has no leaves, and is asked once an hour",
        "no answer is no silence",
        "where there must be leaves silence takes none away",
    ],
)
def test_silence_takes_leaves_away_only_when_it_lasts(
    config: ClusterConfig, texts: list[str | None], leaves: list[int], asked: int
) -> None:
    slurm = Asking()
    seen = slurm.later(config, *texts)
    assert [len(one.leaves) for one in seen] == leaves
    assert slurm.asked == asked


def test_why_leaves_are_not_known_now_is_reported() -> None:
    problems = [one.problem for one in Asking().later(NEWER, "", "", "", TREE_TEXT)]
    assert "Slurm names none of those that it named before" in problems[0]
    assert [bool(problem) for problem in problems] == [True, True, False, False]


@pytest.mark.parametrize("text", [None, "", "\x1b[31m<html>502 Bad Gateway</html>\n"])
def test_without_answer_the_last_holds_for_another_hour(text: str | None) -> None:
    slurm = Asking()

    (leaves,) = slurm.later(TREE, text)
    again = slurm.found(TREE, leaves.to_state(), now_s=AN_HOUR_LATER_S + 60.0)
    never = Asking(text).found()

    assert leaves.by_node == FIRST.by_node
    assert "are not known now" in leaves.problem
    assert again == leaves, "the problem is reported for as long as it holds"
    assert slurm.asked == 2
    assert (never.by_node, never.leaves) == ({}, ())
    assert "not known now" in never.problem


def test_from_25_05_on_silence_is_an_answer_and_a_file_in_yaml_is_found() -> None:
    flat = config("topology/flat", major=25)
    silent = Asking("").found(flat)
    assert (silent.by_node, silent.problem) == ({}, "")
    assert Asking().found(flat).by_node == FIRST.by_node


SAVED = {"plugin": "topology/tree", "asked_s": NOW_S}


@pytest.mark.parametrize(
    "spoilt",
    [
        *(None, 7, {}),
        {**SAVED, "told": [["s1", "n[1-"]]},
        {**SAVED, "asked_s": "x", "told": []},
        {**SAVED, "told": [["s1"]]},
    ],
)
def test_a_saved_answer_that_cannot_be_read_is_asked_for_anew(spoilt: object) -> None:
    assert Asking().maybe(TREE, spoilt) == FIRST


# Ticks.


@pytest.fixture
def wired(world: TickWorld) -> TickWorld:
    world.change("planner", policy="lookahead")
    world.slurm.standin.wire(RACKS)
    return world


def topologies_asked(world: TickWorld) -> int:
    asked = ["--oneliner", "show", "topology"]
    return world.slurm.calls("scontrol").count(asked)


def test_a_tick_asks_for_leaves_once_an_hour(wired: TickWorld) -> None:
    first = wired.status()
    wired.now_s += 60.0
    second = wired.status()
    asked = topologies_asked(wired)
    pass_by(wired, ASKED_EVERY_S)
    assert (first.leaves, first.leaf_rate, first.problems) == (2, 0.3, ())
    assert (second.leaves, second.requests) == (2, first.requests - 1)
    assert (asked, topologies_asked(wired)) == (1, 2)


def test_a_tick_without_topology_asks_for_none_and_reports_none(
    world: TickWorld,
) -> None:
    world.change("planner", policy="lookahead")
    status = world.status()
    assert topologies_asked(world) == 0
    assert (status.leaves, status.leaf_rate, status.problems) == (0, None, ())
    assert "topology" not in world.forecast()


def test_the_published_planner_asks_for_no_topology(wired: TickWorld) -> None:
    wired.change("planner", policy="freetrain")
    wired.tick()
    assert topologies_asked(wired) == 0


def test_a_topology_without_answer_stops_no_tick(wired: TickWorld) -> None:
    wired.slurm.script("scontrol", *[Act.NORMAL] * 4, Act.HANG)
    status = wired.status()
    wired.now_s += 60.0
    after = wired.status()
    assert any("switches" in problem for problem in status.problems)
    assert (status.leaves, after.problems) == (0, status.problems)


def test_racks_that_leave_whole_raise_the_leaf_rate(wired: TickWorld) -> None:
    wired.tick()
    before = wired.status().leaf_rate
    for rack in RACKS.values():
        taken(wired, *rack)
    rate = wired.status().leaf_rate
    assert rate is not None
    assert (before, rate > 0.3) == (0.3, True)
    assert wired.forecast()["leaves"]["together"] > 1.9


def test_a_forecast_from_before_a_topology_was_known_is_kept(world: TickWorld) -> None:
    world.change("planner", policy="lookahead")
    world.tick()
    world.now_s += 300.0
    world.slurm.standin.wire(RACKS)
    status = world.status()
    assert (status.leaves, status.problems) == (2, ())
    assert world.forecast()["watched_s"] > 300.0
