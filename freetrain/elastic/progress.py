"""Progress lines: one JSON object a line, appended by rank 0."""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from freetrain.elastic.errors import ProgramError
from freetrain.elastic.notice import warn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.elastic.checkpoint import Position
    from freetrain.elastic.sampler import Batch
    from freetrain.elastic.setting import Setting

_TAIL_BYTES = 1 << 16
_OURS = frozenset(
    (
        *("t", "step", "samples", "epoch", "generation", "world_size"),
        *("event", "nonfinite", "rewound_from_step"),
    )
)


class ProgressLog:
    """Appends lines to a run's ``progress.jsonl``.

    A line is one ``write`` to a file opened for appending, so that lines of two
    writers never mix on one machine. A disk that is full costs lines, never the
    training.
    """

    def __init__(self, setting: Setting, *, generation: int, world_size: int) -> None:
        self._path = setting.run.progress
        self._common = {"generation": generation, "world_size": world_size}
        self._every_s = setting.progress_every_s
        self._clock = setting.clock
        self._due_s = -math.inf
        self._last_t = -math.inf
        self._warned = False

    def start(self, position: Position) -> None:
        """Write that a generation begins at *position*, and what it rewinds."""
        last = self._last_line()
        self._last_t = float(last.get("t", -math.inf))
        line: dict[str, Any] = {"event": "start"}
        if last.get("step", 0) > position.step:
            line["rewound_from_step"] = last["step"]
        self._append(line, position)

    def step(self, batch: Batch, metrics: Mapping[str, float]) -> None:
        """Write where training is, unless the last line is too young.

        The last step of an epoch is always written: that is where programs
        measure what they report once an epoch.

        Args:
            batch: The batch that was done.
            metrics: The loss and whatever else the program measures.

        Raises:
            ProgramError: A metric has the name of one of the line's own fields.
        """
        if taken := _OURS & metrics.keys():
            raise ProgramError(
                f"the metrics {sorted(taken)} have names that progress lines use "
                f"themselves. The step was not recorded. Give them other names."
            )
        now_s = self._clock.elapsed_s()
        if batch.last_of_epoch or now_s >= self._due_s:
            self._due_s = now_s + self._every_s
            self._append({**_finite(metrics), "epoch": batch.epoch}, batch.after)

    def _append(self, fields: Mapping[str, Any], position: Position) -> None:
        # Machines' clocks differ: a line is never older than the one before it.
        self._last_t = max(self._clock.unix_s(), self._last_t)
        where = asdict(position)
        del where["offset"]
        line = {"t": round(self._last_t, 6), **where, **self._common, **fields}
        text = json.dumps(line, allow_nan=False) + "\n"
        try:
            self._write(text.encode("ascii"))
        except OSError as error:
            self._warn_once(error)

    def _write(self, line: bytes) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        try:
            if _is_torn(descriptor):
                line = b"\n" + line
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def _last_line(self) -> dict[str, Any]:
        """The last whole line; empty where there is none."""
        with suppress(OSError), self._path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            for line in reversed(file.read(_TAIL_BYTES).splitlines()):
                found = _parse(line)
                if found:
                    return found
        return {}

    def _warn_once(self, error: OSError) -> None:
        if not self._warned:
            warn(
                f"progress lines cannot be written to {self._path}: {error}. Training "
                f"goes on, and so do the attempts; the lines in between are lost."
            )
        self._warned = True


def _is_torn(descriptor: int) -> bool:
    """Tell whether a writer was cut off, so that its half line must be ended."""
    size = os.fstat(descriptor).st_size
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"


def _parse(line: bytes) -> dict[str, Any]:
    with suppress(ValueError, RecursionError, OverflowError, TypeError, KeyError):
        found: dict[str, Any] = json.loads(line)
        if math.isfinite(found["t"]) and math.isfinite(found["step"]):
            return found
    return {}


def _finite(metrics: Mapping[str, float]) -> dict[str, Any]:
    """The metrics as JSON knows them: what is not finite is null, and named."""
    values = {name: float(value) for name, value in metrics.items()}
    line: dict[str, Any] = {
        name: value if math.isfinite(value) else None for name, value in values.items()
    }
    odd = {name: str(v) for name, v in values.items() if not math.isfinite(v)}
    return {**line, "nonfinite": odd} if odd else line
