"""Single file calls that fail in the life of an agent: no crash, and the same end.

The agent, its board and its files are real, its program and its clock are made up. One
life is a world launched, a second world launched ahead on one lease more, and a notice.
"""

from __future__ import annotations

import errno
import io
import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from freetrain.agent.agent import Agent
from freetrain.agent.board import Board, Listing
from freetrain.agent.environment import Environment
from freetrain.agent.observation import Patience
from freetrain.agent.observer import OwnLease
from freetrain.broker.lease import LeaseKey
from freetrain.config.job import render_job
from freetrain.elastic.contract import Outcome, OutcomeKind, write_outcome
from freetrain.state.files import (
    AgentState,
    EndingKind,
    Heartbeat,
    StateDir,
    create_assigned,
    generations,
    read_assigned,
    read_ending,
    read_heartbeat,
    write_heartbeat,
)
from tests.agent.model_cluster import TRAINER, a_job
from tests.state.endings import a_lease, an_assignment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from freetrain.config.job import TrainerJob
    from freetrain.elastic.files import RunDir
    from freetrain.state.files import AssignmentFile

ERRNOS = (errno.EIO, errno.ESTALE, errno.ENOENT, errno.EACCES, errno.ENOSPC)
ME, OTHER = LeaseKey("me", 0), LeaseKey("other", 1)
TURN_S = 0.25
CALLS = (
    *("open", "listdir", "stat", "fstat", "mkdir", "link", "unlink", "replace"),
    *("fsync", "utime", "statvfs"),
)


class Faults:
    """Counts the agent's file calls, and lets one of them fail."""

    def __init__(self, *, at: int | None = None, number: int = errno.EIO) -> None:
        self.calls = 0
        self.failed = ""
        self._at = at
        self._errno = number
        self._is_on = False

    @contextmanager
    def around(self) -> Iterator[None]:
        """Count, and fail, within this block."""
        self._is_on = True
        try:
            yield
        finally:
            self._is_on = False

    @contextmanager
    def patched(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name in CALLS:
                patch.setattr(os, name, self._wrapped(name, getattr(os, name)))
            patch.setattr(io, "open", self._wrapped("io.open", io.open))
            yield

    def _wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: object, **how: object) -> object:
            if self._is_on:
                self.calls += 1
                if self.calls - 1 == self._at:
                    self.failed = f"{name}{args}"
                    raise OSError(self._errno, os.strerror(self._errno))
            return call(*args, **how)

        return counted


@dataclass(slots=True)
class Program:
    """An elastic program and its launcher, as its files show them."""

    run: RunDir
    generation: int
    after: int | None
    now_s: float = 0.0
    began_s: float | None = None
    asked_s: float | None = None
    exit_code: int | None = None
    was_killed: bool = False

    def poll(self) -> int | None:
        return self.exit_code

    def lingers(self) -> bool:
        return False

    def has_lost_client(self) -> bool:
        return False

    def kill(self) -> None:
        self.was_killed |= self.exit_code is None
        self.exit_code = -9 if self.exit_code is None else self.exit_code

    def ask_to_stop(self, why: str = "") -> None:  # noqa: ARG002
        stop = self.run.stop_request(self.generation)
        stop.parent.mkdir(parents=True, exist_ok=True)
        stop.touch()

    def live(self, now_s: float) -> None:
        self.now_s = now_s
        if self.exit_code is not None:
            return
        if self.began_s is None:
            self._begin()
        if self.asked_s is None and self.run.stop_request(self.generation).exists():
            self.asked_s = now_s
        if self.asked_s is not None and now_s >= self.asked_s + 0.5:
            outcome = Outcome(
                kind=OutcomeKind.RESCALED,
                generation=self.generation,
                step=10 * self.generation,
                committed_step=10 * self.generation,
                message="",
                t=now_s,
            )
            write_outcome(self.run, outcome)
            self.exit_code = 0

    def _begin(self) -> None:
        self.run.create()
        if self.after is not None and not self.run.outcome(self.after).exists():
            self.run.ready(self.generation).touch()
            return
        self.run.claim(self.generation).touch()
        self.began_s = self.now_s


@dataclass(slots=True)
class Life(Environment):
    """One agent with its files, and everything that happens to it."""

    state: StateDir
    now_s: float = 100.0
    programs: list[Program] = field(default_factory=list)
    log_lines: list[str] = field(default_factory=list)
    is_told: bool = False

    def elapsed_s(self) -> float:
        return self.now_s

    def unix_s(self) -> float:
        return self.now_s

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def log(self, text: str) -> None:
        self.log_lines.append(f"{self.now_s:.2f} {text}")

    def is_asked_to_leave(self) -> bool:
        return self.is_told

    def stop_listening(self) -> None:
        pass

    def end_listeners(self, lease: LeaseKey) -> None:
        pass

    def oom_kills(self) -> int:
        return 0

    def ask_of_leases(self, members: object) -> None:
        pass

    def gone_leases(self) -> frozenset[LeaseKey]:
        return frozenset()

    def end_own_job(self) -> None:
        pass

    def processes(self) -> tuple[()]:
        return ()

    def launch(
        self,
        job: TrainerJob,
        assigned: AssignmentFile,
        *,
        after: int | None,
        is_forked: bool,
    ) -> Program:
        del is_forked
        folder = self.state.trainer(job.name)
        folder.world(assigned.generation).mkdir(parents=True, exist_ok=True)
        (folder.world(assigned.generation) / "hosts").write_text("n0\n")
        program = Program(folder.run, assigned.generation, after)
        self.programs.append(program)
        return program

    def live(self, faults: Faults) -> None:
        """Launch, rescale, and leave; raise AssertionError where that takes long."""
        folder = self.state.trainer(TRAINER)
        folder.create()
        folder.job.write_text(render_job(a_job()), encoding="utf-8")
        self.state.lease(ME).create()
        self.state.lease(OTHER).create()
        lease = OwnLease(key=ME, node="n0", host="h", pid=1, limit_s=1e6, grace_s=10.0)
        clock = self.elapsed_s
        board = Board(self.state, Listing(clock), elapsed_s=clock, log=self.log)
        agent = Agent(lease, board, self, Patience(scan_s=0.5, beat_s=0.5))
        create_assigned(folder, an_assignment(1, a_lease(ME), trainer=TRAINER))
        until_s = self.now_s + 30.0
        grown_s = told_s = until_s
        while self.now_s < until_s:
            self._puppet()
            for program in self.programs:
                program.live(self.now_s)
            begun = {p.generation for p in self.programs if p.began_s is not None}
            if 1 in begun and grown_s == until_s:
                grown_s = self.now_s + 0.5
            if self.now_s >= grown_s:
                both = an_assignment(2, a_lease(ME), a_lease(OTHER), trainer=TRAINER)
                create_assigned(folder, both)
            if 2 in begun and told_s == until_s:
                told_s = self.now_s + 0.5
            self.is_told = self.now_s >= told_s
            with faults.around():
                if agent.turn_or_log():
                    return
            self.now_s += TURN_S
        raise AssertionError("it did not end:\n" + "\n".join(self.log_lines))

    def _puppet(self) -> None:
        """Beat for the other lease, whose agent is not there."""
        beat = Heartbeat(beat=int(self.now_s * 100), t=0.0, node="n", host="h", pid=2)
        write_heartbeat(self.state.lease(OTHER).heartbeat, beat)


def lived(folder: Path, faults: Faults) -> Life:
    life = Life(StateDir(folder))
    with faults.patched():
        life.live(faults)
    return life


def assert_all_went_well(life: Life, faults: Faults) -> None:
    words = "\n".join([faults.failed, *life.log_lines])
    folder = life.state.trainer(TRAINER)
    assert [p.generation for p in life.programs] == [1, 2], words
    assert not any(program.was_killed for program in life.programs), words
    for number in (1, 2):
        ending = read_ending(folder, number)
        assert ending is not None, words
        assert (ending.ended, ending.was_asked) == (EndingKind.RESCALED, True), words
        assert ending.committed_step == 10 * number, words
    assert generations(folder.assignments) == (1, 2, 3), words
    assert read_assigned(folder, 3).keys == {OTHER}, words
    last = read_heartbeat(life.state.lease(ME).heartbeat)
    assert last is not None, words
    assert last.state is AgentState.ENDED, words


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many file calls a life without faults makes."""
    faults = Faults()
    life = lived(tmp_path_factory.mktemp("whole"), faults)
    assert_all_went_well(life, faults)
    return faults.calls


@pytest.mark.parametrize("number", ERRNOS, ids=errno.errorcode.get)
def test_no_single_call_that_fails_ends_the_agent_or_changes_its_end(
    tmp_path: Path, calls: int, number: int
) -> None:
    for at in range(ERRNOS.index(number), calls, 4 * len(ERRNOS)):
        faults = Faults(at=at, number=number)
        assert_all_went_well(lived(tmp_path / str(at), faults), faults)


@pytest.mark.long
@pytest.mark.parametrize("number", ERRNOS, ids=errno.errorcode.get)
def test_no_call_at_all_that_fails_ends_the_agent_or_changes_its_end(
    tmp_path: Path, calls: int, number: int
) -> None:
    """Each call fails in two or three of the five ways."""
    for at in range(ERRNOS.index(number) % 2, calls, 2):
        faults = Faults(at=at, number=number)
        assert_all_went_well(lived(tmp_path / str(at), faults), faults)
