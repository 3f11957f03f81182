"""Lines and units as crons, systemd and shells will read them; our block in a table."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.cron import (
    Crontab,
    CronUnfitError,
    CronUnreadableError,
    Scrontab,
    Systemd,
    TableBlock,
    lines_between,
    put,
    start_times,
    without,
)
from tests.cron.tables import a, a_call

NAMES = st.text(
    st.characters(exclude_characters="/\\!\0", exclude_categories=("C", "Z")),
    min_size=1,
    max_size=20,
).filter(lambda name: name.isprintable() and name not in {".", ".."})
EVERY_S = (10, 12, 15, 20, 30, 60, 120, 180, 300, 600, 900, 1200, 1800, 3600)


def starts_s(fields: str, delay_s: int) -> set[int]:
    """Return the seconds of an hour in which a line starts its command."""
    first, _, step = fields.split(maxsplit=1)[0].replace("*", "0-59/1").partition("-")
    minutes = range(int(first), 60, int(step.partition("/")[2] or 60))
    return {60 * m + delay_s for m in minutes}


@given(every_s=st.sampled_from(EVERY_S), drawn=st.integers(0, 3599))
def test_the_lines_start_something_in_equal_steps_all_the_hour(
    every_s: int, drawn: int
) -> None:
    lines = start_times(every_s, jitter_s=drawn % every_s)

    found = sorted(
        second for fields, delay_s in lines for second in starts_s(fields, delay_s)
    )
    assert found == list(range(drawn % every_s, 3600, every_s))


@pytest.mark.parametrize("every_s", [1, 9, 11, 40, 61, 90, 420, 7200])
def test_an_interval_that_cron_keeps_only_roughly_is_refused(every_s: int) -> None:
    with pytest.raises(CronUnfitError, match="Nothing was installed"):
        start_times(every_s, jitter_s=0)


def as_cron_does(command: str) -> str:
    r"""Return what cron hands to the shell: \% is %, a bare % would end it."""
    assert "%" not in command.replace(r"\%", "")
    return command.replace(r"\%", "%")


@given(state=NAMES, config=NAMES)
def test_hostile_paths_arrive_as_they_are(state: str, config: str) -> None:
    call = a_call(Path("/s") / state, config=Path("/c") / config)
    (line,) = a(Crontab, call).block(every_s=60).lines

    words = shlex.split(as_cron_does(line.split(maxsplit=5)[5]))

    seconds = range(60)
    assert tuple(words) in {call.argv(stays_s=55, delay_s=s) for s in seconds}
    tick, log = shlex.split(words[-1]), f">>/s/{state}/cron.log"
    assert tick[-4:] == ["--config", f"/c/{config}", log, "2>&1"]


def test_a_shell_runs_the_line_in_a_bare_environment(tmp_path: Path) -> None:
    """A real sh, with a folder whose name would do harm if it were read."""
    folder = tmp_path / "a b'c\"$(touch pwned);%`touch pwned`&"
    folder.mkdir()
    python = folder / "python"
    python.write_text(
        f"#!{sys.executable}\nimport os, sys\nprint(sys.argv, os.environ)\n"
    )
    python.chmod(0o755)
    call = a_call(folder, python=python, config=folder / "c.toml")
    command = shlex.join(call.argv(stays_s=20))

    subprocess.run(  # noqa: S602 -- what cron does is what is tested
        command,
        shell=True,
        check=True,
        cwd=tmp_path,
        env={"SHELL": "x", "SLURM_X": "1"},
    )

    said = call.log.read_text()
    assert f"'--follow-up', '20s', '--config', {str(folder / 'c.toml')!r}" in said
    assert "SLURM_X" not in said
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.parametrize("bad", ["a\nb", "a\\b", "a!b", "a\0b", "a\x1bb"])
def test_what_no_table_can_hold_is_refused(bad: str) -> None:
    with pytest.raises(CronUnfitError, match="Nothing was installed"):
        a(Crontab, a_call(config=Path("/c") / bad)).block(every_s=60)


def test_a_command_longer_than_cron_takes_is_refused() -> None:
    long = a_call(config=Path("/c" * 500))

    with pytest.raises(CronUnfitError, match="--kind systemd"):
        a(Crontab, long).block(every_s=60)
    assert a(Systemd, long).unit_files(every_s=60)


def test_users_do_not_all_tick_in_the_same_second() -> None:
    delays = {a_call(uid=uid).jitter_s(60) for uid in range(1000, 1100)}

    assert len(delays) > 30
    assert delays <= set(range(60))
    assert a_call().jitter_s(60) == a_call().jitter_s(60)


def test_a_token_is_never_written_into_a_table() -> None:
    call = a_call(variables=(("HOME", "/"), ("SLURM_JWT", "secret")))

    assert "secret" not in str(a(Crontab, call).block(every_s=60))


def test_units_say_percents_and_dollars_twice_and_quote() -> None:
    call = a_call(Path('/s/50% of "$HOME"'))

    (service, timer) = a(Systemd, call).unit_files(every_s=30).values()

    assert r"50%% of \"$$HOME\"" in service
    assert "OnUnitActiveSec=30s" in timer


@pytest.mark.parametrize("every_s", [9, 3601])
def test_units_refuse_what_would_be_a_loop_or_a_rarity(every_s: int) -> None:
    with pytest.raises(CronUnfitError):
        a(Systemd, a_call()).unit_files(every_s=every_s)


def test_a_tick_follows_itself_up_until_shortly_before_the_next() -> None:
    table = a(Crontab, a_call())

    assert "--follow-up 55s " in table.block(every_s=60).lines[0]
    assert all("--follow-up 10s " in line for line in table.block(every_s=15).lines)
    assert "--follow-up 25s " in str(a(Systemd, a_call()).unit_files(every_s=30))


@pytest.mark.parametrize("every_s", [60, 3_600])
def test_a_tick_that_is_a_job_is_small_and_does_not_stay_for_long(every_s: int) -> None:
    *options, line = a(Scrontab, a_call()).block(every_s=every_s).lines

    assert all(option.startswith("#SCRON --") for option in options)
    assert any("--ntasks=1" in option for option in options)
    assert any("--time=10 " in option for option in options)
    assert "freetrain tick --follow-up 20s " in line


def test_a_scrontab_takes_no_less_than_a_minute_and_no_dollar() -> None:
    with pytest.raises(CronUnfitError):
        a(Scrontab, a_call()).block(every_s=30)
    with pytest.raises(CronUnfitError, match="scrontab expands"):
        a(Scrontab, a_call(Path("/s/$HOME"))).block(every_s=60)


BLOCK = TableBlock("abc123", ("* * * * * /bin/true",))
OTHER = TableBlock("fff999", ("@daily /bin/false",))
LINES = st.lists(
    st.one_of(
        st.binary(max_size=30).map(lambda line: line.replace(b"\n", b" ")),
        st.sampled_from([b"", b"SHELL=/bin/csh", b"# >>> freetrain", b"#"]),
    )
)
TABLES = LINES.map(lambda lines: b"".join(line + b"\n" for line in lines))


@given(before=TABLES, after=TABLES)
def test_removing_leaves_what_was_there_to_the_byte(
    before: bytes, after: bytes
) -> None:
    table = put(before, BLOCK) + after

    assert without(table, BLOCK) == before + after


@given(before=TABLES, after=TABLES)
def test_installing_again_in_other_words_replaces_our_lines_only(
    before: bytes, after: bytes
) -> None:
    new = TableBlock(BLOCK.mark, ("*/5 * * * * /bin/echo", "# é"))

    assert put(before + bytes(BLOCK) + after, new) == before + bytes(new) + after


@given(TABLES)
def test_installing_twice_is_installing_once(table: bytes) -> None:
    once = put(table, BLOCK)

    assert put(once, BLOCK) == once


def test_blocks_of_other_state_directories_are_left_alone() -> None:
    both = put(put(b"", BLOCK), OTHER)

    assert without(both, BLOCK) == bytes(OTHER)
    assert lines_between(both, OTHER.mark) == OTHER.lines
    assert lines_between(without(both, OTHER), OTHER.mark) == ()


def test_a_block_that_somebody_copied_is_one_block_again() -> None:
    copied = bytes(BLOCK) + b"# mine\n" + bytes(BLOCK)

    assert put(copied, BLOCK) == bytes(BLOCK) + b"# mine\n"
    assert without(copied, BLOCK) == b"# mine\n"


def test_a_last_line_without_its_end_gets_one() -> None:
    assert put(b"# mine", BLOCK) == b"# mine\n" + bytes(BLOCK)


@pytest.mark.parametrize(
    "table",
    [
        BLOCK.first + b"\n* * * * * /bin/true\n",
        BLOCK.last + b"\n",
        BLOCK.last + b"\n" + BLOCK.first + b"\n",
        BLOCK.first + b"\n" + bytes(BLOCK),
    ],
)
def test_torn_marks_are_left_for_their_owner_to_mend(table: bytes) -> None:
    with pytest.raises(CronUnreadableError, match="Nothing was changed"):
        put(table, BLOCK)
    with pytest.raises(CronUnreadableError, match="by hand"):
        without(table, BLOCK)
