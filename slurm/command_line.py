"""Slurm's own commands as a back end: squeue, scontrol, sdiag, sbatch and scancel."""

from __future__ import annotations

import os
import pwd
import selectors
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Generic, Protocol, TypeVar

from slurm.batch import (
    only_gone,
    parse_sbatch,
    sbatch_argv,
    scancel_argv,
    scancel_waiting_argv,
)
from slurm.config import (
    config_argv,
    parse_config,
    parse_topology,
    parse_version,
    topology_argv,
    version_argv,
)
from slurm.json import (
    parse_jobs_json,
    parse_nodes_json,
    parse_partitions_json,
    parse_reservations_json,
)
from slurm.records import (
    RequestsSpentError,
    SlurmMissingError,
    SlurmRefusedError,
    SlurmUnavailableError,
    UnreadableOutputError,
)
from slurm.snapshot import Snapshot
from slurm.text import (
    nodes_argv,
    parse_nodes,
    parse_partitions,
    parse_reservations,
    parse_sdiag,
    parse_squeue,
    partitions_argv,
    reservations_argv,
    sdiag_argv,
    squeue_argv,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from slurm.batch import LeaseRequest, Submitted
    from slurm.config import ClusterConfig, Leaf, Release
    from slurm.records import JobKey, JobRecord, Node, Partition, Reservation, Sdiag


# ----------------------------------------------------------------------
# Our own account, as Slurm knows it.


def user_name() -> str:
    """Return our user name; our number where this host knows no name for it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


# ----------------------------------------------------------------------
# The two ways in which Slurm's commands tell nodes, jobs and the rest.

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """A command, and how to read its answer."""

    argv: tuple[str, ...]
    parse: Callable[[str], tuple[T, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The four questions of a look."""

    nodes: Question[Node]
    jobs: Question[JobRecord]
    reservations: Question[Reservation]
    partitions: Question[Partition]


TEXT = Dialect(
    nodes=Question(tuple(nodes_argv()), parse_nodes),
    jobs=Question(tuple(squeue_argv()), parse_squeue),
    reservations=Question(tuple(reservations_argv()), parse_reservations),
    partitions=Question(tuple(partitions_argv()), parse_partitions),
)
"""Quick, small, and tells planned nodes on every release."""

JSON = Dialect(
    nodes=Question(("scontrol", "--all", "--json", "show", "nodes"), parse_nodes_json),
    jobs=Question(("squeue", "--all", "--local", "--json"), parse_jobs_json),
    reservations=Question(
        ("scontrol", "--all", "--json", "show", "reservations"),
        parse_reservations_json,
    ),
    partitions=Question(
        ("scontrol", "--all", "--json", "show", "partitions"), parse_partitions_json
    ),
)
"""Large and slow; from 23.02 on, before which scontrol knows no ``--json``."""

# ----------------------------------------------------------------------
# Slurm's own commands as a back end: squeue, scontrol, sdiag, sbatch and scancel.

SNAPSHOT_REQUESTS = 6
"""Commands of one look."""

_PER_CANCEL = 100  # a command line has room for more, a site's patience may not


class CommandLine:
    """A ``slurm.backend.SlurmBackend`` that runs Slurm's programs."""

    def __init__(
        self,
        runner: Runner,
        *,
        user: str,
        timeout_s: float = 30.0,
        max_requests: int | None = None,
        dialect: Dialect = TEXT,
    ) -> None:
        """Take the *runner* that runs commands, in a scrubbed environment.

        Args:
            runner: Runs one command to its end.
            user: Our own user name, which cancelling by name is held to.
            timeout_s: How long each command may take.
            max_requests: Commands after which no more are sent, None for no cap.
            dialect: How a look is asked for.
        """
        self._runner = runner
        self._user = user
        self._timeout_s = timeout_s
        self._max_requests = max_requests
        self._dialect = dialect
        self._requests = 0

    @property
    def name(self) -> str:
        """What to call it in messages."""
        return "command line"

    @property
    def requests(self) -> int:
        """Commands run so far, those that failed included."""
        return self._requests

    def release(self) -> Release:
        """Return the release of the installed programs."""
        return parse_version(self._ask(version_argv()))

    def config(self) -> ClusterConfig:
        """Return how the cluster is set up."""
        return parse_config(self._ask(config_argv()))

    def topology(self) -> tuple[Leaf, ...]:
        """Return the leaf switches, or blocks, that nodes are below."""
        return parse_topology(self._ask(topology_argv()))

    def snapshot(self) -> Snapshot:
        """Return one look, in six commands.

        Nodes come before jobs: one that starts in between is then seen on its node.
        """
        before = self._statistics()
        return Snapshot(
            before=before,
            nodes=self._put(self._dialect.nodes),
            jobs=self.jobs(),
            reservations=self._put(self._dialect.reservations),
            partitions=self._put(self._dialect.partitions),
            after=self._statistics(),
        )

    def jobs(self) -> tuple[JobRecord, ...]:
        """Return every job that waits or holds nodes."""
        return self._put(self._dialect.jobs)

    def find_by_name(self, *names: str) -> tuple[JobRecord, ...]:
        """Return every job of *names* that Slurm remembers, each task by itself."""
        if not names:
            raise ValueError("no name to look for; squeue would show everybody's jobs")
        found = parse_squeue(self._ask(squeue_argv(names=names, all_states=True)))
        return tuple(job for job in found if job.name in names)

    def submit(self, request: LeaseRequest) -> Submitted:
        """Submit one job, or one array of jobs."""
        return parse_sbatch(self._ask(sbatch_argv(request)))

    def cancel(self, jobs: Sequence[JobKey]) -> None:
        """End *jobs*, one command for each hundred."""
        self._scancel(jobs)

    def cancel_waiting(self, name: str) -> None:
        """End those of our jobs named *name* that still wait."""
        self._ask(scancel_waiting_argv(user=self._user, name=name))

    def signal(self, jobs: Sequence[JobKey], signal: str) -> None:
        """Send *signal* to the steps of *jobs*."""
        if not signal:
            raise ValueError("no signal named: scancel would end the jobs")
        self._scancel(jobs, signal)

    def _scancel(self, jobs: Sequence[JobKey], signal: str = "") -> None:
        ids = [job.display_id for job in jobs]
        scancel_argv(ids, signal=signal)  # refuses before any was sent
        for first in range(0, len(ids), _PER_CANCEL):
            some = ids[first : first + _PER_CANCEL]
            try:
                self._ask(scancel_argv(some, signal=signal))
            except SlurmRefusedError as error:
                if not only_gone(error.said):
                    raise

    def _statistics(self) -> Sdiag:
        return parse_sdiag(self._ask(sdiag_argv()))

    def _put(self, question: Question[T]) -> tuple[T, ...]:
        return question.parse(self._ask(question.argv))

    def _ask(self, argv: Sequence[str]) -> str:
        if self._max_requests is not None and self._requests >= self._max_requests:
            raise RequestsSpentError(
                f"`{argv[0]}` was not run: {self._requests} commands were, and no "
                f"more are allowed at a time. It is tried again next time."
            )
        self._requests += 1
        return self._runner.run(argv, timeout_s=self._timeout_s)


# ----------------------------------------------------------------------
# The environment that every Slurm command gets, whatever the user's own says.

KEPT = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"})
"""Slurm's variables that say how to reach it; all others change what it answers."""

FIXED = (("LC_ALL", "C"), ("TZ", "UTC"))
"""What parsers rely on: English words, and times in UTC."""

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
    """Return a copy of *environ* without what would change Slurm's answers.

    Variables that begin with one of Slurm's prefixes go, except those that say
    how to reach the controller; locale and time zone are fixed.
    """
    kept = {
        name: value
        for name, value in environ.items()
        if name in KEPT or not name.startswith(_SCRUBBED_PREFIXES)
    }
    return kept | dict(FIXED)


# ----------------------------------------------------------------------
# How commands are run: the protocol that every back end keeps.


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


# ----------------------------------------------------------------------
# Running commands for real: bounded in time and in size, whole or not at all.

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
"""What programs say that find no slurm.conf; where SLURM_CONF names one, for up to a
minute, as it may be being replaced."""

_NO_CONFIGURATION = (
    "Slurm was not asked. Try again later; if that does not help, its configuration "
    "cannot be read here: correct SLURM_CONF, or work on a node where `sinfo` answers."
)


class SubprocessRunner:
    """Runs commands as processes of their own; a ``slurm.runner.Runner``."""

    def __init__(
        self, environ: Mapping[str, str], *, max_output_bytes: int = MAX_OUTPUT_BYTES
    ) -> None:
        """Take the environment that commands get (``slurm.environment.scrubbed``).

        Args:
            environ: All of it; nothing is inherited.
            max_output_bytes: A longer answer is refused.
        """
        self._environ = dict(environ)
        self._max_output_bytes = max_output_bytes

    def run(self, argv: Sequence[str], *, timeout_s: float) -> str:
        """Run *argv* without a shell and return its standard output.

        The command is the leader of a process group, which is killed whole when
        the time is up.

        Raises:
            SlurmUnavailableError: No answer within *timeout_s*, no such command,
                or the command could not reach Slurm.
            SlurmRefusedError: The command exited with a status other than 0.
            UnreadableOutputError: The answer is larger than any honest one.
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
    """Leave nothing behind: kill the whole group of a command that was given up.

    Its leader is not waited for before, so that its number is still its own, even
    where it has ended and left a child that keeps the pipes open.
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
    what = f"`{command}` did not answer within {timeout_s:g} s and was killed"
    message = f"{what}: {said}" if said else what
    if _says(said, _UNCONFIGURED):
        return SlurmUnavailableError(f"{message}. {_NO_CONFIGURATION}")
    return SlurmUnavailableError(
        f"{message}; whether it had an effect is unknown. Try again later."
    )


def _failed(
    command: str, status: int, complaint: bytearray
) -> SlurmRefusedError | SlurmUnavailableError:
    """Return the error for a command that said no, or that could not ask."""
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
    return any(one.lower() in lower for one in words)
