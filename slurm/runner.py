"""Runs Slurm's programs in a clean environment, bounded in time and size.

A command's answer comes back whole or not at all.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Protocol

from slurm.errors import (
    SlurmMissingError,
    SlurmRefusedError,
    SlurmUnavailableError,
    UnreadableOutputError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


KEPT = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"})
"""Slurm's variables that say how to reach it; all its others change its answers."""

FIXED = (("LC_ALL", "C"), ("TZ", "UTC"))
"""Parsers rely on English words and times in UTC."""

_SCRUBBED_PREFIXES = (
    "SLURM_",  # SLURM_TIME_FORMAT, SLURM_CLUSTERS, a surrounding job's SLURM_JOB_ID
    "SLURMD_",
    "SQUEUE_",  # SQUEUE_FORMAT broke a published parser (Parsl #2293)
    "SINFO_",
    "SCONTROL_",
    "SBATCH_",
    "SALLOC_",
    "SRUN_",
    "SCANCEL_",
    "SACCT_",
    "SDIAG_",
    "PMI_",  # an MPI started below must not believe in an outer one
    "PMIX_",
)


def scrubbed(environ: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of *environ* without the variables that change Slurm's answers.

    Variables that begin with one of Slurm's prefixes go, except those that say how
    to reach the controller; locale and time zone are fixed.
    """
    kept = {
        name: value
        for name, value in environ.items()
        if name in KEPT or not name.startswith(_SCRUBBED_PREFIXES)
    }
    return kept | dict(FIXED)


class Runner(Protocol):
    """Runs one command to its end.

    Contract, checked for every implementation by one suite: returns standard
    output in full, or raises; never returns part of an answer.
    """

    def run(self, argv: Sequence[str], *, timeout_s: float) -> str:
        """Run *argv* without a shell and return its standard output.

        Bytes that are not UTF-8 come as surrogate escapes, so that nothing is
        lost and columns can be counted in bytes.

        Raises:
            SlurmUnavailableError: No answer within *timeout_s*, no such command,
                or the command could not reach Slurm.
            SlurmRefusedError: The command exited with a status other than 0.
            UnreadableOutputError: The answer is larger than any honest one.
        """
        ...


MAX_OUTPUT_BYTES = 256 * 1024 * 1024
"""A queue of 20,000 jobs is 20 MB of text."""

_CHUNK_BYTES = 1 << 20
_SHOWN_BYTES = 2_000
_UNREACHABLE = (
    "Unable to contact slurm controller",
    "Unable to establish control",
    "Socket timed out",
    "Connection refused",
    "Connection timed out",
    "Communication connection failure",
    "Zero Bytes were transmitted",
    "Transport endpoint",
    "temporarily unable",
    "Rate limit exceeded",
)

_UNCONFIGURED = ("could not establish a configuration source", "s_p_parse_file: ")
"""Messages of programs that find no slurm.conf. Where SLURM_CONF names a missing one,
they wait for it for up to a minute, as it may be being replaced."""

_NO_CONFIGURATION = (
    "Slurm was not asked. Try again later; if that does not help, its configuration "
    "cannot be read here: correct SLURM_CONF, or work on a node where `sinfo` answers."
)


class SubprocessRunner:
    """The ``Runner`` that starts a process for each command."""

    def __init__(
        self, environ: Mapping[str, str], *, max_output_bytes: int = MAX_OUTPUT_BYTES
    ) -> None:
        """Take the whole environment of commands (``scrubbed``), and a limit."""
        self._environ = dict(environ)
        self._max_output_bytes = max_output_bytes

    def run(self, argv: Sequence[str], *, timeout_s: float) -> str:
        """Run *argv* as ``Runner.run`` says.

        The command is the leader of a process group, which is killed whole when
        the time is up.
        """
        deadline_s = time.monotonic() + timeout_s
        process = self._start(argv)
        output, complaint = bytearray(), bytearray()
        try:
            self._read(process, argv[0], deadline_s, into=(output, complaint))
            status = process.wait(max(0.0, deadline_s - time.monotonic()))
        except (TimeoutError, subprocess.TimeoutExpired) as error:
            raise _slow(argv[0], timeout_s, complaint) from error
        finally:
            _end(process)
        if status != 0:
            raise _failed(argv[0], status, complaint)
        return output.decode("utf-8", "surrogateescape")

    def _start(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(  # noqa: S603 -- a list, never a shell
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environ,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            is_missing = isinstance(error, FileNotFoundError)
            kind = SlurmMissingError if is_missing else SlurmUnavailableError
            raise kind(
                f"`{argv[0]}` cannot be started: {error}. Nothing was done. "
                f"Are Slurm's programs on the PATH?"
            ) from error

    def _read(
        self,
        process: subprocess.Popen[bytes],
        command: str,
        deadline_s: float,
        *,
        into: tuple[bytearray, bytearray],
    ) -> None:
        """Read all of both outputs; raise TimeoutError when the time is up."""
        output, complaint = into
        with selectors.DefaultSelector() as selector:
            _watch(selector, process.stdout, output)
            _watch(selector, process.stderr, complaint)
            while selector.get_map():
                ready = selector.select(max(0.0, deadline_s - time.monotonic()))
                if not ready or time.monotonic() > deadline_s:
                    raise TimeoutError
                for key, _ in ready:
                    chunk = os.read(key.fd, _CHUNK_BYTES)
                    key.data.extend(chunk)
                    if not chunk:
                        selector.unregister(key.fileobj)
                if max(map(len, into)) > self._max_output_bytes:
                    why = f"the answer is longer than {self._max_output_bytes} bytes"
                    raise UnreadableOutputError(command, 0, "", why)


def _watch(
    selector: selectors.BaseSelector, stream: IO[bytes] | None, into: bytearray
) -> None:
    if stream is not None:
        selector.register(stream, selectors.EVENT_READ, into)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the whole group of a command that was given up.

    Its leader was not waited for before, so its number is still its own, even where
    it has ended and left a child that keeps the pipes open.
    """
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _slow(
    command: str, timeout_s: float, complaint: bytearray
) -> SlurmUnavailableError:
    """Return the error for a command that took too long."""
    said = _shown(complaint)
    late = f"`{command}` did not answer within {timeout_s:g} s and was killed"
    message = f"{late}: {said}" if said else late
    if _says(said, _UNCONFIGURED):
        return SlurmUnavailableError(f"{message}. {_NO_CONFIGURATION}")
    return SlurmUnavailableError(
        f"{message}; whether it had an effect is unknown. Try again later."
    )


def _failed(
    command: str, status: int, complaint: bytearray
) -> SlurmRefusedError | SlurmUnavailableError:
    """Return the error for a command that was refused, or that could not ask."""
    said = _shown(complaint)
    how = f"was killed by signal {-status}" if status < 0 else f"exited with {status}"
    message = f"`{command}` {how}: {said or 'it said nothing'}"
    if _says(said, _UNCONFIGURED):
        return SlurmUnavailableError(f"{message}. {_NO_CONFIGURATION}")
    if status < 0 or _says(said, _UNREACHABLE):
        return SlurmUnavailableError(f"{message}. Try again later.")
    everything = complaint.decode("utf-8", "replace")
    return SlurmRefusedError(f"{message}. Nothing else was tried.", said=everything)


def _shown(complaint: bytearray) -> str:
    return complaint[:_SHOWN_BYTES].decode("utf-8", "replace").strip()


def _says(said: str, words: Iterable[str]) -> bool:
    lower = said.lower()
    return any(word.lower() in lower for word in words)
