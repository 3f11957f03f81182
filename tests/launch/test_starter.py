"""The starter: several commands as one."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from freetrain.launch import starter
from freetrain.launch.starter import Command, Orders, parse_orders, render_orders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE_S = 60.0
# Says that it is there, then waits for signals and says which came; USR2 ends it.
_HEARS = """\
import signal, sys
numbers = {signal.SIGUSR2, signal.SIGTERM, signal.SIGQUIT}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
sys.stdout.write("up\\n"); sys.stdout.flush()
while True:
    came = signal.sigwait(numbers)
    with open(sys.argv[1], "a") as file: file.write(came.name + "\\n")
    if came.name == sys.argv[2]: raise SystemExit(int(sys.argv[3]))
"""


def hears(log: Path, ends_by: str = "SIGUSR2", status: int = 0) -> Command:
    return Command((sys.executable, "-c", _HEARS, str(log), ends_by, str(status)))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[Orders], subprocess.Popen[bytes]]]:
    """Start a starter; nothing of it outlives the test."""
    started = []

    def run(orders: Orders) -> subprocess.Popen[bytes]:
        path = tmp_path / "orders.json"
        path.write_text(render_orders(orders))
        file = str(Path(starter.__file__))
        process = subprocess.Popen(  # noqa: S603 -- our own program
            [sys.executable, "-I", "-S", file, str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": os.defpath},
            start_new_session=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        with process:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def up(process: subprocess.Popen[bytes], count: int) -> None:
    assert process.stdout is not None
    for _ in range(count):
        assert process.stdout.readline() == b"up\n"


def orders(*commands: Command, sends: str = "USR2", **changes: Any) -> Orders:  # noqa: ANN401
    return Orders(commands=commands, hears=("USR2",), sends=sends, **changes)


def test_orders_survive_their_file() -> None:
    one = Orders(
        commands=(Command(("a", "b c"), (("X", "y"),), "n1"), Command(("d",))),
        hears=("USR2", "TERM"),
        sends="INT",
        to_children=True,
    )

    assert parse_orders(render_orders(one)) == one


def test_it_ends_well_when_all_commands_did(start: Callable[..., object]) -> None:
    process = start(orders(Command(("true",)), Command(("sh", "-c", "exit 0"))))
    assert isinstance(process, subprocess.Popen)
    assert process.wait(PATIENCE_S) == 0


def test_a_signal_reaches_every_command_as_the_one_that_it_wants(
    start: Callable[[Orders], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    logs = [tmp_path / name for name in ("a", "b")]
    commands = [hears(log, "SIGQUIT") for log in logs]
    process = start(orders(*commands, sends="QUIT"))
    up(process, 2)

    process.send_signal(signal.SIGUSR2)

    assert process.wait(PATIENCE_S) == 0
    assert [log.read_text() for log in logs] == ["SIGQUIT\n"] * 2


def test_one_command_s_failure_ends_the_others_and_is_its_status(
    start: Callable[[Orders], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    log = tmp_path / "a"
    waits = f"until [ -e {tmp_path}/go ]; do sleep 0.01; done; exit 3"
    process = start(
        orders(hears(log, "SIGTERM"), Command(("sh", "-c", waits), name="n2"))
    )
    up(process, 1)

    (tmp_path / "go").touch()

    assert process.wait(PATIENCE_S) == 3
    assert process.stdout is not None
    assert b"freetrain: n2 ended with exit code 3" in process.stdout.read()
    assert log.read_text() == "SIGTERM\n"


def test_a_command_killed_by_a_signal_has_a_shell_s_status_for_it(
    start: Callable[[Orders], subprocess.Popen[bytes]],
) -> None:
    process = start(orders(Command(("sh", "-c", "kill -KILL $$"))))

    assert process.wait(PATIENCE_S) == 128 + 9


def test_a_command_that_is_not_there_ends_the_others(
    start: Callable[[Orders], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    process = start(orders(Command(("sleep", "600")), Command((f"{tmp_path}/no",))))

    assert process.wait(PATIENCE_S) == 127
    assert process.stdout is not None
    assert b"cannot be started" in process.stdout.read()


def test_term_ends_every_command(
    start: Callable[[Orders], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    log = tmp_path / "a"
    process = start(orders(hears(log, "SIGTERM")))
    up(process, 1)

    process.send_signal(signal.SIGTERM)

    assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert log.read_text() == "SIGTERM\n"


def test_a_shielded_command_never_sees_term(
    start: Callable[[Orders], subprocess.Popen[bytes]],
) -> None:
    # No shell: dash clears the mask that it inherits.
    program = "import os, signal, sys; os.kill(os.getpid(), signal.SIGTERM)"
    command = Command((sys.executable, "-c", program))
    assert start(orders(command)).wait(PATIENCE_S) == 128 + signal.SIGTERM

    process = start(orders(command, is_shielded=True))

    assert process.wait(PATIENCE_S) == 0


def test_it_can_ask_the_processes_that_a_command_started_instead_of_it(
    start: Callable[[Orders], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    log = tmp_path / "a"
    words = " ".join(f"'{word}'" for word in hears(log).argv[3:])
    (tmp_path / "hears.py").write_text(_HEARS)
    # dash would become a last command; the one after it keeps it a parent
    text = f"'{sys.executable}' '{tmp_path}/hears.py' {words}; exit $?"
    process = start(orders(Command(("sh", "-c", text)), to_children=True))
    up(process, 1)

    process.send_signal(signal.SIGUSR2)

    assert process.wait(PATIENCE_S) == 0
    assert log.read_text() == "SIGUSR2\n"


def test_a_signal_that_comes_at_once_is_not_lost(
    start: Callable[[Orders], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    """It is blocked from before the first command is started."""
    log = tmp_path / "a"
    process = start(orders(hears(log)))
    up(process, 1)
    for _ in range(20):
        process.send_signal(signal.SIGUSR2)
        time.sleep(0.001)

    assert process.wait(PATIENCE_S) == 0
    assert set(log.read_text().split()) == {"SIGUSR2"}


def test_a_file_passes_the_request_on_from_one_to_another(
    start: Callable[[Orders], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    log, stop = tmp_path / "a", tmp_path / "stop"
    stop.touch()  # of an earlier world
    waits = f"while [ -e {stop} ]; do sleep 0.01; done; echo up; exec sleep 600"
    head = start(orders(Command(("sh", "-c", waits)), announces=str(stop)))
    up(head, 1)
    node = start(orders(hears(log, "SIGQUIT"), sends="QUIT", heeds=str(stop)))
    up(node, 1)

    head.send_signal(signal.SIGUSR2)

    assert node.wait(PATIENCE_S) == 0
    assert head.poll() is None


def test_a_group_of_its_own_keeps_a_signal_for_ours_from_the_command(
    start: Callable[[Orders], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    log = tmp_path / "a"
    process = start(orders(hears(log, "SIGQUIT"), sends="QUIT", has_groups=True))
    up(process, 1)

    os.killpg(process.pid, signal.SIGUSR2)

    assert process.wait(PATIENCE_S) == 0
    assert log.read_text() == "SIGQUIT\n"


def test_a_killed_starter_takes_its_commands_along(
    start: Callable[[Orders], subprocess.Popen[bytes]],
) -> None:
    process = start(orders(Command(("sh", "-c", "echo $$; exec sleep 600"))))
    assert process.stdout is not None
    command = os.pidfd_open(int(process.stdout.readline()))

    process.kill()

    try:
        assert select.select([command], [], [], PATIENCE_S)[0]
    finally:
        os.close(command)
