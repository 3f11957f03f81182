import pytest
from hypothesis import given
from hypothesis import strategies as st

from logs.lines import BadLineError
from logs.sacct import read_count, read_duration, read_time


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2-03:04:05", 183845.0),
        ("1-12", 129600.0),
        ("1-12:30", 131400.0),
        ("03:04:05", 11045.0),
        ("30:00", 1800.0),
        ("00:01.250", 1.25),
        ("10", 600.0),
        ("UNLIMITED", None),
        ("Partition_Limit", None),
        ("NONE", None),
        ("", None),
    ],
)
def test_a_duration_is_read_in_every_form(text: str, seconds: float | None) -> None:
    assert read_duration(text, "Timelimit", bare_unit_s=60.0) == seconds


@given(st.integers(0, 10**8))
def test_a_duration_reads_back_as_it_was_printed(seconds: int) -> None:
    days, rest = divmod(seconds, 86400)
    text = f"{days}-{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"

    assert read_duration(text, "Elapsed", bare_unit_s=1.0) == seconds


@pytest.mark.parametrize(
    ("text", "unix_s"),
    [
        ("2026-08-20T04:00:00", 1787198400.0),
        ("2026-08-20T06:00:00+02:00", 1787198400.0),
        ("2026-08-20T06:00:00+0200", 1787198400.0),
        ("2026-08-20T04:00:00Z", 1787198400.0),
        ("1787198400", 1787198400.0),
        ("Unknown", None),
        ("None", None),
        ("N/A", None),
    ],
)
def test_a_time_is_read_in_every_form(text: str, unix_s: float | None) -> None:
    assert read_time(text, "Start") == unix_s


@pytest.mark.parametrize(
    ("text", "count"),
    [("12", 12), ("1.5K", 1536), ("2K", 2048), ("1M", 1048576), ("", None)],
)
def test_a_count_is_read_with_its_suffix(text: str, count: int | None) -> None:
    assert read_count(text, "NNodes") == count


@given(st.text(max_size=12))
def test_no_text_whatever_breaks_a_reader_in_any_other_way(text: str) -> None:
    for read in (
        lambda: read_time(text, "Start"),
        lambda: read_count(text, "NNodes"),
        lambda: read_duration(text, "Elapsed", bare_unit_s=1.0),
    ):
        try:
            value = read()
        except BadLineError:
            continue
        assert value is None or value >= 0
