"""Trainers of different curves on a real cluster, by one priority after another."""

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from freetrain.elastic.files import RunDir
from tests.cluster.cluster import Cluster
from tests.cluster.waiting import wait_for
from tests.e2e.stage import Stage

RATES = {"steep": "0.004", "gentle": "0.02", "flat": "0.2", "lost": "1e6"}
"""Learning rates. ``flat`` gains nothing after a quarter of its steps, and the losses
of ``lost`` are not finite after two."""

STEEP_TARGET = 0.5
"""A loss that ``steep`` reaches after two thirds of its steps."""

_EPOCHS = "20"
_STEP_S = "1"
_LIMIT_S = 1_800.0
_LOOK_S = 2.0
_AVERAGED = 10  # losses of single batches jump


class Seen(NamedTuple):
    """Nodes and states of trainers by name, some seconds after their submission."""

    at_s: float
    nodes: Mapping[str, int]
    states: Mapping[str, str]


def compare(cluster: Cluster, folder: Path, *, tick_every_s: float) -> Iterator[str]:
    """Yield a table of the same trainers under ``fair`` and ``slaq``."""
    yield f"rates {RATES}; {_EPOCHS} epochs; target of steep: loss {STEEP_TARGET}"
    yield (
        "| priority | steep at its target, s | "
        + " | ".join(f"{name} done, s / mean nodes" for name in RATES)
        + " | node-s held by lost while others trained |"
    )
    yield "|---" * (len(RATES) + 3) + "|"
    for priority in ("fair", "slaq"):
        mine = folder / priority
        mine.mkdir()
        stage = Stage(cluster, mine)
        began_s, looks = _live(stage, priority, tick_every_s)
        yield _row(stage, priority, began_s, looks)
        cluster.clear()


def _live(stage: Stage, priority: str, tick_every_s: float) -> tuple[float, list[Seen]]:
    """Train all to their end; return when that began, and the polls."""
    # Speeds measured where eight nodes share two cores say nothing of the priority.
    planner = f'[planner]\npriority = "{priority}"\nlearn = false'
    stage.set_up(lease='partition = "freetrain"\nmode = "preempt"', more=planner)
    for name, rate in RATES.items():
        stage.submit(
            name,
            most=8,
            DIGITS_EPOCHS=_EPOCHS,
            DIGITS_STEP_S=_STEP_S,
            DIGITS_RATE=rate,
        )
    began_s, clock_s = time.time(), time.monotonic()  # noqa: TID251 -- the real one
    looks: list[Seen] = []

    def are_done() -> bool:
        status = stage.status()
        looks.append(
            Seen(
                time.monotonic() - clock_s,
                {name: int(own["nodes"]) for name, own in status.items()},
                {name: str(own["state"]) for name, own in status.items()},
            )
        )
        states = looks[-1].states
        return all(states[name] == "finished" for name in RATES if name != "lost")

    with stage.ticking(tick_every_s):
        wait_for("all to finish", are_done, limit_s=_LIMIT_S, pause_s=_LOOK_S)
        stage.freetrain("cancel", *RATES)
        wait_for("leases to go", lambda: not stage.leases(), limit_s=300, pause_s=1)
    return began_s, looks


def _row(stage: Stage, priority: str, began_s: float, looks: Sequence[Seen]) -> str:
    reached_s = _reached_s(stage.trainer("steep")[1], STEEP_TARGET) - began_s
    cells = [f"{_done_s(looks, name):.0f} / {_mean(looks, name):.1f}" for name in RATES]
    held = sum(
        before.nodes["lost"] * (after.at_s - before.at_s)
        for before, after in pairwise(looks)
    )
    return f"| {priority} | {reached_s:.0f} | {' | '.join(cells)} | {held:.0f} |"


def _done_s(looks: Sequence[Seen], name: str) -> float:
    done = (look.at_s for look in looks if look.states[name] == "finished")
    return next(done, math.nan)


def _mean(looks: Sequence[Seen], name: str) -> float:
    """Return the nodes that *name* held on average until it had finished."""
    before = [look.nodes[name] for look in looks if look.states[name] != "finished"]
    return fmean(before) if before else 0.0


def _reached_s(run: RunDir, target: float) -> float:
    """Return when the mean of the last losses first was at most *target*, Unix time."""
    lines = run.progress.read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row.get("loss") is not None]
    for end in range(_AVERAGED, len(rows) + 1):
        last = rows[end - _AVERAGED : end]
        if fmean(float(row["loss"]) for row in last) <= target:
            return float(last[-1]["t"])
    return math.nan
