"""The starter: several commands as one."""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from freetrain.launch import starter
from freetrain.launch.starter import Command, Orders, parse_orders, render_orders
from tests.cluster.waiting import wait_for

PATIENCE_S = 60.0
# Says that it is there, then waits for signals and writes which came; one ends it.
_HEARS = """\
import signal, sys
numbers = {signal.SIGUSR2, signal.SIGTERM, signal.SIGQUIT}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
sys.stdout.write("up\\n"); sys.stdout.flush()
while True:
    came = signal.sigwait(numbers)
    with open(sys.argv[1], "a") as file: file.write(came.name + "\\n")
    if came.name == sys.argv[2]: raise SystemExit(0)
"""


# Starts its only child a second after it is up, and ends well if a signal ends it.
_LATE = """\
import subprocess, sys, time
sys.stdout.write("up\\n"); sys.stdout.flush()
time.sleep(1)
code = subprocess.run(["sleep", "30"]).returncode
raise SystemExit(0 if code < 0 else 1)
"""


def hears(log: Path, ends_by: str = "SIGUSR2") -> Command:
    return Command((sys.executable, "-c", _HEARS, str(log), ends_by))


def shell(text: str, name: str = "") -> Command:
    return Command(("sh", "-c", text), name=name)


class Started:
    """A starter that runs."""

    def __init__(self, orders: Orders, path: Path) -> None:
        path.write_text(render_orders(orders))
        file = str(Path(starter.__file__))
        self.process = subprocess.Popen(  # noqa: S603 -- our own program
            [sys.executable, "-I", "-S", file, str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": os.defpath, "FREETRAIN_WORLD": str(path)},
            start_new_session=True,
        )

    def line(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self) -> tuple[int, str]:
        """The status and what it said, once it has ended."""
        status = self.process.wait(PATIENCE_S)
        assert self.process.stdout is not None
        return status, self.process.stdout.read().decode()


Start = Callable[..., Started]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a starter of commands; ``up`` of them say so. Nothing outlives the test."""
    started: list[Started] = []

    def run(
        *commands: Command,
        up: int = 0,
        sends: str = "USR2",
        **how: Any,  # noqa: ANN401 -- fields of orders
    ) -> Started:
        orders = Orders(commands=commands, hears=("USR2",), sends=sends, **how)
        started.append(Started(orders, tmp_path / "orders.json"))
        assert [started[-1].line() for _ in range(up)] == [b"up\n"] * up
        return started[-1]

    yield run
    for one in started:
        with one.process:
            try:
                os.killpg(one.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def test_orders_survive_their_file() -> None:
    one = Orders(
        commands=(Command(("a", "b c"), (("X", "y"),), "n1"), Command(("d",))),
        hears=("USR2", "TERM"),
        sends="INT",
        to_children=True,
    )

    assert parse_orders(render_orders(one)) == one


def test_it_ends_well_when_all_commands_did(start: Start) -> None:
    assert start(Command(("true",)), shell("exit 0")).end() == (0, "")


def test_a_signal_reaches_every_command_as_the_one_that_it_wants(
    start: Start, tmp_path: Path
) -> None:
    logs = [tmp_path / name for name in ("a", "b")]
    world = start(*(hears(log, "SIGQUIT") for log in logs), sends="QUIT", up=2)

    world.process.send_signal(signal.SIGUSR2)

    assert world.end() == (0, "")
    assert [log.read_text() for log in logs] == ["SIGQUIT\n"] * 2


def test_one_command_s_failure_ends_the_others_and_is_its_status(
    start: Start, tmp_path: Path
) -> None:
    waits = f"until [ -e {tmp_path}/go ]; do sleep 0.01; done; exit 3"
    world = start(hears(tmp_path / "a", "SIGTERM"), shell(waits, "n2"), up=1)

    (tmp_path / "go").touch()

    status, said = world.end()
    assert status == 3
    assert "freetrain: n2 ended with exit code 3" in said
    assert (tmp_path / "a").read_text() == "SIGTERM\n"


def test_a_command_killed_by_a_signal_has_a_shell_s_status_for_it(start: Start) -> None:
    assert start(shell("kill -KILL $$")).end()[0] == 128 + 9


def test_a_command_that_is_not_there_ends_the_others(
    start: Start, tmp_path: Path
) -> None:
    status, said = start(Command(("sleep", "600")), Command((f"{tmp_path}/no",))).end()

    assert status == 127
    assert "cannot be started" in said


def test_term_ends_every_command(start: Start, tmp_path: Path) -> None:
    world = start(hears(tmp_path / "a", "SIGTERM"), up=1)

    world.process.send_signal(signal.SIGTERM)

    assert world.end()[0] == 128 + signal.SIGTERM
    assert (tmp_path / "a").read_text() == "SIGTERM\n"


def test_a_shielded_command_never_sees_term(start: Start) -> None:
    # No shell: dash clears the mask that it inherits.
    program = "import os, signal, sys; os.kill(os.getpid(), signal.SIGTERM)"
    command = Command((sys.executable, "-c", program))

    assert start(command).end()[0] == 128 + signal.SIGTERM
    assert start(command, is_shielded=True).end()[0] == 0


def test_it_can_ask_the_processes_that_a_command_started_instead_of_it(
    start: Start, tmp_path: Path
) -> None:
    log = tmp_path / "a"
    words = " ".join(f"'{word}'" for word in hears(log).argv[3:])
    (tmp_path / "hears.py").write_text(_HEARS)
    # dash would become a last command; the one after it keeps it a parent
    text = f"'{sys.executable}' '{tmp_path}/hears.py' {words}; exit $?"
    world = start(shell(text), to_children=True, up=1)

    world.process.send_signal(signal.SIGUSR2)

    assert world.end()[0] == 0
    assert log.read_text() == "SIGUSR2\n"


def test_it_finds_torchrun_s_workers_that_are_no_descendants_of_the_command(
    start: Start, tmp_path: Path
) -> None:
    log = tmp_path / "a"
    worker = hears(log)
    # As Podman's: a process of another session, with the marks and torchrun's variable.
    text = shlex.join(["env", "TORCHELASTIC_RUN_ID=none", *worker.argv])
    waits = f"setsid --fork {text}; until [ -s '{log}' ]; do sleep 0.05; done"
    world = start(shell(waits), to_children=True, is_contained=True, up=1)

    world.process.send_signal(signal.SIGUSR2)

    assert world.end() == (0, "")
    assert log.read_text() == "SIGUSR2\n"


def test_a_child_that_begins_after_the_request_is_asked_too(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "late.py").write_text(_LATE)
    late = Command((sys.executable, str(tmp_path / "late.py")))
    world = start(late, to_children=True, up=1)

    world.process.send_signal(signal.SIGUSR2)

    assert world.end()[0] == 0


def test_a_signal_that_comes_at_once_is_not_lost(start: Start, tmp_path: Path) -> None:
    """It is blocked from before the first command is started."""
    world = start(hears(tmp_path / "a"), up=1)
    for _ in range(20):
        world.process.send_signal(signal.SIGUSR2)
        time.sleep(0.001)

    assert world.end()[0] == 0
    assert set((tmp_path / "a").read_text().split()) == {"SIGUSR2"}


def test_a_file_passes_the_request_on_from_one_to_another(
    start: Start, tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    stop.touch()  # of an earlier world
    waits = f"while [ -e {stop} ]; do sleep 0.01; done; echo up; exec sleep 600"
    head = start(shell(waits), announces=str(stop), up=1)
    quits = hears(tmp_path / "a", "SIGQUIT")
    node = start(quits, sends="QUIT", heeds=str(stop), up=1)

    head.process.send_signal(signal.SIGUSR2)

    assert node.end()[0] == 0
    assert head.process.poll() is None


def test_a_group_of_its_own_keeps_a_signal_for_ours_from_the_command(
    start: Start, tmp_path: Path
) -> None:
    log = tmp_path / "a"
    world = start(hears(log, "SIGTERM"), sends="QUIT", has_groups=True, up=1)

    os.killpg(world.process.pid, signal.SIGUSR2)
    wait_for("QUIT to be heard", lambda: log.exists() and "QUIT" in log.read_text())
    world.process.send_signal(signal.SIGTERM)  # taken after USR2, if that came too

    world.end()
    assert log.read_text() == "SIGQUIT\nSIGTERM\n"


def test_a_killed_starter_takes_its_commands_along(start: Start) -> None:
    world = start(shell("echo $$; exec sleep 600"))
    command = os.pidfd_open(int(world.line()))

    world.process.kill()

    try:
        assert select.select([command], [], [], PATIENCE_S)[0]
    finally:
        os.close(command)
