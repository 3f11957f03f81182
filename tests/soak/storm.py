"""Faults of every kind, a thousand of them, on a real cluster on which trainers train.

``weather`` returns a seed's faults: signals to agents, launchers, daemons, ranks,
helpers, ticks and slurmctld, single calls of ticks and agents that fail, and databases
that are lost, damaged or old. ``Storm`` carries them out, one after the other, while
another user's jobs come and go, and holds what must be so whatever happens:

* every loss is one of an undisturbed process, and every sample was used once, by the
  program's own log; nothing that was committed was lost;
* no lease is unknown to the broker for longer than one tick;
* no job of others waits longer than ``lease.silence`` and a tick;
* no node is drained and no job held but where slurmctld was killed as it started a job,
  or before it had saved one whose number it then gave away again;
* no lease and no process is left at the end.
"""

import os
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from random import Random
from statistics import median
from subprocess import CalledProcessError
from typing import NamedTuple, Self

from freetrain.state.copies import damaged_of
from freetrain.state.database import DATABASE, turn_in
from freetrain.state.files import UnreadableFileError
from freetrain.state.turn import this_process
from freetrain.tick.status_report import read_status_report
from slurm.records import JobState
from tests.cluster.cluster import (
    LAUNCH_FAILED,
    Cluster,
    restart_controller,
    resume_drained,
)
from tests.cluster.processes import proc_words
from tests.cluster.settings import NODES, Variant
from tests.cluster.waiting import wait_for
from tests.e2e.faults import (
    NAMES,
    Chaos,
    Kind,
    check_all,
    find,
    submit_all,
    wait_for_the_end,
)
from tests.e2e.outcome import losses
from tests.e2e.stage import EPOCHS, Stage, TickRun
from tests.soak.call_faults import KINDS, CallFaults, make_python
from tests.soak.harm_runs import LEASE

SILENCE_S = 60.0
TICK_EVERY_S = 3.0
SLACK_S = 30.0
"""For a commit, the end of a lease and backfill's cycle, as long as not more than
``_FULL`` processes want each CPU: cluster and trainers alone make two or three."""
_FULL = 4.0


_OF_A_KILLED_SLURMCTLD = frozenset({"Duplicate jobid", LAUNCH_FAILED})
"""Reasons of nodes and jobs where slurmctld was killed as it started a job, or gave a
number twice."""


_WRITING_S = 5.0
"""For a job that has just ended to have written its file."""


class Strike(StrEnum):
    """What happens to one process, call or file."""

    KILL = "killed"
    TERM = "asked to end"
    FREEZE = "frozen for a while"
    CALL = "one call failed"
    LOSE = "lost"
    DAMAGE = "damaged"
    AGE = "replaced by an old copy"


class Target(StrEnum):
    """What is struck."""

    AGENT = "agent"
    HEAD = "head agent"
    LAUNCHER = "launcher"
    DAEMON = "launch daemon"
    RANK = "rank"
    HELPER = "helper"
    TICK = "tick"
    CONTROLLER = "slurmctld"
    DATABASE = "database"


_KINDS = {
    Target.AGENT: Kind.AGENT,
    Target.HEAD: Kind.HEAD,
    Target.LAUNCHER: Kind.LAUNCHER,
    Target.DAEMON: Kind.DAEMON,
    Target.RANK: Kind.RANK,
}
_SIGNALS = (Strike.KILL, Strike.TERM, Strike.FREEZE)
_FILES = (Strike.LOSE, Strike.DAMAGE, Strike.AGE)
_WEIGHTS = {
    Target.AGENT: 5,
    Target.HEAD: 3,
    Target.LAUNCHER: 3,
    Target.DAEMON: 3,
    Target.RANK: 5,
    Target.HELPER: 3,
    Target.TICK: 3,
    Target.CONTROLLER: 1,
}


class Fault(NamedTuple):
    """One fault, and for how long a frozen process stays so."""

    strike: Strike
    target: Target
    frozen_s: float


def weather(
    random: Random, *, calls_every: int = 4, databases_every: int = 50
) -> Iterator[Fault]:
    """Yield faults without end; the same for the same seed.

    One in *calls_every* is a failing call, one in *databases_every* a database's.
    """
    targets, weights = list(_WEIGHTS), list(_WEIGHTS.values())
    number = 0
    while True:
        number += 1
        frozen_s = random.uniform(0.5, 15.0)
        if number % databases_every == 0:
            yield Fault(random.choice(_FILES), Target.DATABASE, 0.0)
        elif number % calls_every == 0:
            target = random.choice((Target.AGENT, Target.TICK))
            yield Fault(Strike.CALL, target, 0.0)
        else:
            (target,) = random.choices(targets, weights)
            yield Fault(random.choice(_SIGNALS), target, frozen_s)


def is_helper(argv: list[str]) -> bool:
    """Tell whether a process of ours is a step's client or a starter of ranks."""
    program = Path(argv[0]).name if argv else ""
    is_python = program.startswith("python")
    return program == "srun" or (is_python and "freetrain.launch.starter" in argv)


def is_tick(argv: list[str]) -> bool:
    """Tell whether a process is a tick."""
    return argv[1:4] == ["-m", "freetrain", "tick"]


@dataclass(frozen=True)
class WatchedStage(Stage):
    """A stage whose ticks are looked at: does each know all leases there are?

    Attributes:
        unknown: For each job of a lease, how many good ticks in a row did not know it.
        strangers: What was not known for longer than one tick.
    """

    unknown: Counter[str] = field(default_factory=Counter)
    strangers: list[str] = field(default_factory=list)

    def knows_its_trainers(self) -> bool:
        """Whether the state has all trainers, as ``freetrain status`` shows them."""
        done = self.freetrain("status", "--json", "--all")
        names = {f'"{name}"' for name in NAMES}
        return done.returncode == 0 and all(name in done.stdout for name in names)

    def tick(self, *options: str) -> TickRun:
        """Run the tick; leases from before it must be known to it, or to the next."""
        before = self._jobs()
        ran = super().tick(*options)
        if ran.exit_code != 0 or before is None:
            return ran
        there = self._jobs()
        with suppress(UnreadableFileError, OSError):
            report = read_status_report(self.state.status_report)
            if report is not None and there is not None:
                self.compare(before & there, {lease.job for lease in report.leases})
        return ran

    def compare(self, jobs: set[str], known: set[str]) -> None:
        """Note which of the *jobs* of leases a good tick did not know."""
        for job in jobs - known:
            self.unknown[job] += 1
            if self.unknown[job] == 2:
                self.strangers.append(f"{job}, beside {sorted(known)}")
        for job in known & set(self.unknown):
            del self.unknown[job]

    def _jobs(self) -> set[str] | None:
        """Return the jobs of leases that Slurm has; None where it does not answer."""
        with suppress(CalledProcessError):
            return {
                job.display_id
                for job in self.leases()
                if JobState.COMPLETING not in job.states
            }
        return None


def set_up_stage(cluster: Cluster, folder: Path) -> WatchedStage:
    """Return a stage below *folder* whose ticks and agents can be made to fail."""
    home, injected = folder / "home", folder / "injected"
    home.mkdir(mode=0o755)
    stage = WatchedStage(cluster, home, python=make_python(injected, watched=home))
    lease = LEASE[Variant.SHARED in cluster.variants]
    stage.set_up(lease=f'{lease}\nshortest = "1min"\nsilence = "{SILENCE_S:g}s"')
    return stage


class Visitors:
    """Another user's jobs, one at a time, and how long each waited for its nodes."""

    def __init__(self, stage: Stage, random: Random) -> None:
        """Take the stage, and a source of sizes and pauses."""
        self._stage, self._random = stage, random
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.waits_s: list[float] = []
        self.downtime_s = 0.0
        """How long slurmctld was stopped by us: nothing starts then."""
        self.forgotten = 0
        """Jobs that slurmctld took and had not saved when it was killed."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _work(self) -> None:
        number = 0
        while not self._done.wait(self._random.uniform(2.0, 15.0)):
            number += 1
            file = self._stage.folder / f"visitor-{number}"
            down_s, began_s = self.downtime_s, time.time()  # noqa: TID251 -- the real
            job = self._submit(file, self._random.randint(1, len(NODES)))
            while job and not _is_written(file):
                waited_s = time.time() - began_s  # noqa: TID251 -- as above
                if waited_s > 20 * SILENCE_S:
                    self.waits_s.append(waited_s)
                    return
                time.sleep(1.0)
                if not self._is_known(job):
                    time.sleep(_WRITING_S)
                    break
            if _is_written(file):
                waited_s = float(file.read_text()) - began_s
                self.waits_s.append(waited_s - (self.downtime_s - down_s))
            else:
                self.forgotten += bool(job)

    def _submit(self, file: Path, nodes: int) -> str:
        """Return the job's number; empty where Slurm took none."""
        words = ("--parsable", "--chdir=/", "--output=/dev/null", "--partition=main")
        script = f"date +%s.%N > {file}; sleep 1"
        with suppress(CalledProcessError):
            return self._stage.cluster.run(
                "sbatch", *words, "--time=1", f"--nodes={nodes}", f"--wrap={script}"
            ).strip()
        return ""

    def _is_known(self, job: str) -> bool:
        """Tell whether Slurm has the job, or does not answer."""
        with suppress(CalledProcessError):
            return job in self._stage.cluster.run("squeue", "--noheader", "--format=%A")
        return True


def _is_written(file: Path) -> bool:
    return file.exists() and bool(file.read_text())


class Storm:
    """Carries out faults on a stage."""

    def __init__(
        self, stage: WatchedStage, calls: CallFaults, visitors: Visitors, random: Random
    ) -> None:
        """Take what is struck, and a source of choices."""
        self._stage, self._calls, self._visitors = stage, calls, visitors
        self._random = random
        self._frozen: list[tuple[float, int]] = []
        self._old = stage.folder / "old.sqlite"
        self.drained: list[tuple[str, str]] = []
        """Nodes that slurmctld drained and jobs that it held, with its reasons."""

    def resume_drained(self) -> None:
        """Resume nodes that are drained, and release jobs that failed to start."""
        with suppress(CalledProcessError):
            self.drained += resume_drained(self._stage.cluster)

    def strike(self, fault: Fault) -> bool:
        """Carry out *fault*; return whether there was anything to strike."""
        if fault.target is Target.CONTROLLER:
            self._strike_controller(fault)
        elif fault.target is Target.DATABASE:
            return self._strike_database(fault.strike)
        elif fault.strike is Strike.CALL:
            kind = KINDS[fault.target is Target.TICK]
            return bool(self._calls.order(kind, self._random))
        else:
            return self._signal(fault)
        return True

    def thaw(self, *, every: bool = False) -> None:
        """Let what was frozen for long enough go on."""
        now_s = time.monotonic()
        due = [entry for entry in self._frozen if every or entry[0] <= now_s]
        for entry in due:
            self._frozen.remove(entry)
            with suppress(ProcessLookupError):
                os.kill(entry[1], signal.SIGCONT)

    def _signal(self, fault: Fault) -> bool:
        pids = self._processes(fault.target)
        if not pids:
            return False
        pid = self._random.choice(sorted(pids))
        number = {
            Strike.KILL: signal.SIGKILL,
            Strike.TERM: signal.SIGTERM,
            Strike.FREEZE: signal.SIGSTOP,
        }[fault.strike]
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        if number is signal.SIGSTOP:
            self._frozen.append((time.monotonic() + fault.frozen_s, pid))
        return True

    def _processes(self, target: Target) -> set[int]:
        if target in _KINDS:
            return find(self._stage).get(_KINDS[target], set())
        wanted = is_tick if target is Target.TICK else is_helper
        every = self._stage.processes()
        return {pid for pid in every if wanted(proc_words(pid, "cmdline"))}

    def _strike_controller(self, fault: Fault) -> None:
        """Kill slurmctld and start it again, or freeze it for a few seconds."""
        cluster, began_s = self._stage.cluster, time.monotonic()
        pid = int((cluster.folder / "run" / "slurmctld.pid").read_text("ascii"))
        if fault.strike is Strike.FREEZE:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(fault.frozen_s / 3)
            os.kill(pid, signal.SIGCONT)
        else:
            if fault.strike is Strike.KILL:
                os.kill(pid, signal.SIGKILL)
            restart_controller(cluster)
            wait_for("slurmctld to answer", self._has_answer)
        self._visitors.downtime_s += time.monotonic() - began_s

    def _has_answer(self) -> bool:
        with suppress(CalledProcessError):
            self._stage.cluster.run("scontrol", "ping")
            return True
        return False

    def _strike_database(self, strike: Strike) -> bool:
        """Lose, damage or replace the database, while no tick is at work.

        Damaged ones that are kept are moved away first, as an administrator would:
        with five of them no copy is put back any more.
        """
        folder = self._stage.state.path
        path = folder / DATABASE
        for kept in damaged_of(path):
            kept.unlink()
        with turn_in(folder, this_process(), wait_s=_TICK_S):
            if not path.exists():
                return False
            if strike is Strike.AGE and not self._old.exists():
                _copy(path, self._old)
                return True
            if strike is Strike.DAMAGE:
                _damage(path, self._random)
                return True
            for name in (path, *(Path(f"{path}{end}") for end in ("-wal", "-shm"))):
                name.unlink(missing_ok=True)
            if strike is Strike.AGE:
                _copy(self._old, path)
                self._old.unlink()
        return True


_TICK_S = 180.0
"""No tick lasts longer (``TICK_LIMIT_S`` and ``CLEANING_UP_S`` of ``tick``)."""


def _copy(source: Path, target: Path) -> None:
    """Copy a database, whole, with what its journal still has."""
    target.touch(mode=0o600)
    with (
        closing(sqlite3.connect(source)) as old,
        closing(sqlite3.connect(target)) as new,
    ):
        old.backup(new)


def _damage(path: Path, random: Random) -> None:
    """Overwrite a few pages."""
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        for _ in range(3):
            file.seek(random.randrange(max(1, size)))
            file.write(random.randbytes(512))


def epochs_for(faults: int) -> int:
    """Return how long trainers train: longer than so many faults take."""
    return max(EPOCHS, EPOCHS * faults // 100)


def storm(  # all but two are named
    stage: WatchedStage,
    reference: Mapping[int, float],
    *,
    seed: int,
    faults: int,
    most_pause_s: float,
) -> Iterator[str]:
    """Train through *faults* faults; yield how it goes, and raise where it went wrong.

    The stage's Python is one of ``make_python``. Pauses between two faults are up to
    *most_pause_s* seconds.
    """
    calls = CallFaults(stage.python.parent.parent)
    random = Random(seed)  # noqa: S311  a test's moments, no secret
    limit_s = 3_600.0
    hurry = submit_all(stage, step_s=6.0, epochs=epochs_for(faults))
    marks = Chaos(stage, NAMES, random)
    visitors = Visitors(stage, Random(seed + 1))  # noqa: S311  as above
    tempest = Storm(stage, calls, visitors, random)
    runs = [stage.trainer(name)[1] for name in NAMES]
    struck = Counter[str]()
    began_s, load = time.monotonic(), 0.0
    with stage.ticking(TICK_EVERY_S) as ticks, visitors:
        wait_for("all to train", lambda: all(map(losses, runs)), limit_s=limit_s)
        for fault in weather(Random(seed + 2)):  # noqa: S311  as above
            marks.note_commits()
            if tempest.strike(fault):
                struck[f"{fault.target} {fault.strike}"] += 1
                yield f"{struck.total()}: {fault.target} {fault.strike}"
                if fault.target is Target.DATABASE:
                    wait_for("its trainers", stage.knows_its_trainers, limit_s=600)
            tempest.thaw()
            tempest.resume_drained()
            load = max(load, os.getloadavg()[0] / (os.cpu_count() or 1))
            if struck.total() >= faults:
                break
            assert time.monotonic() - began_s < 12 * limit_s, "hardly a thing to strike"
            time.sleep(random.uniform(0.0, most_pause_s))
        tempest.thaw(every=True)
        hurry.touch()
        wait_for_the_end(stage, limit_s=limit_s)
    check_all(stage, reference)
    marks.check_nothing_committed_was_lost()
    assert not stage.strangers, stage.strangers
    yield f"drained nodes and held jobs: {Counter(tempest.drained) or 'none'}"
    assert {why for _, why in tempest.drained} <= _OF_A_KILLED_SLURMCTLD, (
        tempest.drained
    )
    waits_s = visitors.waits_s
    tick_s = max(tick.took_s for tick in ticks)
    most_s = SILENCE_S + tick_s + SLACK_S * max(1.0, load / _FULL)
    yield from _summary(stage, struck, calls, ticks, reference)
    yield (
        f"{len(waits_s)} jobs of others waited {median(waits_s):.1f} s (median), "
        f"{max(waits_s):.1f} s at most, without the {visitors.downtime_s:.0f} s in "
        f"which slurmctld was stopped; allowed are {most_s:.0f} s, as the longest tick "
        f"took {tick_s:.0f} s and up to {load:.1f} processes wanted each CPU; "
        f"{visitors.forgotten} more were forgotten by a slurmctld that was killed"
    )
    assert max(waits_s) <= most_s, sorted(waits_s)[-5:]


def _summary(
    stage: Stage,
    struck: Counter[str],
    calls: CallFaults,
    ticks: list[TickRun],
    reference: Mapping[int, float],
) -> Iterator[str]:
    for what, count in sorted(struck.items()):
        yield f"{count:5} x {what}"
    failed = Counter(line.split()[0] for line in calls.done())
    yield f"calls that were made to fail: {dict(failed)}"
    codes = Counter(tick.exit_code for tick in ticks)
    yield f"ticks by exit code: {dict(sorted(codes.items()))}"
    steps = sum(len(losses(stage.trainer(name)[1])) for name in NAMES)
    again = steps - len(NAMES) * len(reference)
    yield f"{again} of {steps} steps were done again"
    yield (
        "all losses as in one process, every sample used once, nothing left behind, "
        "no lease unknown for longer than one tick"
    )
