"""A launch of a training program, as its launcher announced it in variables.

docs/reference/run-directory.md has them; a program must do with any of them missing.
Agents import this module, so it needs no NumPy.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.elastic.errors import LaunchError

if TYPE_CHECKING:
    from collections.abc import Mapping

RUN_DIR = "FREETRAIN_RUN_DIR"
GENERATION = "FREETRAIN_GENERATION"
AFTER = "FREETRAIN_AFTER"
WORLD_SIZE = "FREETRAIN_WORLD_SIZE"
STOP_SIGNALS = "FREETRAIN_STOP_SIGNALS"
COMMIT_EVERY_S = "FREETRAIN_COMMIT_EVERY_S"
PROGRESS_EVERY_S = "FREETRAIN_PROGRESS_EVERY_S"
SPARE = "FREETRAIN_SPARE"
"""Set for a spare, and not for the ranks that it becomes."""

# NCCL and several schedulers use USR1 themselves (submitit issue 1701); KILL and
# STOP cannot be caught.
_REFUSED_SIGNALS = frozenset({signal.SIGUSR1, signal.SIGKILL, signal.SIGSTOP})
_DEFAULT_SIGNALS = (signal.SIGTERM, signal.SIGUSR2)
_LARGEST_GENERATION = 10**10 - 1


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a program, as its launcher announced it.

    Attributes:
        run_dir: The folder of the run; None where the launcher names none.
        generation: The fragment's number, from 1 on; None where the program is to
            take the next one by itself.
        after: The earlier generation whose end is waited for; None for none.
        world_size: How many ranks the launcher started; None where it says nothing.
        stop_signals: The signals that ask for a stop.
        commit_every_s: Time between two commits; None leaves it to the program.
        progress_every_s: Least time between two progress lines; None likewise.
    """

    run_dir: Path | None = None
    generation: int | None = None
    after: int | None = None
    world_size: int | None = None
    stop_signals: tuple[signal.Signals, ...] = _DEFAULT_SIGNALS
    commit_every_s: float | None = None
    progress_every_s: float | None = None


def read_launch(environment: Mapping[str, str]) -> Launch:
    """Read the launcher's variables.

    Raises:
        LaunchError: A variable is not what docs/reference/run-directory.md says.
    """
    folder = environment.get(RUN_DIR)
    generation, after = _count(environment, GENERATION), _count(environment, AFTER)
    if after is not None and after >= (generation or 0):
        expected = f"a generation below {GENERATION}"
        raise _wrong(AFTER, str(after), expected)
    return Launch(
        run_dir=Path(folder) if folder else None,
        generation=generation,
        after=after,
        world_size=_count(environment, WORLD_SIZE),
        stop_signals=_signals(environment),
        commit_every_s=_seconds(environment, COMMIT_EVERY_S),
        progress_every_s=_seconds(environment, PROGRESS_EVERY_S),
    )


def _count(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name)
    if not text:
        return None
    if re.fullmatch(r"[0-9]{1,10}", text) and 1 <= int(text) <= _LARGEST_GENERATION:
        return int(text)
    raise _wrong(name, text, "a whole number from 1 on")


def _seconds(environment: Mapping[str, str], name: str) -> float | None:
    text = environment.get(name)
    if not text:
        return None
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
        return float(text)
    raise _wrong(name, text, "seconds, 0 or more, such as 60 or 0.5")


def _signals(environment: Mapping[str, str]) -> tuple[signal.Signals, ...]:
    text = environment.get(STOP_SIGNALS)
    if not text:
        return _DEFAULT_SIGNALS
    return tuple(_signal(name) for name in text.split(","))


def _signal(text: str) -> signal.Signals:
    name = text.strip().upper().removeprefix("SIG")
    try:
        found = signal.Signals[f"SIG{name}"]
    except KeyError:
        raise _wrong(STOP_SIGNALS, text, "names such as TERM,USR2") from None
    if found in _REFUSED_SIGNALS:
        raise _wrong(STOP_SIGNALS, text, "no USR1 (NCCL uses it), KILL or STOP")
    return found


def _wrong(name: str, text: str, expected: str) -> LaunchError:
    return LaunchError(
        f"the variable {name} is {text[:80]!r}, and should be {expected}. Nothing "
        f"was trained. Correct it in the launcher, or unset it to train alone."
    )
