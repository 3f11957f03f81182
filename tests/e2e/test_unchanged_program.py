"""``freetrain run`` of a program that saves by itself and knows no FreeTrain."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from freetrain.state.files import generations, read_assigned, read_ending
from tests.cluster.waiting import wait_for
from tests.e2e.faults import wait_for_the_end
from tests.e2e.stage import Stage
from tests.launch_live.trio import TORCHRUN

pytestmark = pytest.mark.slurm

PROGRAM = Path(__file__).with_name("unchanged_program.py")
LIMIT_S = 300.0
WORDS = ("run", "--nodes", "1:2", "--every", "6s", "--")
_TORCHRUN = os.environ.get(TORCHRUN, "")


@contextmanager
def following(
    stage: Stage, command: list[str], out: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Call ``freetrain run`` as long as the block lasts; it prints to *out*."""
    with out.open("wb") as file:
        process = subprocess.Popen(  # noqa: S603 -- our own interpreter and words
            # Tests that run in the background of a shell ignore INT.
            [
                *("/usr/bin/env", "--default-signal=INT", str(stage.python)),
                *("-m", "freetrain", *WORDS, *command),
            ],
            env=stage.environ,
            cwd=stage.folder,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def result_of(folder: Path) -> object:
    """Return the result of a run in *folder* that nobody disturbs."""
    folder.mkdir()
    shutil.copy(PROGRAM, folder / "train.py")
    (folder / "hurry").touch()
    subprocess.run(
        [sys.executable, "train.py"], cwd=folder, check=True, stdout=subprocess.DEVNULL
    )
    return json.loads((folder / "result.json").read_text())


def saved_ago_s(stage: Stage) -> float:
    """Return the age of the newest save; 0 before the first."""
    times = [path.stat().st_mtime for path in stage.folder.glob("saved/*.json")]
    return time.time() - max(times) if times else 0.0  # noqa: TID251 -- the real one


@pytest.mark.parametrize(
    "launcher",
    [
        ["python"],
        pytest.param(
            [_TORCHRUN, "--standalone"],
            marks=pytest.mark.skipif(not _TORCHRUN, reason=f"{TORCHRUN} is not set"),
        ),
    ],
    ids=["python", "torchrun"],
)
def test_an_unchanged_program_survives_a_kill_and_rescales_and_ends_as_undisturbed(
    stage_on: Callable[..., Stage], launcher: list[str]
) -> None:
    stage, command = stage_on(), [*launcher, "train.py"]
    shutil.copy(PROGRAM, stage.folder / "train.py")
    shown = stage.folder / "shown.txt"
    folder, _ = stage.trainer("train")

    def sizes() -> list[int]:
        """Return the leases of each generation that began."""
        every = [read_assigned(folder, g) for g in generations(folder.assignments)]
        return [len(each.members) for each in every if each.members]

    with stage.ticking(3):
        with following(stage, command, shown) as process:
            wait_for(
                "two ranks",
                lambda: b"rank 1 begins" in shown.read_bytes(),
                limit_s=LIMIT_S,
            )
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0
        assert b"`freetrain cancel train` stops it" in shown.read_bytes()

        with following(stage, command, shown) as process:
            lease = max(job.display_id for job in stage.leases())
            wait_for("work that is not saved", lambda: 2 < saved_ago_s(stage) < 3)
            stage.cluster.run("scancel", lease)
            wait_for("one node", lambda: sizes()[-1] == 1, limit_s=LIMIT_S)
            wait_for("two nodes again", lambda: sizes()[-1] == 2, limit_s=LIMIT_S)
            worlds = len(sizes())
            wait_for(
                "the last world to begin",
                lambda: shown.read_bytes().count(b"rank 0 begins") >= worlds,
                limit_s=LIMIT_S,
            )
            (stage.folder / "hurry").touch()
            wait_for_the_end(stage, limit_s=LIMIT_S)
            assert process.wait(timeout=60) == 0

    text = shown.read_text()
    assert re.search(r"train: generation 1 on n\d, n\d \(starts on 2 nodes\)\n", text)
    assert re.search(r"train: finished \S+ \S+ after it was submitted, in gener", text)
    assert "train saves by itself: at each change of nodes it gets TERM" in text
    endings = [read_ending(folder, g) for g in generations(folder.assignments)]
    assert any("it last saved" in e.message for e in endings if e is not None)
    result = json.loads((stage.folder / "result.json").read_text())
    assert result == result_of(stage.folder / "undisturbed")
