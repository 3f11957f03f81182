"""Spares: ranks that are forks of a process which has done all imports."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import pytest

from freetrain.elastic import rank as rank_file
from freetrain.elastic.spare import UNFIT
from tests.elastic.history import check_samples, live_through
from tests.elastic.launching import (
    PROGRAM as TRAINS,
)
from tests.elastic.launching import (
    Launched,
    Stand,
    clean_environment,
    session_members,
    spawn,
    wait_until,
)

PROGRAM = ("-m", "tests.elastic.spare_program")
RANK = ("-I", "-S", str(Path(rank_file.__file__)))
COMMAND = (sys.executable, *RANK, sys.executable, *PROGRAM)
TRIES = 5
_LISTENS = "00010000"  # a flag; connections have the name, too


def marks(lease: str, generation: str) -> dict[str, str]:
    """The variables that agents' worlds and spares carry."""
    return {"FREETRAIN_LEASE": lease, "FREETRAIN_WORLD": f"t/{generation}"}


def buffered() -> dict[str, str]:
    """Variables with which Python buffers its output, as it does by default."""
    found = clean_environment()
    return {k: v for k, v in found.items() if k != "PYTHONUNBUFFERED"}


@dataclass(frozen=True)
class Rank:
    process: subprocess.Popen[bytes]
    log: Path

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    def said(self) -> dict[str, Any]:
        """The line in which it tells its own state, once it does."""
        wait_until(lambda: any(line.startswith("{") for line in self.lines()))
        (said, *_) = (line for line in self.lines() if line.startswith("{"))
        return dict(json.loads(said))

    def ended(self) -> int:
        return self.process.wait(60)


@dataclass(frozen=True)
class Spare:
    """A spare of a program, its lease, and the ranks that asked it."""

    lease: str
    process: subprocess.Popen[bytes]
    folder: Path
    ranks: list[Rank] = field(default_factory=list)

    @classmethod
    def start(cls, folder: Path, *program: str, **extra: str) -> Self:
        lease = f"{uuid4()}-0"
        own = marks(lease, "0000000000") | {"FREETRAIN_SPARE": "1,mpi,unasked"}
        argv = (sys.executable, *program)
        log = folder / "spare.log"
        return cls(lease, spawn(argv, log, buffered() | extra | own), folder)

    @property
    def log(self) -> Path:
        return self.folder / "spare.log"

    @property
    def listens(self) -> bool:
        lines = Path("/proc/net/unix").read_text().splitlines()
        return any(self.lease in line and _LISTENS in line.split() for line in lines)

    def rank(self, *command: str, given: str = "", **variables: str) -> Rank:
        """Start the stub of a rank, or *command* with it in its words."""
        log = self.folder / f"rank-{len(self.ranks)}.log"
        own = buffered() | marks(self.lease, "7") | variables
        self.ranks.append(Rank(spawn(command or COMMAND, log, own, given=given), log))
        return self.ranks[-1]

    def forked(self, *command: str, given: str = "", **variables: str) -> Rank:
        """Start a rank that is a fork of this spare.

        A spare that does not answer within two seconds, as on a very busy machine,
        makes none: the rank is the program itself then, and another is started.
        """
        for _ in range(TRIES):
            rank = self.rank(*command, given=given, **variables)
            if rank.said()["started_as"] != rank.process.pid:
                return rank
            rank.process.kill()
            rank.ended()
        raise AssertionError("the spare made no rank")

    def waiting(self) -> Rank:
        """Start a rank that waits for USR2."""
        rank = self.forked(TEST_DOES="wait")
        wait_until(lambda: rank.lines()[1:] == ["waits"])
        return rank

    def end(self) -> None:
        for process in (self.process, *(rank.process for rank in self.ranks)):
            process.kill()
            process.wait()


@dataclass(frozen=True)
class SpareStand(Stand):
    """A run directory for worlds whose ranks a spare makes."""

    spares: list[Spare] = field(default_factory=list)

    def launch(
        self, size: int, generation: int, *program: str, **extra: str
    ) -> Launched:
        program = program or TRAINS
        if not self.spares:
            self.folder.mkdir(parents=True, exist_ok=True)
            # It keeps for good what the program reads before it joins.
            self.spares.append(Spare.start(self.folder, *program, **extra))
            wait_until(lambda: self.spares[0].listens)
        own = marks(self.spares[0].lease, str(generation))
        argv = (*RANK, sys.executable, *program)
        return super().launch(size, generation, *argv, **extra, **own)

    def close(self) -> None:
        for spare in self.spares:
            spare.end()
        super().close()


@pytest.fixture
def spare(tmp_path: Path) -> Iterator[Spare]:
    made = Spare.start(tmp_path, *PROGRAM)
    wait_until(lambda: made.listens)
    yield made
    made.end()


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_rank_is_a_fork_of_the_spare_with_all_that_makes_it_this_rank(
    spare: Spare, tmp_path: Path
) -> None:
    words = f'cd {tmp_path} && umask 027 && exec taskset -c 0 "$@"'
    rank = spare.forked(
        *("/bin/sh", "-c", words, "sh", *COMMAND),
        given="hello\n",
        TEST_SAYS="später\nja",
        TEST_DOES="read",
    )

    assert rank.ended() == 0
    said = rank.said()
    assert said["started_as"] == spare.process.pid
    assert said["pid"] not in {spare.process.pid, rank.process.pid}
    assert said["folder"] == str(tmp_path)
    assert (said["umask"], said["processors"]) == (0o027, 1)
    assert (said["says"], said["spare"]) == ("später\nja", None)
    assert said["mark"] == "FREETRAIN_WORLD=t/0000000007"
    assert rank.lines()[1:] == ["read hello"]
    assert spare.log.read_text() == "before join\n"  # once, and nowhere else


def test_a_stub_ends_as_its_rank_does(spare: Spare) -> None:
    assert spare.forked().ended() == 0
    assert spare.forked(TEST_DOES="exit").ended() == 3
    assert spare.forked(TEST_DOES="abort").ended() == -signal.SIGABRT


def test_signals_for_a_stub_are_for_its_rank(spare: Spare) -> None:
    rank = spare.waiting()

    rank.process.send_signal(signal.SIGUSR2)

    assert rank.ended() == 5
    assert not is_there(rank.said()["pid"])


def test_a_rank_dies_with_its_stub_and_with_the_spare(spare: Spare) -> None:
    first, second = spare.waiting(), spare.waiting()

    first.process.kill()
    wait_until(lambda: not is_there(first.said()["pid"]))
    assert is_there(second.said()["pid"])

    spare.process.kill()
    wait_until(lambda: not is_there(second.said()["pid"]))
    assert second.ended() == 1


@pytest.mark.parametrize("its_group", [False, True])
def test_a_spare_that_is_to_end_makes_no_more_ranks_and_waits_for_those_it_made(
    spare: Spare, *, its_group: bool
) -> None:
    """Scripts around programs end their whole group; ranks are in others."""
    rank = spare.waiting()
    assert os.getpgid(rank.said()["pid"]) != os.getpgid(spare.process.pid)
    end = os.killpg if its_group else os.kill
    end(spare.process.pid, signal.SIGTERM)
    wait_until(lambda: not spare.listens)

    itself = spare.rank().said()
    assert itself["started_as"] == itself["pid"]  # by itself, as there was no spare
    assert is_there(rank.said()["pid"])

    rank.process.send_signal(signal.SIGUSR2)
    assert rank.ended() == 5
    assert spare.process.wait(60) == 0


def test_a_spare_that_does_not_answer_in_time_makes_no_rank_later(spare: Spare) -> None:
    """It would print the same lines as the rank, and talk to the rank's PMI."""
    spare.process.send_signal(signal.SIGSTOP)
    late = spare.rank(TEST_SAYS="late")
    assert late.ended() == 0
    assert late.said()["started_as"] == late.process.pid
    spare.process.send_signal(signal.SIGCONT)

    assert spare.waiting().said()["started_as"] == spare.process.pid
    assert sum("late" in line for line in late.lines()) == 1
    stat = Path(f"/proc/{spare.process.pid}/stat").read_text().rpartition(")")[2]
    assert stat.split()[8] == "0"  # page faults of children that have ended: of none


def test_a_signal_while_a_rank_waits_for_a_spare_is_for_the_program(
    spare: Spare,
) -> None:
    spare.process.send_signal(signal.SIGSTOP)
    rank = spare.rank()
    time.sleep(0.5)  # it has asked by now, and waits two seconds for the answer

    rank.process.send_signal(signal.SIGUSR2)

    assert rank.ended() == -signal.SIGUSR2


@pytest.mark.parametrize("name", ["FREETRAIN_WORLD", "FREETRAIN_LEASE"])
def test_without_a_spare_of_its_trainer_a_rank_is_the_program_itself(
    spare: Spare, name: str
) -> None:
    rank = spare.rank(**{name: "other/7"})

    assert rank.ended() == 0
    assert rank.said()["started_as"] == rank.said()["pid"] == rank.process.pid


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("file", "was opened"),
        ("thread", "thread was started"),
        ("mpi", "MPI was"),
        ("rank", "rank was looked for (LOCAL_RANK)"),
    ],
)
def test_a_program_that_cannot_be_forked_any_more_is_no_spare(
    tmp_path: Path, what: str, words: str
) -> None:
    if what == "mpi":
        pytest.importorskip("mpi4py")
    spare = Spare.start(tmp_path, *PROGRAM, TEST_BEFORE=what)

    assert spare.process.wait(60) == UNFIT
    assert words in spare.log.read_text()


def test_a_mark_that_has_no_room_is_refused() -> None:
    said = subprocess.run(
        (
            sys.executable,
            "-c",
            "from freetrain.elastic.spare import mark_environ as m; m('u/12')",
        ),
        env=dict(os.environ) | {"FREETRAIN_WORLD": "t/1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "there is no room for b'u/12'" in said.stderr


@pytest.mark.long
def test_kills_of_worlds_that_a_spare_makes_leave_no_trace_in_the_training(
    tmp_path: Path, mpirun: tuple[str, ...]
) -> None:
    stand = SpareStand(tmp_path / "worlds", mpirun)
    try:
        history = live_through(stand, 5, 3, sizes=(1, 2, 3), step_s=0.06)

        check_samples(stand)
        assert sum(passage.exit_code != 0 for passage in history) >= 3, history
        spare = stand.spares[0]
        assert spare.process.poll() is None
        wait_until(lambda: session_members(spare.process.pid) == [spare.process.pid])
    finally:
        stand.close()
