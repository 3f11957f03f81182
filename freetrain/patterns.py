"""Regular expressions that users wrote, matched in a limited time.

A pattern that backtracks, such as ``(a+)+b``, is endless on a line of 40 characters,
and no analysis of patterns finds all of these without refusing good ones. ``limited``
therefore sets a timer of this process's CPU time: the C code of ``re`` looks for
signals every few thousand steps, and ends the match with the handler's exception. It
needs no process and no other package, costs 6 µs, and a busy machine does not make a
good pattern slow.

One search whose steps are few and long may overrun the limit by 0.3 s, as ``a*a*b``
does on 1,000 characters: each line is cut there (``LONGEST_LINE``).
"""

from __future__ import annotations

import re
import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType
    from typing import NoReturn

LONGEST_LINE = 1_000
"""Characters of a line that a pattern sees."""

LIMIT_S = 0.5
"""CPU time for compiling a pattern, and for matching one piece of a file."""

_SHOWN = 60


class SlowPatternError(Exception):
    """Compiling a pattern or matching it took longer than its limit.

    Attributes:
        line: The line that it was matched with; empty where it was compiled.
    """

    def __init__(self, line: str = "") -> None:
        self.line = line
        super().__init__(line)


class _TimeIsUpError(Exception):
    """Raised by the handler of the timer's signal."""


@contextmanager
def _limited(limit_s: float) -> Iterator[None]:
    """End the block with ``_TimeIsUpError`` once it took *limit_s* of CPU time.

    Raises:
        RuntimeError: This is not the main thread, where alone Python handles signals.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("patterns of users are matched on the main thread only")
    before = signal.signal(signal.SIGVTALRM, _time_is_up)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    finally:
        signal.signal(signal.SIGVTALRM, before)


def _time_is_up(number: int, frame: FrameType | None) -> NoReturn:
    del number, frame
    raise _TimeIsUpError


def compiled(pattern: str) -> re.Pattern[str]:
    """Return *pattern*, compiled.

    Raises:
        SlowPatternError: That takes too long: a range of all characters that ignores
            case takes 8 ms, and a pattern has room for a hundred of them.
        re.error, Warning, RecursionError, OverflowError: It is no pattern.
    """
    try:
        with _limited(LIMIT_S):
            return re.compile(pattern)
    except _TimeIsUpError:
        raise SlowPatternError from None


class LimitedPattern:
    """A pattern, the lines that it was matched with, and the time which that took.

    Attributes:
        pattern: As its user wrote it.
        spent_s: CPU time so far.
    """

    def __init__(self, pattern: str) -> None:
        """Compile *pattern*.

        Raises:
            SlowPatternError: That takes too long.
        """
        self.pattern = pattern
        self.spent_s = 0.0
        self._compiled = compiled(pattern)
        self._line = ""

    @contextmanager
    def limited(self, limit_s: float = LIMIT_S) -> Iterator[None]:
        """Let all calls of ``groups`` in the block together take *limit_s*.

        Raises:
            SlowPatternError: They took longer; names the line at which time was up.
            RuntimeError: This is not the main thread.
        """
        began_s = time.process_time()
        try:
            with _limited(limit_s):
                yield
        except _TimeIsUpError:
            raise SlowPatternError(self._line) from None
        finally:
            self.spent_s += time.process_time() - began_s

    def groups(self, line: str) -> list[dict[str, str | None]]:
        """Return the named groups of each match in *line*."""
        self._line = line[:LONGEST_LINE]
        return [match.groupdict() for match in self._compiled.finditer(self._line)]


def advice(error: SlowPatternError, pattern: str) -> str:
    """Return what is wrong with *pattern*, and what to do, for people."""
    shown = f"{pattern[:_SHOWN]}..." if len(pattern) > _SHOWN else pattern
    if not error.line:
        return f"the pattern {shown!r} takes too long to compile; simplify it"
    line = error.line
    where = f"{line[:_SHOWN]}..." if len(line) > _SHOWN else line
    return (
        f"the pattern {shown!r} takes too long on the line {where!r}; simplify it: "
        f"repeat no group that repeats something itself, and name what stands between "
        f"two fields"
    )


# ----------------------------------------------------------------------
# Trying a pattern before it is used

_TRY_S = 0.2
_ALL_TRIES_S = 1.0
_MOST_CHARACTERS = 24
_WORD = re.compile(r"\w+")
_USUAL = "0a .-\t"


def slow_line(pattern: str) -> SlowPatternError | None:
    """Return the error of a line on which *pattern* takes too long; None if none is.

    The lines repeat characters and words of the pattern itself, in ones and in twos.
    They are no proof: what they miss is found when the program's own lines are read.
    """
    try:
        tried = LimitedPattern(pattern)
        for line in _lines_for(pattern):
            with tried.limited(_TRY_S):
                tried.groups(line)
            if tried.spent_s > _ALL_TRIES_S:
                break
    except SlowPatternError as error:
        return error
    return None


def _lines_for(pattern: str) -> Iterator[str]:
    letters = filter(str.isalnum, _WORD.sub(lambda word: word[0][-1], pattern))
    characters = "".join(dict.fromkeys([*letters, *_USUAL]))[:_MOST_CHARACTERS]
    words = list(dict.fromkeys([*characters, *_WORD.findall(pattern)]))
    for first in words:
        yield _repeated(first)
    for first in words[:_MOST_CHARACTERS]:
        for second in words[:_MOST_CHARACTERS]:
            if first != second:
                yield _repeated(first + second)


def _repeated(text: str) -> str:
    """Return *text* over and over, with an end that hardly any pattern matches."""
    return (text * LONGEST_LINE)[: LONGEST_LINE - 1] + "\0"
