"""``freetrain cron`` on a crontab of the test's own, and on one that misbehaves."""

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from freetrain.cli.app import KindName
from freetrain.cron import (
    Crontab,
    CronUnavailableError,
    Found,
    Kind,
    Programs,
    Scrontab,
    Systemd,
)
from freetrain.errors import CannotWriteError
from tests.cli.commands import Ran, run
from tests.cron.tables import FakeTable, a_call, install_fake

MINE = b"# my own\nMAILTO=me\n5 4 * * * echo 50\\% # \xff\n"


@pytest.fixture
def crontab(tmp_path: Path) -> FakeTable:
    return install_fake(tmp_path)


def cron(crontab: FakeTable, *words: str) -> Ran:
    return run("cron", *words, cwd=crontab.folder, environ=crontab.environ)


def test_kinds_that_the_option_offers_are_those_that_exist() -> None:
    assert set(get_args(KindName)) == set(Kind)


def test_installing_adds_a_line_and_removing_takes_it_away(crontab: FakeTable) -> None:
    crontab.keep(MINE)

    installed = cron(crontab, "install", "--kind", "crontab")

    assert (installed.code, installed.stderr) == (0, "")
    table = crontab.table or b""
    assert table.startswith(MINE)
    assert b"-m freetrain tick" in table
    assert str(crontab.folder / ".freetrain" / "cron.log") in installed.stdout
    assert cron(crontab, "remove").code == 0
    assert crontab.table == MINE


def test_installing_where_nothing_was_leaves_nothing_after_removing(
    crontab: FakeTable,
) -> None:
    assert cron(crontab, "install").code == 0
    assert cron(crontab, "remove", "--kind", "crontab").code == 0

    assert crontab.table is None
    assert crontab.calls()[-2:] == ["-r", "-l"]


def test_installing_twice_writes_once(crontab: FakeTable) -> None:
    cron(crontab, "install")
    first = crontab.table

    again = cron(crontab, "install")

    assert (crontab.table, crontab.calls().count("-")) == (first, 1)
    assert "installed already" in again.stdout


def test_another_interval_replaces_the_line(crontab: FakeTable) -> None:
    cron(crontab, "install")
    cron(crontab, "install", "--every", "30s")

    assert (crontab.table or b"").count(b"freetrain tick") == 2


@pytest.mark.parametrize(
    ("every", "lease", "said"),
    [
        ("2min", "", ""),
        ("5min", "", "But where leases yield, ticks come every 5 min"),
        ("5min", 'mode = "yield"', "But ticks come every 5 min"),
        ("5min", 'mode = "yield"\nsilence = "11min"', ""),
        ("2min", 'mode = "yield"\nsilence = "2min"', "Tick every 1 min"),
        ("1min", 'mode = "yield"\nsilence = "1min"', 'Set [lease] silence = "3min"'),
        ("5min", 'mode = "preempt"', ""),
    ],
)
def test_ticks_so_rare_that_leases_end_between_them_are_warned_of(
    crontab: FakeTable, every: str, lease: str, said: str
) -> None:
    (crontab.folder / "freetrain.toml").write_text(f"[lease]\n{lease}\n")

    installed = cron(crontab, "install", "--every", every)

    assert installed.code == 0
    assert said in installed.stderr
    assert bool(said) is bool(installed.stderr)


def test_the_configuration_that_was_found_is_named_with_its_whole_path(
    crontab: FakeTable,
) -> None:
    (crontab.folder / "freetrain.toml").write_text('state_directory = "state"\n')

    cron(crontab, "install", "--config", "freetrain.toml")

    assert f"--config {crontab.folder}/freetrain.toml".encode() in (
        crontab.table or b""
    )
    assert (crontab.folder / "state").stat().st_mode & 0o777 == 0o700


def test_showing_changes_nothing_and_is_what_install_writes(
    crontab: FakeTable,
) -> None:
    shown = cron(crontab, "show")

    assert (crontab.table, "is not installed" in shown.stderr) == (None, True)
    assert not (crontab.folder / ".freetrain").exists()
    cron(crontab, "install")
    assert crontab.table == shown.stdout.encode()
    assert "It is installed" in cron(crontab, "show").stderr


def test_showing_tells_when_something_else_is_installed(crontab: FakeTable) -> None:
    cron(crontab, "install", "--every", "30s")
    before = crontab.table

    shown = cron(crontab, "show").stderr

    assert "Another one is installed" in shown
    assert "freetrain cron install" in shown
    assert crontab.table == before
    assert "It is installed" in cron(crontab, "show", "--every", "30s").stderr


@pytest.mark.parametrize(
    ("act", "code", "said", "left"),
    [
        ("forbid", 69, "not allowed to use this program", MINE),
        ("race", 75, "changed while it was being edited", b"1 2 3 4 5 somebody else\n"),
        ("meddle", 75, "is not what was just written", None),
    ],
)
def test_a_crontab_that_misbehaves_is_reported_and_not_overwritten(
    crontab: FakeTable, act: str, code: int, said: str, left: bytes | None
) -> None:
    crontab.keep(MINE)
    crontab.act(act)

    refused = cron(crontab, "install")

    assert refused.code == code
    assert said in refused.stderr
    assert left in {None, crontab.table}
    assert ("cron.allow" in refused.stderr) == (act == "forbid")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("install", "none of crontab, systemctl, scrontab"),
        ("install --kind crontab", "no program `crontab`"),
        ("remove", "nothing was removed"),
    ],
)
def test_without_any_program_there_is_a_clear_refusal(
    tmp_path: Path, words: str, said: str
) -> None:
    environ = {"PATH": str(tmp_path), "HOME": str(tmp_path)}

    ran = run("cron", *words.split(), cwd=tmp_path, environ=environ)

    assert (ran.code, ran.stdout) == (69, "")
    assert said in ran.stderr


def test_without_a_home_nothing_is_installed(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('state_directory = "s"\n')
    words = ("cron", "show", "--config", "c.toml")

    ran = run(*words, cwd=tmp_path, environ={"PATH": "/bin"})

    assert (ran.code, "HOME is not set" in ran.stderr) == (78, True)


@pytest.mark.parametrize("word", ["60", "7.5s", "0s", "soon"])
def test_an_interval_that_is_none_is_a_usage_error(tmp_path: Path, word: str) -> None:
    assert run("cron", "show", "--every", word, cwd=tmp_path).code == 64


def test_a_program_that_hangs_is_ended(crontab: FakeTable) -> None:
    crontab.act("hang")
    programs = Programs(crontab.environ, timeout_s=0.5)

    with pytest.raises(CronUnavailableError, match="did not end within"):
        Crontab(a_call(), programs, Path()).read()


def test_a_scrontab_says_that_it_is_empty_on_its_standard_output(
    tmp_path: Path,
) -> None:
    program = tmp_path / "scrontab"
    program.write_text("#!/bin/sh\necho no crontab for u1\nexit 1\n")
    program.chmod(0o755)
    programs = Programs({"PATH": f"{tmp_path}:/bin"})

    assert Scrontab(a_call(), programs, tmp_path).read() == b""


def systemd(tmp_path: Path) -> tuple[Systemd, FakeTable, Path]:
    """Return a back end, its stand-in for systemctl, and the folder of units."""
    fake, folder = install_fake(tmp_path, "systemctl"), tmp_path / UNITS
    return Systemd(a_call(), Programs({"PATH": str(tmp_path)}), folder), fake, folder


UNITS = ".config/systemd/user"


def test_units_are_written_followed_and_removed(tmp_path: Path) -> None:
    units, _, folder = systemd(tmp_path)

    assert units.install(every_s=60)
    assert units.installed()
    assert units.compare(every_s=60) is Found.SAME
    assert units.compare(every_s=90) is Found.OTHER
    assert not units.install(every_s=60)
    assert units.remove()
    assert not units.remove()
    assert list(folder.iterdir()) == []
    calls = (tmp_path / "calls").read_text().splitlines()
    timer = f"freetrain-{units.call.mark}.timer"
    assert calls[:2] == ["--user daemon-reload", f"--user enable --now {timer}"]
    assert calls[-2:] == [f"--user disable --now {timer}", "--user daemon-reload"]


@pytest.mark.parametrize("act", ["unreachable", "no-enable"])
def test_an_install_that_systemd_refuses_takes_its_files_away_again(
    tmp_path: Path, act: str
) -> None:
    units, fake, folder = systemd(tmp_path)
    fake.act(act)

    with pytest.raises(CronUnavailableError, match=r"Failed to connect to bus.*before"):
        units.install(every_s=60)

    assert list(folder.iterdir()) == []
    assert units.compare(every_s=60) is Found.NOTHING


def test_a_change_that_systemd_refuses_leaves_the_units_of_before(
    tmp_path: Path,
) -> None:
    units, fake, _ = systemd(tmp_path)
    units.install(every_s=60)
    fake.act("no-enable")

    with pytest.raises(CronUnavailableError):
        units.install(every_s=90)

    assert units.compare(every_s=60) is Found.SAME
    assert not units.problem()


def test_an_install_that_the_disk_refuses_leaves_nothing(tmp_path: Path) -> None:
    units, _, folder = systemd(tmp_path)
    blocker = folder / f".freetrain-{units.call.mark}.timer.new"
    blocker.mkdir(parents=True)

    with pytest.raises(CannotWriteError):
        units.install(every_s=60)

    assert list(folder.iterdir()) == [blocker]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("disabled active waiting", "UnitFileState is disabled"),
        ("masked active waiting", "UnitFileState is masked"),
        ("enabled inactive dead", "ActiveState is inactive"),
        ("enabled failed failed", "ActiveState is failed"),
        ("enabled active elapsed", "SubState is elapsed"),
    ],
)
def test_units_that_systemd_does_not_follow_are_not_said_to_be_installed(
    tmp_path: Path, state: str, said: str
) -> None:
    units, _, folder = systemd(tmp_path)
    units.install(every_s=60)
    (tmp_path / "timer-state").write_text(state)
    found = units.problem()
    for unit in folder.iterdir():
        unit.unlink()
        assert units.problem()
        unit.write_text("")

    assert said in found
    assert units.install(every_s=60)
    assert not units.problem()


def test_a_user_whose_systemd_ends_at_logout_is_told(tmp_path: Path) -> None:
    units, _, _ = systemd(tmp_path)
    units.install(every_s=60)
    program = tmp_path / "loginctl"
    program.write_text("#!/bin/sh\necho Linger=no\n")
    program.chmod(0o755)

    assert "enable-linger" in units.problem()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda line: b"#" + line, "start no tick"),
        (lambda _: b"* * * * * true", "start no tick"),
        (lambda line: line.replace(b"/bin/python", b"/bin/gone"), "another instal"),
    ],
)
def test_a_block_without_a_tick_of_ours_is_not_said_to_be_installed(
    crontab: FakeTable, change: Callable[[bytes], bytes], said: str
) -> None:
    kept = Crontab(a_call(), Programs(crontab.environ), Path())
    kept.install(every_s=60)
    first, line, last = (crontab.table or b"").splitlines()
    found = kept.problem()
    crontab.keep(b"\n".join((first, change(line), last, b"")))

    assert found == ""
    assert said in kept.problem()


def test_showing_tells_of_units_that_systemd_does_not_follow(tmp_path: Path) -> None:
    fake = install_fake(tmp_path, "systemctl")
    words = ("--kind", "systemd")
    assert cron(fake, "install", *words).code == 0
    (tmp_path / "timer-state").unlink()

    assert "But systemd says of" in cron(fake, "show", *words).stderr
