"""The live demo, played with real processes; and ended at any moment."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from freetrain.cli.demo_live import line_of, moment_view
from freetrain.demo.live import (
    DemoEnvironment,
    NoMpiError,
    find_mpirun,
    losses_alone,
    play,
    variables,
)
from freetrain.demo.report import figures_of
from tests.cluster.processes import processes
from tests.cluster.waiting import wait_for

PATIENCE_S = 600.0


@pytest.fixture(scope="module")
def mpirun() -> Path:
    try:
        return find_mpirun(os.environ, uid=os.getuid())
    except NoMpiError as error:
        pytest.skip(str(error))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


def naming(folder: Path) -> list[str]:
    """Return the command lines of processes that name *folder*."""
    lines = (" ".join(argv) for _, argv, _ in processes())
    return [line for line in lines if str(folder) in line]


def test_three_trainers_finish_with_the_losses_of_undisturbed_runs(
    home: Path, mpirun: Path
) -> None:
    environment = DemoEnvironment(
        now_s=time.time,  # noqa: TID251 - the stand-in goes by the machine's clock
        pause=time.sleep,
        environ=os.environ,
        home=home,
        uid=os.getuid(),
        mpirun=mpirun,
        mpi=variables(os.getuid()),
    )
    moments = list(
        play(home / "demo", environment, seconds=10, seed=1, longest_s=PATIENCE_S)
    )

    last = moments[-1]
    assert last.is_over
    # A supervisor tells how its job ended, and is gone a moment later.
    wait_for("nothing to be left", lambda: not naming(home))
    alone = losses_alone(home / "alone", environment)
    figures = figures_of(
        last.histories, alone, last.cluster.jobs, nodes=8, begin_s=last.begin_s
    )
    for one in figures.trainers:
        assert one.loss_difference == 0, one
        assert one.steps == 300
        assert one.accuracy is not None
        assert one.accuracy > 0.8
    assert figures.others.jobs >= 4
    for moment in moments:
        assert "ada" in line_of(moment)
        moment_view(moment)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_of_a_demo_that_was_ended(
    home: Path, mpirun: Path, number: signal.Signals
) -> None:
    del mpirun
    temporary = home / "tmp"
    temporary.mkdir()
    # A shell's background job, such as a whole run of the tests may be, ignores it.
    listen = "signal.signal(signal.SIGINT, signal.default_int_handler)"
    run = "from freetrain.cli.app import main; sys.exit(main())"
    program = f"import signal, sys; {listen}; {run}"
    demo = subprocess.Popen(  # noqa: S603 - our own words
        [sys.executable, "-c", program, "demo", "--live", "--out", str(home / "out")],
        env={**os.environ, "TMPDIR": str(temporary)},
        stderr=subprocess.DEVNULL,
    )
    wait_for(
        "a world to be started",
        lambda: list(temporary.glob("*/state/trainers/*/logs/*")),
    )

    demo.send_signal(number)

    assert demo.wait(PATIENCE_S) == (130 if number == signal.SIGINT else -number)
    wait_for("nothing to be left", lambda: not naming(temporary))
    assert not (home / "out").exists()
