"""A long training with kills and freezes at random moments, checked at the end."""

from __future__ import annotations

import threading
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

from tests.cluster.waiting import wait_for
from tests.e2e.faults import Chaos
from tests.e2e.outcome import check_losses, check_samples, losses
from tests.e2e.stage import EPOCHS, Stage, undisturbed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.cluster import Cluster

TRAINERS = ("ada", "ben", "cleo")
_LIMIT_S = 3_600.0
_PAUSE_S = (1.0, 20.0)


def endure(cluster: Cluster, folder: Path, *, seed: int, kills: int) -> Iterator[str]:
    """Yield each fault and the summary; raises where a promise was broken."""
    alone = folder / "alone"
    alone.mkdir()
    reference = undisturbed(alone)
    stage = Stage(cluster, folder)
    stage.set_up(lease='partition = "freetrain"\nshortest = "1min"')
    hurry = folder / "hurry"
    for name in TRAINERS:
        stage.submit(
            name,
            DIGITS_EPOCHS=str(EPOCHS),
            DIGITS_STEP_S="2",
            DIGITS_HURRY=str(hurry),
            DIGITS_STRAY="7200",
        )
    random = Random(seed)  # noqa: S311  a test's moments, no secret
    chaos = Chaos(stage, TRAINERS, random)
    with stage.ticking(3):
        runs = [stage.trainer(name)[1] for name in TRAINERS]
        wait_for("all to train", lambda: all(map(losses, runs)), limit_s=_LIMIT_S)
        while chaos.kills < kills:
            wait_for("something to strike", chaos.strike, limit_s=_LIMIT_S)
            number, kind, _ = chaos.faults[-1]
            yield f"{len(chaos.faults)}: {number.name} to {kind}"
            threading.Event().wait(random.uniform(*_PAUSE_S))
        hurry.touch()
        chaos.wake()
        ended = {"finished"}
        wait_for(
            "the end",
            lambda: set(stage.states().values()) == ended,
            limit_s=_LIMIT_S,
            pause_s=1,
        )
        wait_for("leases to go", lambda: not stage.leases(), limit_s=_LIMIT_S)
    wait_for("no process of ours", lambda: not stage.processes())
    for run in runs:
        check_losses(run, reference)
        check_samples(run)
    chaos.check_nothing_committed_was_lost()
    done = Counter(f"{number.name} to {kind}" for number, kind, _ in chaos.faults)
    steps = sum(len(losses(run)) for run in runs)
    again = steps - len(runs) * len(reference)
    yield f"{dict(done)}; {again} of {steps} steps were done again"
    yield "all losses as in one process, every sample used once, nothing left behind"
