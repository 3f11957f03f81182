"""``freetrain replay --topology``: look-ahead that knows which nodes are neighbours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import TRAINERS, run

CONF = """\
# Ten racks of four, as an administrator writes them
SwitchName=rack0 Nodes=n[0-3]  # the old one

"""
CONF += "".join(
    f"SwitchName=rack{k} Nodes=n[{4 * k}-{4 * k + 3}]\n" for k in range(1, 10)
)
CONF += "SwitchName=spine Switches=rack[0-9]\n"
ALONE = "".join(f"SwitchName=s{k} Nodes=n{k}\n" for k in range(40))
REPLAY = (
    *("replay", "holes.csv", "--trainers", "trainers.toml", "--requeue"),
    *("--policy", "lookahead"),
)
TIMES = ("wall_s", "load_s", "replay_s", "solver_s")


def racks_that_never_met() -> str:
    """Ten racks of four; each is idle once, alone, and leaves whole."""
    rows = ["node,idle_start_s,idle_end_s"]
    for rack in range(10):
        start_s = 3_000 * rack
        rows += [f"n{4 * rack + k},{start_s},{start_s + 2_000}" for k in range(4)]
    return "\n".join(rows) + "\n"


@pytest.fixture(autouse=True)
def files() -> None:
    Path("holes.csv").write_text(racks_that_never_met())
    Path("trainers.toml").write_text(TRAINERS)
    Path("topology.conf").write_text(CONF)
    Path("alone").write_text(ALONE)


def replayed(*words: str) -> dict[str, Any]:
    """Return the record but for what took how long."""
    ran = run(*REPLAY, *words, "--json")
    assert ran.code == 0, ran.stderr
    (record,) = json.loads(ran.stdout)
    return {name: value for name, value in record.items() if name not in TIMES}


def test_who_is_near_whom_changes_what_is_expected() -> None:
    plain = replayed()
    racks = replayed("--topology", "topology.conf")
    alone = replayed("--topology", "alone")

    assert alone == plain
    assert racks["forecasts"] != plain["forecasts"]


def test_the_report_names_the_topology_in_its_command(tmp_path: Path) -> None:
    words = ("--topology", "topology.conf", "--out", "report")
    ran = run(*REPLAY, *words)

    told = (tmp_path / "report" / "summary.json").read_text()

    assert ran.code == 0, ran.stderr
    assert "--topology topology.conf" in told


@pytest.mark.parametrize(
    ("text", "said", "code"),
    [
        (None, "cannot read racks: No such file", 66),
        ("SwitchName=s0 Nodes=n[1-\n", "racks is no topology", 65),
        ("<html>\n", "racks is no topology: expected SwitchName=", 65),
        ("SwitchName=s0 Nodes=m[1-9]\n", "racks names no node of the log, whose f", 65),
        ("", "racks names no node of the log", 65),
    ],
)
def test_what_is_no_topology_of_that_machine_is_refused(
    text: str | None, said: str, code: int
) -> None:
    if text is not None:
        Path("racks").write_text(text)

    ran = run(*REPLAY, "--topology", "racks")

    assert (ran.code, ran.stdout) == (code, "")
    assert said in ran.stderr
