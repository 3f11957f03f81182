"""Finding and ending real processes by their marks."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path, PosixPath
from types import ModuleType
from uuid import uuid4

import pytest

from freetrain.agent import environment as agent_environment
from freetrain.agent.board import Board, Listing
from freetrain.agent.environment import (
    Environment,
    Mark,
    MarkedProcess,
    NodeProcesses,
    StoppedWatch,
    Sweeper,
    has_twice_the_memory,
    marked_processes,
    read_mark,
)
from freetrain.agent.observation import Patience
from freetrain.broker.lease import LeaseKey
from freetrain.processes import (
    environments,
    free_memory_bytes,
    oom_kills,
    pidfd_problem,
    resident_bytes,
    send_signal,
)
from freetrain.state.files import StateDir, create_assigned
from tests.cluster.waiting import wait_for
from tests.state.endings import a_lease, an_assignment

SLEEP = "import time; time.sleep(600)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"
# A child of a child in a session of its own: its parent is gone, as a daemon's is.
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
"""


class Nursery:
    """Starts processes with the marks of one lease, and ends them all."""

    def __init__(self) -> None:
        self.key = LeaseKey(str(uuid4()), 3)
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(
        self, program: str, *words: str, world: str = "t/7"
    ) -> subprocess.Popen[bytes]:
        marks = {"FREETRAIN_LEASE": f"{self.key.uuid}-3", "FREETRAIN_WORLD": world}
        process = subprocess.Popen(  # noqa: S603 -- a test's own words
            [sys.executable, "-S", "-c", program, *words], env=marks, process_group=0
        )
        self.processes.append(process)
        return process

    def found(self) -> tuple[MarkedProcess, ...]:
        every = marked_processes(uid=os.geteuid(), own_pid=os.getpid())
        return tuple(one for one in every if one.mark.lease == self.key)

    def end(self) -> None:
        for one in self.found():
            send_signal(one.pid, signal.SIGKILL, started=one.started)
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.end()


def sweep(nursery: Nursery, sweeper: Sweeper, *, now_s: float) -> None:
    for process, number in sweeper.due(nursery.found(), now_s=now_s):
        send_signal(process.pid, number, started=process.started)


def test_a_marked_process_is_found_with_its_mark(nursery: Nursery) -> None:
    process = nursery.start(SLEEP)

    wait_for("the process", nursery.found)

    (found,) = nursery.found()
    assert (found.pid, found.mark) == (process.pid, Mark(nursery.key, "t", 7))
    assert not found.is_stopped


def test_processes_of_other_users_and_ones_own_are_left_out(nursery: Nursery) -> None:
    process = nursery.start(SLEEP)
    wait_for("the process", nursery.found)

    others = marked_processes(uid=os.geteuid() + 1, own_pid=0)
    without = marked_processes(uid=os.geteuid(), own_pid=process.pid)

    assert not [one for one in (*others, *without) if one.mark.lease == nursery.key]


def test_a_daemonised_child_is_found_and_ended(nursery: Nursery) -> None:
    starter = nursery.start(DAEMON)
    starter.wait()
    wait_for("the daemon alone", lambda: _is_orphan_alone(nursery))

    sweep(nursery, Sweeper(2.0), now_s=0.0)

    wait_for("it to be gone", lambda: not nursery.found())


# Both end by themselves, should the test be killed: none can be caught by number.
EXECS = """
import os, sys, time
if time.monotonic() < float(sys.argv[2]):
    os.execv(sys.executable, [sys.executable, "-S", "-c", sys.argv[1], *sys.argv[1:]])
"""
FORKS = """
import os, sys, time
while time.monotonic() < float(sys.argv[2]):
    if os.fork():
        os._exit(0)
"""


@pytest.mark.parametrize(
    ("program", "count"),
    [(EXECS, 100), (FORKS, 10)],
    ids=["becomes another", "forks and ends"],
)
def test_a_process_is_found_at_every_look_though_it_always(
    nursery: Nursery, program: str, count: int
) -> None:
    nursery.start(program, program, f"{time.monotonic() + 60.0}")
    wait_for("the process", nursery.found)

    looks = [nursery.found() for _ in range(count)]

    assert all(looks)


def test_where_a_process_is_still_being_started_not_all_were_seen(
    tmp_path: Path,
) -> None:
    for pid, size in ((1, 0), (2, 4096)):  # the first is the kernel's
        (tmp_path / f"{pid}").mkdir()
        (tmp_path / f"{pid}" / "environ").touch()
        fields = ["0"] * 50
        fields[0], fields[20] = "R", str(size)
        (tmp_path / f"{pid}" / "stat").write_text(f"{pid} (x) {' '.join(fields)}\n")

    with pytest.raises(OSError, match=r"\[2\] are still being started"):
        list(environments(b"A=1", proc=tmp_path))


class CrowdedProc(PosixPath):
    """A folder like /proc in which each listing finds a process that has just ended."""

    listings = 0

    def __fspath__(self) -> str:
        self.listings += 1
        assert self.listings < 1_000, "processes are listed without end"
        Path(str(self), f"{self.listings}").mkdir()
        return str(self)


def test_where_new_processes_go_on_to_end_a_look_ends_and_says_that_there_may_be_more(
    tmp_path: Path,
) -> None:
    proc = CrowdedProc(tmp_path)

    with pytest.raises(OSError, match="went on to end before they were looked at"):
        list(environments(b"A=1", proc=proc))

    assert proc.listings == 100


def test_processes_of_other_users_that_come_and_go_make_a_look_no_longer(
    tmp_path: Path,
) -> None:
    proc = CrowdedProc(tmp_path)

    assert not list(environments(b"A=1", uid=os.geteuid() + 1, proc=proc))

    assert proc.listings == 2


def test_listeners_are_looked_for_again_where_not_all_processes_were_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mark = {"FREETRAIN_LISTENER": "u-3"}
    listener = subprocess.Popen([sys.executable, "-S", "-c", SLEEP], env=mark)  # noqa: S603 -- a test's own words
    looks = iter([0, 0, listener.pid])

    def seen(wanted: bytes) -> Iterator[tuple[int, bytes]]:
        pid = next(looks)
        if not pid:
            raise BlockingIOError(errno.EAGAIN, "a process is still being started")
        yield pid, wanted

    monkeypatch.setattr(agent_environment, "environments", seen)
    try:
        Environment.end_listeners(Looks(), LeaseKey("u", 3))
        assert listener.wait(10) == -signal.SIGKILL
    finally:
        listener.kill()
        listener.wait()


class Looks(Environment):
    """An environment whose looks at processes are made up; the last one fails."""

    def __init__(self, *looks: tuple[MarkedProcess, ...]) -> None:
        self.looks = list(looks)

    def processes(self) -> Iterator[MarkedProcess]:
        yield from self.looks.pop(0)
        if not self.looks:
            raise BlockingIOError(errno.EAGAIN, "process 2 is still being started")

    def elapsed_s(self) -> float:
        return 0.0

    def send(self, process: MarkedProcess, number: signal.Signals) -> None:
        pass

    def log(self, text: str) -> None:
        pass


ME, OTHER, THIRD = (LeaseKey("u", task) for task in range(3))


@pytest.mark.parametrize(
    ("key", "are_empty"),
    [(None, [True, False]), (ME, [False] * 2), (OTHER, [False] * 2), (THIRD, [True])],
    ids=["nothing", "of its own", "client of a step elsewhere", "of another's world"],
)
def test_a_lease_is_empty_only_if_all_processes_of_its_worlds_were_seen_to_be_gone(
    tmp_path: Path, key: LeaseKey | None, are_empty: list[bool]
) -> None:
    state = StateDir(tmp_path)
    state.trainer("t").create()
    create_assigned(state.trainer("t"), an_assignment(7, a_lease(ME), a_lease(OTHER)))
    there = () if key is None else (MarkedProcess(1, 5, Mark(key, "t", 7)),)
    environment = Looks(there, ())
    clock, log = environment.elapsed_s, environment.log
    board = Board(state, Listing(clock), elapsed_s=clock, log=log)
    found = NodeProcesses(ME, board, environment, Patience())

    assert [found.end_all() for _ in are_empty] == are_empty


def test_one_that_ignores_term_is_killed_when_the_grace_is_over(
    nursery: Nursery,
) -> None:
    process = nursery.start(DEAF + "\n")
    wait_for("the process", lambda: _ignores_term(process.pid))
    sweeper = Sweeper(2.0)

    sweep(nursery, sweeper, now_s=10.0)
    sweep(nursery, sweeper, now_s=11.9)
    assert process.poll() is None
    sweep(nursery, sweeper, now_s=12.0)

    assert process.wait(30) == -signal.SIGKILL


def test_a_stopped_process_is_told_from_others_and_killed_at_once(
    nursery: Nursery,
) -> None:
    process = nursery.start(SLEEP)
    wait_for("the process", nursery.found)

    process.send_signal(signal.SIGSTOP)
    wait_for("it to stop", lambda: [p for p in nursery.found() if p.is_stopped])
    sweep(nursery, Sweeper(2.0), now_s=0.0)

    assert process.wait(30) == -signal.SIGKILL


def test_only_what_has_been_stopped_all_the_time_is_stuck() -> None:
    watch = StoppedWatch(10.0)
    stopped = MarkedProcess(1, 5, Mark(LeaseKey("u", 0), "t", 1), is_stopped=True)
    running = MarkedProcess(1, 5, stopped.mark)

    assert watch.stuck((stopped,), now_s=0.0) == ()
    assert watch.stuck((running,), now_s=5.0) == ()
    assert watch.stuck((stopped,), now_s=9.0) == ()
    assert watch.stuck((stopped,), now_s=18.0) == ()
    assert watch.stuck((stopped,), now_s=19.0) == (stopped,)


def test_what_got_a_cpu_between_two_looks_is_not_stuck() -> None:
    """Members of a pack take turns; most looks may find one of them stopped."""
    watch = StoppedWatch(10.0)
    mark = Mark(LeaseKey("u", 0), "t", 1)
    seen = [MarkedProcess(1, 5, mark, is_stopped=True, switches=n) for n in (3, 4, 4)]

    assert watch.stuck((seen[0],), now_s=0.0) == ()
    assert watch.stuck((seen[1],), now_s=10.0) == ()
    assert watch.stuck((seen[2],), now_s=20.0) == (seen[2],)


def test_going_on_for_a_moment_is_seen_in_a_process_that_is_stopped(
    nursery: Nursery,
) -> None:
    process = nursery.start(SLEEP)
    wait_for("the process", nursery.found)

    def stopped() -> MarkedProcess:
        process.send_signal(signal.SIGSTOP)
        wait_for("it to stop", lambda: nursery.found()[0].is_stopped)
        return nursery.found()[0]

    first = stopped()
    assert stopped().switches == first.switches
    process.send_signal(signal.SIGCONT)
    wait_for("it to go on", lambda: not nursery.found()[0].is_stopped)

    assert stopped().switches > first.switches


def test_a_number_that_another_process_got_meanwhile_is_left_alone(
    nursery: Nursery,
) -> None:
    process = nursery.start(SLEEP)
    wait_for("the process", nursery.found)
    (found,) = nursery.found()

    send_signal(found.pid, signal.SIGKILL, started=found.started - 1)

    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)


def no_pidfd(*_: object) -> int:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


@pytest.mark.parametrize(
    ("module", "name"), [(os, "pidfd_open"), (signal, "pidfd_send_signal")]
)
@pytest.mark.parametrize("kind", ["refused", "missing"])
def test_processes_are_ended_where_the_kernel_has_no_pidfd(
    nursery: Nursery,
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    name: str,
    kind: str,
) -> None:
    process = nursery.start(SLEEP)
    wait_for("the process", nursery.found)
    (found,) = nursery.found()
    if kind == "refused":
        monkeypatch.setattr(module, name, no_pidfd)
    else:
        monkeypatch.delattr(module, name)

    send_signal(found.pid, signal.SIGKILL, started=found.started - 1)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    sweep(nursery, Sweeper(2.0), now_s=0.0)

    assert process.wait(30) == -signal.SIGTERM
    assert pidfd_problem()


def test_kills_for_want_of_memory_are_counted_by_the_kernel(tmp_path: Path) -> None:
    assert oom_kills(proc=tmp_path) == 0
    (tmp_path / "vmstat").write_text("pgfault 3\noom_kill 12\n", encoding="ascii")
    assert oom_kills(proc=tmp_path) == 12


def test_vanished_processes_and_strange_names_are_passed_over(tmp_path: Path) -> None:
    for name in ("1", "2", "self", "17x"):
        (tmp_path / name).mkdir()
    (tmp_path / "2" / "environ").write_bytes(b"FREETRAIN_LEASE=u-0\0")

    assert not [*marked_processes(uid=os.geteuid(), own_pid=0, proc=tmp_path)]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (b"A=1\0FREETRAIN_LEASE=a-b-2\0FREETRAIN_WORLD=t/12\0", ("a-b", 2, "t", 12)),
        (b"FREETRAIN_WORLD=t/12\0FREETRAIN_LEASE=u-0", ("u", 0, "t", 12)),
        (b"FREETRAIN_LEASE=u-0\0", ("u", 0, "", 0)),
        (b"FREETRAIN_LEASE=u-0\0FREETRAIN_WORLD=../x/y\0", ("u", 0, "", 0)),
        (b"XFREETRAIN_LEASE=u-0\0", None),
        (b"FREETRAIN_LEASE=\xff\n-\0", None),
        (b"FREETRAIN_LEASE=u-99999999999\0", None),
        (b"", None),
    ],
)
def test_marks_are_read_and_nothing_else(
    environ: bytes, expected: tuple[str, int, str, int] | None
) -> None:
    found = read_mark(environ)

    assert (found and (*astuple(found.lease), *found.world)) == expected


def _is_orphan_alone(nursery: Nursery) -> bool:
    """Whether just the daemon is left: in its parent's session, not in ours."""
    pids = [one.pid for one in nursery.found()]
    return len(pids) == 1 and os.getsid(pids[0]) not in {pids[0], os.getsid(0)}


def _ignores_term(pid: int) -> bool:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigIgn:"):
                return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


@pytest.mark.parametrize(
    ("of_group", "limit_mib", "free_mib"),
    [("0::/", "max", 1000), ("0::/", "400", 350), ("4:cpu,memory:/", "400", 350)],
)
def test_free_memory_is_the_node_s_or_what_a_group_has_left(
    tmp_path: Path, of_group: str, limit_mib: str, free_mib: int
) -> None:
    mib = 1 << 20
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 9 kB\nMemAvailable: {1000 * 1024} kB\n")
    (proc / "self" / "cgroup").write_text(f"7:pids:/x\n{of_group}job/step\n")
    is_first = "memory" in of_group  # version 1 of the kernel's groups
    job = (cgroups / "memory" if is_first else cgroups) / "job"
    (job / "step").mkdir(parents=True)
    names = ("limit_in_bytes", "usage_in_bytes") if is_first else ("max", "current")
    limit = limit_mib if limit_mib == "max" else str(int(limit_mib) * mib)
    (job / f"memory.{names[0]}").write_text(f"{limit}\n")
    (job / f"memory.{names[1]}").write_text(f"{60 * mib}\n")
    (job / "memory.stat").write_text(f"anon 5\ninactive_file {10 * mib}\n")

    assert free_memory_bytes(proc=proc, cgroups=cgroups) == free_mib * mib


@pytest.mark.parametrize(
    ("given", "has_room"), [("1", False), ("1000000", True), ("0", True), ("", True)]
)
def test_a_spare_has_room_only_in_the_memory_of_its_lease(
    given: str, *, has_room: bool
) -> None:
    lease = {"SLURM_MEM_PER_NODE": given}

    assert has_twice_the_memory([os.getpid()], lease) is has_room


def test_resident_memory_is_that_of_all_processes_that_are_there() -> None:
    own = resident_bytes([os.getpid()])
    assert own > 10 << 20
    assert resident_bytes([os.getpid(), 2**22 + 1]) == pytest.approx(own, rel=0.1)
