"""The one place where the elastic runtime meets the machine's clocks."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """The two clocks that the runtime reads, and how it lets time pass.

    Attributes:
        unix_s: Seconds since 1970, for what people and other machines read.
        elapsed_s: Seconds that never run backwards, for intervals.
        sleep: Does nothing for so many seconds.
    """

    # A training program lives in real time: replay never runs this package.
    unix_s: Callable[[], float] = time.time  # noqa: TID251
    elapsed_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
