"""A program that ignores every signal that can be ignored, and any request."""

from __future__ import annotations

import signal
import time


def main() -> None:
    """Work, for ever."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main()
