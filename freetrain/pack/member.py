"""One trainer of a pack: its process, its progress, and how it ended."""

from __future__ import annotations

import signal
import subprocess
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from freetrain.elastic.outcome import Ending, read_outcome
from freetrain.exchange.layout import generation_name
from freetrain.pack.processes import tell, used_s
from freetrain.pack.record import End
from freetrain.progress.growing_file import read_tail
from freetrain.progress.reader import Reader
from freetrain.toml.wording import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from freetrain.elastic.outcome import Outcome
    from freetrain.elastic.run_dir import RunDir
    from freetrain.jobfile.job import TrainerJob

MOST_VALUES = 20_000
"""Values of the metric that are kept between two looks; the oldest go first."""

LONGEST_WHY = 200
"""Characters that are kept of why a member failed."""

_TAIL_BYTES = 4_096

_OVER = {Ending.FINISHED: End.FINISHED, Ending.DO_NOT_RESTART: End.GAVE_UP}
"""What an elastic program's own word makes of its end, whatever its exit status."""


@dataclass(frozen=True, slots=True)
class Berth:
    """One fragment of a trainer in a pack, and where its things are.

    Attributes:
        job: What the trainer is.
        run: Its run directory.
        logs: The folder of what it prints.
        generation: The number of the fragment.
    """

    job: TrainerJob
    run: RunDir
    logs: Path
    generation: int

    @property
    def log(self) -> Path:
        """The file of what it prints."""
        return self.logs / f"{generation_name(self.generation)}.log"


@dataclass(slots=True)
class Member:
    """A trainer that runs.

    Attributes:
        berth: What runs.
        process: Its first process.
        reader: Reads what it tells.
        values: Time of reading and value of the metric, the newest last.
        pids: Its processes when last looked.
        used_s: CPU time so far, seconds.
        is_asked: Whether it was asked to stop.
    """

    berth: Berth
    process: subprocess.Popen[bytes]
    reader: Reader
    values: deque[tuple[float, float]] = field(
        default_factory=lambda: deque(maxlen=MOST_VALUES)
    )
    pids: tuple[int, ...] = ()
    used_s: float = 0.0
    is_asked: bool = False

    @property
    def name(self) -> str:
        """What people call the trainer."""
        return self.berth.job.name

    @property
    def is_elastic(self) -> bool:
        """Whether its program knows what a stop request and an outcome are."""
        return self.berth.job.elastic

    @property
    def done(self) -> tuple[int, float]:
        """Steps and samples done, as far as it told."""
        progress = self.reader.latest()
        if progress is None:
            return 0, 0.0
        return progress.step or 0, progress.samples or 0.0

    def hear(self, metric: str, *, sign: float, now_s: float) -> None:
        """Read what it told since the last call.

        Args:
            metric: Which of its metrics counts.
            sign: What its values are multiplied with.
            now_s: The time they get.
        """
        for record in self.reader.read():
            value = record.metrics.get(metric)
            if value is not None:
                self.values.append((now_s, sign * value))

    def forget(self, until_s: float) -> None:
        """Forget the values that it told until then."""
        while self.values and self.values[0][0] <= until_s:
            self.values.popleft()

    def count(self, pids: Iterable[int]) -> None:
        """Take note of its processes, and of the time that they used."""
        self.pids = tuple({*pids, self.process.pid})
        self.used_s = max(self.used_s, used_s(self.pids))

    def ask(self) -> None:
        """Ask it to stop."""
        self.is_asked = True
        if not self.is_elastic:
            number = signal.Signals[f"SIG{self.berth.job.stop.signal}"]
            tell(self.pids or (self.process.pid,), number)
            return
        # It looks there every 0.1 s; and a program that is not ready for a signal
        # yet would die of one.
        run = self.berth.run
        with suppress(OSError):
            run.control.mkdir(parents=True, exist_ok=True)
            run.stop_request(self.berth.generation).touch()

    @property
    def committed_step(self) -> int:
        """Steps that its newest checkpoint has; 0 where it tells of none."""
        with suppress(OSError):
            if self.is_elastic and (found := self.berth.run.committed()):
                return found[-1].step
        return 0

    def why_failed(self) -> str:
        """Return why it ended: in its own words where it left any."""
        said = self._said()
        if said is not None and said.message:
            return one_line(said.message)[:LONGEST_WHY]
        status, line = self.process.returncode, last_line(self.berth.log)
        if status is not None and status < 0:
            how = f"signal {-status}, {signal.strsignal(-status) or 'unknown'}"
            return f"{how}; {line}" if line else how
        return line or f"exit status {status}"

    def ended(self) -> End | None:
        """Return how it ended; None while it runs."""
        status = self.process.poll()
        if status is None:
            return None
        said = self._said()
        if said is not None and said.ending in _OVER:
            return _OVER[said.ending]
        if self.is_asked and (status == 0 or not self.is_elastic):
            return End.STOPPED
        is_done = status == 0 and not self.is_elastic
        return End.FINISHED if is_done else End.FAILED

    def _said(self) -> Outcome | None:
        with suppress(OSError):
            if self.is_elastic:
                return read_outcome(self.berth.run, self.berth.generation)
        return None


def last_line(log: Path) -> str:
    """Return the last line with something in it; empty where there is none."""
    text = read_tail(log, _TAIL_BYTES).decode("utf-8", "replace")
    lines = [line for line in map(one_line, text.splitlines()) if line]
    return lines[-1][:LONGEST_WHY] if lines else ""


def start(argv: Sequence[str], berth: Berth, environment: Mapping[str, str]) -> Member:
    """Start a member in a session of its own, printing into its log.

    Raises:
        OSError: It cannot be started.
    """
    run, logs = berth.run.path, berth.logs
    run.mkdir(parents=True, exist_ok=True, mode=0o700)
    logs.mkdir(parents=True, exist_ok=True, mode=0o700)
    reader = Reader(berth.job, run, logs)
    while reader.is_behind:  # what earlier fragments told
        reader.read()
    with berth.log.open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 -- the user's own command, no shell
            argv,
            cwd=berth.job.directory,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Member(berth, process, reader)
