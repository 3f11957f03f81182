"""Patterns of users are matched in a limited time, whatever they are."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from freetrain.patterns import (
    LIMIT_S,
    LONGEST_LINE,
    LimitedPattern,
    SlowPatternError,
    advice,
    compiled,
    slow_line,
)

OVERRUN_S = 2.0
"""What a search may take beyond its limit, on a busy machine."""

ENDLESS = {
    "(?P<step>a+)+b": "a" * 62,
    "(?P<step>(a*)*)b": "a" * 62,
    "(?P<step>a|a)*b": "a" * LONGEST_LINE,
    "(?P<step>.*)(.*)(.*)(.*)x": "a" * LONGEST_LINE,
    r"(?P<step>\d+)+$": "1" * 40 + "x",
    r"(?P<step>\w+\s?)*:": "word " * 200,
    "(?P<step>(?:.*?){30}x)": "a" * LONGEST_LINE,
}


@pytest.mark.parametrize(("pattern", "line"), ENDLESS.items(), ids=ENDLESS)
def test_a_match_that_would_not_end_is_ended(pattern: str, line: str) -> None:
    tried = LimitedPattern(pattern)
    began_s = time.process_time()

    with pytest.raises(SlowPatternError) as raised, tried.limited():
        tried.groups(line)

    assert time.process_time() - began_s < LIMIT_S + OVERRUN_S
    assert raised.value.line == line
    assert tried.spent_s > LIMIT_S * 0.5


def test_the_limit_is_over_with_the_block_and_leaves_the_signal_as_it_was() -> None:
    before = signal.getsignal(signal.SIGVTALRM)
    tried = LimitedPattern(r"step (?P<step>\d+)")

    with tried.limited(0.05):
        assert tried.groups("step 1 step 2") == [{"step": "1"}, {"step": "2"}]
    began_s = time.process_time()
    while time.process_time() - began_s < 0.1:
        pass

    assert signal.getsignal(signal.SIGVTALRM) is before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_a_pattern_that_takes_seconds_to_compile_is_given_up() -> None:
    letters = "".join(f"[\0-{chr(0x10FFFF - n)}]" for n in range(150))
    began_s = time.process_time()

    with pytest.raises(SlowPatternError) as raised:
        compiled(f"(?i){letters}(?P<step>.)")

    assert time.process_time() - began_s < LIMIT_S + OVERRUN_S
    assert "takes too long to compile" in advice(raised.value, letters)


def test_nothing_is_matched_where_no_limit_can_hold() -> None:
    refused: list[BaseException] = []

    def match() -> None:
        try:
            LimitedPattern("a")
        except RuntimeError as error:
            refused.append(error)

    thread = threading.Thread(target=match)
    thread.start()
    thread.join()

    assert "main thread" in str(refused[0])


@pytest.mark.parametrize(
    "pattern",
    [
        "(?P<step>a+)+b",
        "(?P<step>(x|\\w\\w?)*)y",
        "(?P<step>(ab|ab)*)c",
        r"(?P<step>\d+).*a*a*a*b",
        r"(?P<step>(\w+\s?)*):",
    ],
)
def test_a_pattern_that_backtracks_is_found_before_it_is_used(pattern: str) -> None:
    slow = slow_line(pattern)

    assert slow is not None
    assert "simplify it" in advice(slow, pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        r"step (?P<step>\d+) loss (?P<loss>\S+)",
        r".*step (?P<step>\d+).*loss (?P<loss>\S+)",
        r"Epoch (?P<epoch>\d+) .* Loss (?P<loss>\S+)",
        r"(?P<step>\d+)/(?P<epoch>\d+)\s+\[.*\]\s+-\s+\d+s.*loss: (?P<loss>\S+)",
        r"\[(?P<epoch>\d+)/\d+\]\s+(?:\S+\s+)*loss=(?P<loss>[-+.\deE]+)",
    ],
)
def test_patterns_as_people_write_them_are_quick_enough(pattern: str) -> None:
    assert slow_line(pattern) is None
