"""A program without freetrain.elastic keeps what job.toml says of it."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from freetrain.config.job import read_job
from freetrain.formats import ProgressRecord
from freetrain.progress import ProgressReader, latest_progress, work_is_done
from tests.elastic.launching import REPOSITORY, clean_environment, wait_until

FOLDER = REPOSITORY / "examples" / "legacy"

pytestmark = pytest.mark.skipif(
    find_spec("sklearn") is None or not FOLDER.exists(),
    reason="no scikit-learn here (pip install scikit-learn), or no examples folder",
)


@dataclass(frozen=True)
class Legacy:
    """What the program saves and prints, and those of it that run."""

    folder: Path
    running: list[subprocess.Popen[bytes]]

    def start(self, generation: int, epochs: int) -> subprocess.Popen[bytes]:
        """Start the program, as the world of *generation*."""
        (self.folder / "logs").mkdir(parents=True, exist_ok=True)
        saved = ("--saved", str(self.folder / "saved"))
        argv = (str(FOLDER / "train.py"), "--epochs", str(epochs), *saved)
        with (self.folder / "logs" / f"{generation:010d}.log").open("wb") as log:
            process = subprocess.Popen(  # noqa: S603  # our own argv
                (sys.executable, *argv),
                env=clean_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.running.append(process)
        return process

    def reader(self) -> ProgressReader:
        return ProgressReader(
            read_job(FOLDER / "job.toml"), self.folder, self.folder / "logs"
        )

    def told(self) -> tuple[ProgressRecord, ...]:
        """All progress so far."""
        return self.reader().read()


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Legacy, Legacy]]:
    made = Legacy(tmp_path / "interrupted", []), Legacy(tmp_path / "undisturbed", [])
    yield made
    for process in (*made[0].running, *made[1].running):
        process.kill()
        process.wait()


@pytest.fixture
def legacy(both: tuple[Legacy, Legacy]) -> Legacy:
    return both[0]


def test_it_trains_and_its_progress_is_read(legacy: Legacy) -> None:
    assert legacy.start(1, 30).wait() == 0

    records = legacy.told()

    assert [record.epoch for record in records] == list(range(1, 31))
    assert records[-1].metrics["loss"] < 0.4
    assert records[-1].metrics["accuracy"] > 0.9
    job = read_job(FOLDER / "job.toml")
    latest = latest_progress(job, legacy.folder, legacy.folder / "logs")
    assert work_is_done(job.work, latest)


@pytest.mark.parametrize(
    ("number", "exit_code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -9)]
)
def test_stopped_or_killed_it_goes_on_from_what_it_saved(
    both: tuple[Legacy, Legacy], number: signal.Signals, exit_code: int
) -> None:
    legacy, undisturbed = both
    process = legacy.start(1, 1_000_000)
    wait_until(lambda: len(legacy.told()) > 2)
    process.send_signal(number)
    assert process.wait() == exit_code
    epochs = len(legacy.told()) + 3

    assert legacy.start(2, epochs).wait() == 0
    assert undisturbed.start(1, epochs).wait() == 0

    # An epoch may be saved, and the program killed before it says so.
    expected = {r.epoch: r.metrics["loss"] for r in undisturbed.told()}
    found = {r.epoch: r.metrics["loss"] for r in legacy.told()}
    assert len(found) == len(legacy.told())
    assert len(expected) - len(found) <= (number is signal.SIGKILL)
    assert found == {epoch: expected[epoch] for epoch in found}
