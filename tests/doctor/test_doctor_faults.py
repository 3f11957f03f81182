"""No check says ok of what is not so: each subject is made wrong in turn."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from freetrain.config.job import LaunchSettings, NodeSettings
from freetrain.cron import back_ends_of
from freetrain.doctor.checks import (
    look_at_damaged,
    look_at_database,
    look_at_last_tick,
    look_at_mount,
    look_at_mpi,
    look_at_state,
    look_at_ticks,
    uses_pieces,
)
from freetrain.doctor.one_step_run import (
    locked,
    look_at_links,
    look_at_locks,
)
from freetrain.state.database import DATABASE, STEPS, mount_of
from freetrain.state.files import StateDir
from freetrain.state.tables import TrainerState
from tests.client.client_states import (
    NOW_S,
    a_job,
    a_page,
    put_page,
    put_state,
    submitted,
)
from tests.cron.tables import install_fake
from tests.doctor.subjects import a_subject, by_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from freetrain.cron import Programs
    from freetrain.doctor.findings import Finding, Subject

PAGE_BYTES = 4_096


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    """Return a state directory with one trainer, and a good tick just now."""
    folder = StateDir(tmp_path / "state")
    submitted(folder, a_job(tmp_path))
    put_page(folder, a_page())
    folder.log.write_text("2026-01-01T00:00:00Z all is well\n")
    return folder


def database(state: StateDir) -> Finding:
    return look_at_database(state.path, uid=os.getuid())


def last_tick(state: StateDir) -> Finding:
    return look_at_last_tick(state, NOW_S + 30.0)


def test_a_whole_database_and_a_good_tick_are_well(state: StateDir) -> None:
    assert (database(state).verdict, last_tick(state).verdict) == ("ok", "ok")


@pytest.mark.parametrize(
    ("nodes", "now", "expected"),
    [
        ({"gpus_per_lease": 1}, TrainerState.WANTED, True),
        ({"gpus_per_lease": 1}, TrainerState.PAUSED, True),
        ({"gpus_per_lease": 1}, TrainerState.FINISHED, False),
        ({}, TrainerState.WANTED, False),
    ],
)
def test_pieces_are_used_where_a_trainer_that_may_run_asks_for_gpus(
    tmp_path: Path, nodes: dict[str, int], now: TrainerState, *, expected: bool
) -> None:
    subject = a_subject(tmp_path, {"PATH": os.defpath})
    assert not uses_pieces(subject)
    folder = StateDir(subject.site.state_directory)
    settings = NodeSettings(max_nodes=8, **nodes)  # type: ignore[arg-type]
    launch = LaunchSettings(launcher="srun")
    submitted(folder, a_job(tmp_path, nodes=settings, launch=launch))
    put_state(folder, "digits", now)

    assert uses_pieces(subject) is expected


def _torn(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def _overwrite(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xa5" * PAGE_BYTES)


def _of_a_newer_release(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE made_later (x INTEGER)")
        connection.execute(f"PRAGMA user_version = {len(STEPS) + 1}")


def _without_its_trainers(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM trainers")


def _without_a_table(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP TABLE trainers")


@pytest.mark.parametrize(
    "break_it",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"no database at all" * 1_000),
        lambda path: path.unlink(),
        lambda path: path.chmod(0o600) or path.rename(path.with_name("gone")),
        _torn,
        _of_a_newer_release,
        _without_its_trainers,
        _without_a_table,
        *(partial(_overwrite, at=page * PAGE_BYTES) for page in range(4)),
    ],
)
def test_a_database_that_is_lost_or_damaged_is_not_well(
    state: StateDir, break_it: Callable[[Path], object]
) -> None:
    path = state.path / DATABASE
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode = DELETE")

    break_it(path)

    assert database(state).verdict in {"bad", "warn"}


def test_a_damaged_page_that_no_reader_has_come_to_yet_is_found(
    state: StateDir,
) -> None:
    path = state.path / DATABASE
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        rows = ((f"node-{number:05d}",) for number in range(5_000))
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO forecast_nodes (name) VALUES (?)", rows)
        connection.execute("COMMIT")
    whole = database(state).verdict

    _overwrite(path, at=path.stat().st_size // 2)

    assert (whole, database(state).verdict) == ("ok", "bad")


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda state: state.status_report.write_text("{"), "cannot be read"),
        (lambda state: state.status_report.unlink(), "none went well"),
        (lambda state: put_page(state, a_page(at_s=NOW_S - 3_600.0)), "1 h"),
        (lambda state: put_page(state, a_page(at_s=NOW_S + 3_600.0)), "ahead"),
        (lambda state: put_page(state, a_page(problems=("x: is torn",))), "x: is torn"),
        (lambda _: None, "failed: disk full"),
    ],
)
def test_ticks_that_fail_or_do_not_come_are_not_well(
    state: StateDir, break_it: Callable[[StateDir], object], said: str
) -> None:
    if "failed" in said or "went well" in said:
        with state.log.open("a") as log:
            log.write("2026-01-01T00:01:00Z failed: disk full\n")

    break_it(state)

    found = last_tick(state)
    assert found.verdict == "warn"
    assert said in found.seen


@pytest.mark.parametrize(
    ("mode", "minutes", "is_warned"),
    [
        ("yield", (0, 5, 10, 15), True),  # by hand or by cron
        ("yield", (0, 1, 5, 6, 10, 11), True),  # each follows itself up once
        ("yield", (0, 2, 4, 60, 62), False),  # the host was started anew
        ("yield", (0, 1, 2), False),
        ("preempt", (0, 5, 10, 15), False),
    ],
)
def test_ticks_so_rare_that_leases_end_between_them_are_warned_of(
    tmp_path: Path,
    state: StateDir,
    mode: str,
    minutes: tuple[int, ...],
    *,
    is_warned: bool,
) -> None:
    put_page(state, a_page(mode=mode))
    lines = [f"2026-01-01T{m // 60:02}:{m % 60:02}:00Z 0 holes" for m in minutes]
    state.log.write_text("torn\n" + "\n".join(lines) + "\n")

    found = by_name(list(look_at_ticks(a_subject(tmp_path, {}))))

    assert ("interval of ticks" in found) is is_warned
    if is_warned:
        seen = found["interval of ticks"].seen
        assert seen.startswith(f"ticks come every {5 if 5 in minutes[1:2] else 4} min")
        assert "3 min after" in seen


def installed(tmp_path: Path, kind: str) -> Subject:
    """Return a subject whose ticks the stand-in of *kind* keeps."""
    fake = install_fake(tmp_path, kind)
    subject = replace(a_subject(tmp_path, fake.environ), now_s=lambda: NOW_S + 30.0)
    back_ends = back_ends_of(
        subject.site,
        python=subject.python,
        environ=subject.environ,
        uid=subject.uid,
        programs=subject.programs,
    )
    by_program = {back_end.program: back_end for back_end in back_ends.values()}
    assert by_program[kind].install(every_s=60)
    return subject


@pytest.mark.parametrize("kind", ["crontab", "systemctl"])
def test_ticks_count_as_installed_only_if_they_come(
    tmp_path: Path, state: StateDir, kind: str
) -> None:
    subject = installed(tmp_path, kind)

    def verdict() -> str:
        return str(by_name(list(look_at_ticks(subject)))["regular ticks"].verdict)

    well = verdict()
    put_page(state, a_page(at_s=NOW_S - 3_600.0))
    old = verdict()
    state.status_report.unlink()
    state.log.unlink()
    none = verdict()
    put_page(state, a_page())
    (tmp_path / ("table" if kind == "crontab" else "timer-state")).write_bytes(b"")

    assert (well, old, none, verdict()) == ("ok", "warn", "warn", "warn")


def test_a_file_system_whose_links_are_copies_is_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes())

    monkeypatch.setattr(os, "link", copy)

    assert look_at_links(tmp_path).verdict == "bad"


@dataclass(frozen=True)
class OpenDoor:
    """Programs whose second writer of a database is let in, as without locks."""

    inner: Programs
    said: bytes = b""
    returncode: int = 0

    def run(self, argv: tuple[str, ...]) -> OpenDoor:
        del argv
        return self

    @property
    def stdout(self) -> bytes:
        return self.said

    @property
    def stderr(self) -> bytes:
        return self.said


@pytest.mark.parametrize(("code", "verdict"), [(0, "bad"), (1, "skipped")])
def test_a_file_system_that_lets_two_writers_in_is_not_well(
    tmp_path: Path, code: int, verdict: str
) -> None:
    subject = a_subject(tmp_path, {})
    programs = OpenDoor(subject.programs, returncode=code)
    subject = replace(subject, programs=programs)  # type: ignore[arg-type]  # a part

    found = by_name(list(look_at_state(subject)))

    assert found["locks of the database"].verdict == verdict


def test_a_database_that_keeps_a_second_process_out_is_well(tmp_path: Path) -> None:
    found = by_name(list(look_at_state(a_subject(tmp_path, {}))))

    assert found["locks of the database"].verdict == "ok", found


@pytest.mark.parametrize("name", ["a b", "a:b"])
def test_a_state_directory_whose_path_mpirun_splits_is_bad(
    tmp_path: Path, name: str
) -> None:
    said = "mpirun (Open MPI) 5.0.11"
    for folder in (tmp_path / name, tmp_path / "plain"):
        folder.mkdir()
    program = tmp_path / "mpirun"
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}

    split, plain = (
        by_name(list(look_at_mpi(a_subject(folder, environ))))["mpirun"]
        for folder in (tmp_path / name, tmp_path / "plain")
    )

    assert (split.verdict, plain.verdict) == ("bad", "ok")


def test_an_mpirun_that_fails_is_not_well(tmp_path: Path) -> None:
    program = tmp_path / "mpirun"
    program.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 5.0.11'\nexit 1\n")
    program.chmod(0o755)
    subject = a_subject(tmp_path, {"PATH": f"{tmp_path}:/usr/bin:/bin"})

    assert by_name(list(look_at_mpi(subject)))["mpirun"].verdict == "warn"


@pytest.mark.skipif(sys.platform != "linux", reason="statvfs of a made-up disk")
@pytest.mark.parametrize(
    ("free", "files", "verdict"), [(1 << 40, 0, "warn"), (1, 10**6, "warn")]
)
def test_a_disk_without_room_for_files_is_not_well(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    free: int,
    files: int,
    verdict: str,
) -> None:
    real = os.statvfs(tmp_path)
    values = list(real)
    values[1], values[4], values[5], values[7] = 1, free, 10**6, files
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(values))

    found = by_name(list(look_at_state(a_subject(tmp_path, {}))))

    assert found["space"].verdict == verdict


@pytest.mark.parametrize(
    ("options", "verdict", "words"),
    [
        ("rw,vers=4.2,local_lock=none,hard", "ok", "nfs4, without"),
        ("rw,vers=3,nolock", "warn", "locks are kept by each host for itself"),
        ("rw,local_lock=all", "warn", "locks are kept by each host for itself"),
        ("rw,local_lock=posix", "warn", "SQLite's locks"),
        ("rw,localflock", "warn", "locks are kept by each host for itself"),
        ("rw,soft", "warn", "writes fail"),
        ("rw,noac", "ok", "slower"),
    ],
)
def test_mount_options_are_said_with_what_they_mean(
    options: str, verdict: str, words: str
) -> None:
    line = f"30 22 0:26 / /home rw,relatime - nfs4 server:/home {options}\n"

    found = look_at_mount(mount_of(Path("/home/ada"), mounts=line))

    assert found.verdict == verdict
    assert words in found.seen


def test_databases_that_were_put_back_are_told_of(state: StateDir) -> None:
    assert list(look_at_damaged(state.path)) == []
    (state.path / f"{DATABASE}.damaged-2026-01-01T000000Z").touch()

    (found,) = look_at_damaged(state.path)

    assert found.verdict == "warn"
    assert "damaged-2026" in found.seen


_TRY = """
import sys
from pathlib import Path
from freetrain.doctor.one_step_run import granted_locks
print(*granted_locks(Path(sys.argv[1])))
"""


def tried_elsewhere(path: Path) -> list[str]:
    words = [sys.executable, "-c", _TRY, str(path)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)  # noqa: S603
    return done.stdout.split()


def test_a_lock_that_another_host_is_granted_as_well_is_told_of(
    tmp_path: Path,
) -> None:
    path = tmp_path / "locked"
    with locked(path):
        reaches = look_at_locks({"locks_granted": tried_elsewhere(path)}, "n1")
    # As where the lock stays on the host that holds it: nothing is in the way.
    found = look_at_locks({"locks_granted": tried_elsewhere(path)}, "n1")

    assert (reaches.verdict, found.verdict) == ("ok", "warn")
    assert "flock, fcntl" in found.seen
