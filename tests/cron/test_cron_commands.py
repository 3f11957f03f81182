"""``freetrain cron`` on a crontab of the test's own, and on one that misbehaves."""

from pathlib import Path
from typing import get_args

import pytest

from freetrain.cli.verbs import KindName
from freetrain.cron import (
    Crontab,
    CronUnavailableError,
    Found,
    Kind,
    Programs,
    Scrontab,
    Systemd,
)
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


def systemd(tmp_path: Path, script: str) -> Systemd:
    """Return a back end whose systemctl is *script*."""
    program = tmp_path / "systemctl"
    program.write_text(f'#!/bin/sh\necho "$@" >>"{tmp_path}/calls"\n{script}\n')
    program.chmod(0o755)
    programs = Programs({"PATH": f"{tmp_path}:/usr/bin:/bin"})
    return Systemd(a_call(), programs, tmp_path / "units")


def test_units_are_written_followed_and_removed(tmp_path: Path) -> None:
    units = systemd(tmp_path, "exit 0")

    assert units.install(every_s=60)
    assert units.installed()
    assert units.compare(every_s=60) is Found.SAME
    assert units.compare(every_s=90) is Found.OTHER
    assert not units.install(every_s=60)
    assert units.remove()
    assert not units.remove()
    assert list((tmp_path / "units").iterdir()) == []
    calls = (tmp_path / "calls").read_text().splitlines()
    timer = f"freetrain-{units.call.mark}.timer"
    assert calls[:2] == ["--user daemon-reload", f"--user enable --now {timer}"]
    assert calls[-2:] == [f"--user disable --now {timer}", "--user daemon-reload"]


def test_a_systemd_that_cannot_be_reached_is_reported(tmp_path: Path) -> None:
    units = systemd(tmp_path, "echo Failed to connect to bus >&2; exit 1")

    with pytest.raises(CronUnavailableError, match="Failed to connect to bus"):
        units.install(every_s=60)
