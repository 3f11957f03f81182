"""Spares: ranks that are forks of a process which has done all imports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from freetrain.elastic.spare import UNFIT
from tests.elastic.history import check_samples, live_through
from tests.elastic.launching import session_members, wait_until
from tests.elastic.spares import RANK, SpareStand, start_spare

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.elastic.spares import Rank, Spare

PROGRAM = ("-m", "tests.elastic.spare_program")
TRIES = 5
COMMAND = (sys.executable, *RANK, sys.executable, *PROGRAM)


@pytest.fixture
def spare(tmp_path: Path) -> Iterator[Spare]:
    """One that is ready."""
    made = start_spare(tmp_path, *PROGRAM)
    wait_until(lambda: made.listens)
    yield made
    made.end()


def ended(rank: Rank) -> int:
    return rank.process.wait(60)


def forked(spare: Spare, *command: str, given: str = "", **variables: str) -> Rank:
    """Return a rank that is a fork of *spare*.

    A spare that does not answer within two seconds, as on a very busy machine, makes
    none: the rank is the program itself then, and another is started.
    """
    for _ in range(TRIES):
        rank = spare.rank(*(command or COMMAND), given=given, **variables)
        if rank.said()["started_as"] != rank.process.pid:
            return rank
        rank.process.kill()
        ended(rank)
    raise AssertionError("the spare made no rank")


def waiting(spare: Spare) -> Rank:
    """Return a rank that waits for USR2."""
    rank = forked(spare, TEST_DOES="wait")
    wait_until(lambda: rank.lines()[1:] == ["waits"])
    return rank


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_rank_is_a_fork_of_the_spare_with_all_that_makes_it_this_rank(
    spare: Spare, tmp_path: Path
) -> None:
    words = f'cd {tmp_path} && umask 027 && exec taskset -c 0 "$@"'
    rank = forked(
        spare,
        *("/bin/sh", "-c", words, "sh", *COMMAND),
        given="hello\n",
        TEST_SAYS="später\nja",
        TEST_DOES="read",
    )

    assert ended(rank) == 0
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
    assert ended(forked(spare)) == 0
    assert ended(forked(spare, TEST_DOES="exit")) == 3
    assert ended(forked(spare, TEST_DOES="abort")) == -signal.SIGABRT


def test_signals_for_a_stub_are_for_its_rank(spare: Spare) -> None:
    rank = waiting(spare)

    rank.process.send_signal(signal.SIGUSR2)

    assert ended(rank) == 5
    assert not is_there(rank.said()["pid"])


def test_a_rank_dies_with_its_stub_and_with_the_spare(spare: Spare) -> None:
    first, second = waiting(spare), waiting(spare)

    first.process.kill()
    wait_until(lambda: not is_there(first.said()["pid"]))
    assert is_there(second.said()["pid"])

    spare.process.kill()
    wait_until(lambda: not is_there(second.said()["pid"]))
    assert ended(second) == 1


def test_a_spare_that_is_to_end_makes_no_more_ranks_and_waits_for_those_it_made(
    spare: Spare,
) -> None:
    rank = waiting(spare)
    spare.process.terminate()
    wait_until(lambda: not spare.listens)

    itself = spare.rank(*COMMAND).said()
    assert itself["started_as"] == itself["pid"]  # by itself, as there was no spare
    assert is_there(rank.said()["pid"])

    rank.process.send_signal(signal.SIGUSR2)
    assert ended(rank) == 5
    assert spare.process.wait(60) == 0


def test_a_rank_that_became_the_program_itself_gets_no_process(spare: Spare) -> None:
    """It would print what the rank prints, and talk to the rank's PMI."""
    spare.process.send_signal(signal.SIGSTOP)
    late = spare.rank(*COMMAND, TEST_SAYS="late")
    assert ended(late) == 0
    spare.process.send_signal(signal.SIGCONT)

    assert waiting(spare).said()["started_as"] == spare.process.pid
    assert sum("late" in line for line in late.lines()) == 1
    stat = Path(f"/proc/{spare.process.pid}/stat").read_text().rpartition(")")[2]
    assert stat.split()[8] == "0"  # page faults of children that have ended: of none


def test_a_spare_ends_with_its_group_as_scripts_around_programs_want_it(
    spare: Spare,
) -> None:
    """Ranks do not: they are in groups of their own."""
    rank = waiting(spare)
    assert os.getpgid(rank.said()["pid"]) != os.getpgid(spare.process.pid)

    os.killpg(spare.process.pid, signal.SIGTERM)

    wait_until(lambda: not spare.listens)
    assert is_there(rank.said()["pid"])
    rank.process.send_signal(signal.SIGUSR2)
    assert ended(rank) == 5


@pytest.mark.parametrize("name", ["FREETRAIN_WORLD", "FREETRAIN_LEASE"])
def test_without_a_spare_of_its_trainer_a_rank_is_the_program_itself(
    spare: Spare, name: str
) -> None:
    rank = spare.rank(*COMMAND, **{name: "other/7"})

    assert ended(rank) == 0
    assert rank.said()["started_as"] == rank.said()["pid"] == rank.process.pid


def test_a_spare_that_does_not_answer_is_not_waited_for(spare: Spare) -> None:
    spare.process.send_signal(signal.SIGSTOP)

    rank = spare.rank(*COMMAND)

    assert ended(rank) == 0
    assert rank.said()["started_as"] == rank.process.pid


@pytest.mark.parametrize(
    ("what", "words"),
    [("file", "was opened"), ("thread", "thread was started"), ("mpi", "MPI was")],
)
def test_a_program_that_cannot_be_forked_any_more_is_no_spare(
    tmp_path: Path, what: str, words: str
) -> None:
    if what == "mpi":
        pytest.importorskip("mpi4py")
    spare = start_spare(tmp_path, *PROGRAM, TEST_BEFORE=what)

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
