"""Leaf switches and blocks as scontrol writes them."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.errors import UnreadableOutputError
from slurm.records import (
    Leaf,
    collapse,
    expand,
    leaf_by_node,
    may_have_leaves,
    must_have_leaves,
)
from slurm.text import TOPOLOGY_ARGV, parse_config, parse_topology
from tests.record_slurm import RECORDED, Pseudonyms
from tests.slurm_library.clusters import RECORDINGS, recorded

TOPOLOGIES = sorted(RECORDINGS.parent.glob("*/*/topology.txt"))
RACKS = {f"n{n}": "rack1" if n <= 4 else "rack2" for n in range(1, 9)}
NAMES = st.text("abs-1", min_size=1, max_size=4)
CHANGE = next(file.change for file in RECORDED if file.file == "topology.txt")


def named(path: Path) -> str:
    return f"{path.parent.parent.name} {path.parent.name}"


def test_there_are_recordings_of_both_kinds_and_of_a_file_in_yaml() -> None:
    assert [named(path) for path in TOPOLOGIES] == [
        "22.05 tree",
        *("24.11 block", "24.11 tree"),
        *("26.05 block", "26.05 tree", "26.05 yaml"),
    ]


@pytest.mark.parametrize("path", TOPOLOGIES, ids=named)
def test_every_recording_has_two_racks_of_four_and_names_its_command(
    path: Path,
) -> None:
    command = path.with_name("commands.txt").read_text("utf-8")

    leaves = parse_topology(path.read_text("utf-8"))

    assert leaf_by_node(leaves) == RACKS
    assert shlex.split(command) == ["topology.txt:", *TOPOLOGY_ARGV]


@pytest.mark.parametrize("path", TOPOLOGIES, ids=named)
def test_a_recording_made_anew_reads_to_racks_of_other_names(path: Path) -> None:
    made = CHANGE(Pseudonyms(), path.read_text("utf-8"))

    racks = leaf_by_node(parse_topology(made))

    assert "rack" not in made
    assert sorted(map(len, _groups(racks))) == [4, 4]


def _groups(racks: dict[str, str]) -> list[list[str]]:
    return [[n for n in racks if racks[n] == name] for name in {*racks.values()}]


def test_silence_is_how_slurm_says_that_there_is_none() -> None:
    assert parse_topology("") == parse_topology("\n") == ()
    assert CHANGE(Pseudonyms(), "") == ""


def test_a_leaf_without_nodes_and_kinds_that_are_not_known_are_left_out() -> None:
    text = (
        "SwitchName=s0 Level=0 LinkSpeed=1\n"
        "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=(null)\n"
        "RingName=r1 Nodes=n[1-2]\n"
        "SwitchName=s2 Level=0 LinkSpeed=1 Nodes=n3 Newer=thing\n"
    )

    assert parse_topology(text) == (Leaf("s2", "n3"),)


def test_a_node_below_two_leaves_counts_to_the_first() -> None:
    leaves = [Leaf("s1", "n[1-3]"), Leaf("s2", "n[3-4]")]

    assert leaf_by_node(leaves) == {"n1": "s1", "n2": "s1", "n3": "s1", "n4": "s2"}


@pytest.mark.parametrize(
    "text",
    [
        "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[1-4]",  # cut short
        "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[1-\n",
        "slurm_load_topo error: Unable to contact slurm controller\n",
        "\x1b[31m<html>502 Bad Gateway</html>\n",
        " SwitchName=s0 Level=0 Nodes=n1\n",
    ],
)
def test_what_is_no_topology_is_refused(text: str) -> None:
    with pytest.raises(UnreadableOutputError, match="cannot read line"):
        parse_topology(text)


@given(
    st.dictionaries(
        NAMES, st.sets(st.integers(0, 40), min_size=1), min_size=1, max_size=5
    )
)
def test_what_is_written_as_slurm_does_is_read_again(
    racks: dict[str, set[int]],
) -> None:
    lists = {name: collapse(f"n{k}" for k in nodes) for name, nodes in racks.items()}
    lines = [
        f"SwitchName={name} Level=0 LinkSpeed=1 Nodes={nodes}\n"
        for name, nodes in lists.items()
    ]
    top = "SwitchName=top Level=1 LinkSpeed=1 Nodes=n[0-40] Switches=s[0-9]\n"

    leaves = parse_topology("".join(lines) + top)

    assert {leaf.name: leaf.nodes for leaf in leaves} == lists
    for node, name in leaf_by_node(leaves).items():
        assert node in expand(lists[name])


def test_whether_to_ask_goes_by_the_plugin_and_from_25_05_on_always() -> None:
    old = parse_config(recorded("quiet", "config.txt"))
    tree = replace(old, topology_plugin="topology/tree")
    flat = replace(
        old, release=replace(old.release, major=25), topology_plugin="topology/flat"
    )

    assert old.topology_plugin == "topology/none"
    assert (may_have_leaves(old), must_have_leaves(old)) == (False, False)
    assert (may_have_leaves(tree), must_have_leaves(tree)) == (True, True)
    assert (may_have_leaves(flat), must_have_leaves(flat)) == (True, False)


def test_a_configuration_that_names_no_topology_is_read_all_the_same() -> None:
    lines = recorded("quiet", "config.txt").splitlines(keepends=True)
    without = "".join(line for line in lines if "Topology" not in line)

    assert parse_config(without).topology_plugin == ""
