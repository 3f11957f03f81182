"""The one-step run: a job of one minute that proves that leases can train.

``run_one_step`` submits it, waits for its answer and judges it; nothing in the answer
is trusted. ``main`` is what the job runs on its compute node, called as ``python -m
freetrain.doctor FOLDER`` as a step of the job: it starts a small world as an agent does
and writes what it saw into the folder. Whatever goes wrong there is part of the answer;
only a folder that cannot be written is an error.
"""

from __future__ import annotations

import errno
import fcntl
import importlib.metadata
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.broker.lease import LeaseKey
from freetrain.config.job import read_job
from freetrain.doctor.findings import CheckVerdict, bad, ok, skipped, warn
from freetrain.elastic.files import replaced
from freetrain.errors import FreeTrainError
from freetrain.launch.base import CannotLaunchError
from freetrain.launch.local import LocalLauncher, this_node
from freetrain.state.files import AssignedLease, AssignmentFile, StateDir
from freetrain.text import MINUTE_S, one_line
from slurm.batch import LeaseRequest, gres_argument
from slurm.errors import SlurmError
from slurm.holes import find_holes
from slurm.records import Requirement

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from freetrain.config.site import Site
    from freetrain.doctor.findings import Finding, Subject
    from freetrain.launch.local import Session
    from slurm.holes import Snapshot
    from slurm.records import ClusterConfig, JobRecord, Partition


@dataclass(frozen=True, slots=True)
class SlurmAnswers:
    """Slurm's settings, its queue and nodes, and the partition that leases go to."""

    config: ClusterConfig
    snapshot: Snapshot
    partition: Partition | None


LIMIT_MIN = 1


def lease_request(
    site: Site, partition: str, *, name: str, script: str
) -> LeaseRequest:
    """Return the request for one node of *partition* for a minute.

    The rest is as the leases of *site*; *script* is an absolute path.
    """
    lease = site.lease
    return LeaseRequest(
        name=name,
        comment="one-step run of freetrain doctor",
        partition=partition,
        limit_min=LIMIT_MIN,
        nice=lease.nice,
        script=script,
        exclusive=lease.exclusive,
        memory_mib=lease.memory_mib or 0,
        cpus=lease.cpus or 0,
        qos=lease.qos,
        account=lease.account,
        features="&".join(lease.features),
        gres=",".join(gres_argument(gres) for gres in lease.gres),
    )


def requirement(site: Site, partition: str) -> Requirement:
    """Return the requirement of such a job, to find holes by."""
    lease = site.lease
    return Requirement(
        partition=partition,
        features=frozenset(lease.features),
        gres=lease.gres,
        memory_mib=lease.memory_mib or 0,
        cpus=lease.cpus or 0,
    )


NAME = "one-step run"
_LOOKS_S = (10.0, 20.0, 30.0, 60.0)
"""How long to wait for the answer before Slurm is asked for the job's state."""

_PATIENCE_S = sum(_LOOKS_S)


def run_one_step(subject: Subject, seen: SlurmAnswers | None) -> Iterator[Finding]:
    """Run the job if that is wanted and a node is idle; yield its findings."""
    why = _why_not(subject, seen)
    if why or seen is None or seen.partition is None:
        yield skipped(NAME, why or "Slurm was not seen")
        return
    name = f"freetrain-doctor-{subject.new_uuid()}"
    folder = subject.site.state_directory / "doctor" / name.rpartition("doctor-")[2]
    with _cleaned(subject, name, folder) as leftovers:
        yield from _run(subject, seen.partition, name=name, folder=folder)
    yield from leftovers


def _why_not(subject: Subject, seen: SlurmAnswers | None) -> str:
    if not subject.may_run:
        return "not asked for (--no-run); MPI and the launch agent are not proven"
    if seen is None or seen.partition is None:
        return "there is no partition to run in"
    holes = find_holes(
        seen.snapshot,
        requirement(subject.site, seen.partition.name),
        is_ours=lambda _: False,
        margin_s=seen.config.kill_wait_s,
        window_s=seen.config.bf_window_s,
    )
    needed_s = seen.snapshot.time_s + LIMIT_MIN * MINUTE_S
    if not any(hole.end_s is not None and hole.end_s >= needed_s for hole in holes):
        return f"no node of {seen.partition.name} is idle for a minute; try later"
    return ""


def _run(
    subject: Subject, partition: Partition, *, name: str, folder: Path
) -> Iterator[Finding]:
    _prepare(subject, folder)
    begun_s = subject.now_s()
    request = replace(
        lease_request(
            subject.site, partition.name, name=name, script=str(folder / "script")
        ),
        output=str(folder / "output").replace("\\", "\\\\").replace("%", "%%"),
        # Gone by itself even if we are killed meanwhile.
        deadline_s=begun_s + _PATIENCE_S + LIMIT_MIN * MINUTE_S,
    )
    subject.backend.submit(request)
    jobs: tuple[JobRecord, ...] = ()
    for patience_s in _LOOKS_S:
        with locked(folder / LOCKED):  # while the job tries the same
            answer = _wait(subject, folder / RESULT, patience_s)
        if answer is not None:
            ended_s = subject.now_s()
            yield from look_at_answer(answer, begun_s=begun_s, ended_s=ended_s)
            return
        jobs = subject.backend.find_by_name(name)
        if jobs and all(job.has_ended for job in jobs):
            break
    yield _no_answer(jobs, said=_tail(folder / "output"))


_PRIVATE = 0o700
_PASSED_ON = ("PATH", "HOME", "LD_LIBRARY_PATH")
_TUNING = ("OMPI_", "PRTE_", "PMIX_", "UCX_", "FI_", "I_MPI_")
_JOB = """\
name = "{trainer}"
command = {command}
elastic = false
[nodes]
min = 1
max = 1
[launch]
processes_per_node = 2
"""

TRAINER = "doctor"
RESULT = "result.json"


def _prepare(subject: Subject, folder: Path) -> None:
    """Write the job's script, and a trainer as submitting one does."""
    trainer = StateDir(folder).trainer(TRAINER)
    folder.parent.mkdir(mode=_PRIVATE, exist_ok=True)
    folder.mkdir(mode=_PRIVATE)
    trainer.create()
    words = [str(subject.python), "-P", "-m", "freetrain.doctor", "--rank"]
    text = _JOB.format(trainer=TRAINER, command=json.dumps(words))
    trainer.job.write_text(text, "utf-8")
    given = {k: v for k, v in subject.environ.items() if _is_passed_on(k)}
    trainer.environment.write_text(json.dumps(given), "utf-8")
    script = folder / "script"
    script.write_text(_script(subject, folder), "utf-8", "surrogateescape")
    script.chmod(_PRIVATE)


def _is_passed_on(name: str) -> bool:
    return name in _PASSED_ON or name.startswith(_TUNING)


def _script(subject: Subject, folder: Path) -> str:
    """Return the batch script; like a lease's, it runs its program as a step."""
    step = "srun --export=ALL --nodes=1 --ntasks=1 --mpi=none"
    program = f"{shlex.quote(str(subject.python))} -P -m freetrain.doctor"
    values = {"PATH": os.defpath, "HOME": "/"} | dict(subject.environ)
    exports = "".join(
        f"export {name}={shlex.quote(values[name])}\n"
        for name in _PASSED_ON
        if name in values
    )
    return f"#!/bin/sh\n{exports}exec {step} {program} {shlex.quote(str(folder))}\n"


_BEAT_S = 0.2


def _wait(subject: Subject, path: Path, patience_s: float) -> dict[str, object] | None:
    """Return the content of *path* once it is there; no Slurm command is run."""
    deadline_s = subject.clock() + patience_s
    while True:
        try:
            found = json.loads(path.read_bytes())
        except FileNotFoundError:
            found = None
        if isinstance(found, dict):
            return found
        if subject.clock() >= deadline_s:
            return None
        os.scandir(path.parent).close()  # NFS looks again for names only then
        subject.sleep(_BEAT_S)


_SHOWN_CHARACTERS = 600


def _no_answer(jobs: Sequence[JobRecord], *, said: str) -> Finding:
    """Return why there is no answer, from the job's state and its output."""
    if any(job.is_pending for job in jobs):
        reason = next((job.reason for job in jobs if job.reason), "no reason given")
        return skipped(NAME, f"the job did not start in {_PATIENCE_S:g} s: {reason}")
    states = ", ".join(sorted(state for job in jobs for state in job.states))
    return bad(
        NAME,
        f"the job ({states or 'gone'}) wrote no answer; it said: {said or 'nothing'}",
        "Compute nodes must see the state directory and FreeTrain's Python under the "
        "same paths.",
    )


def _tail(path: Path) -> str:
    try:
        return " ".join(path.read_text("utf-8", "replace").split())[-_SHOWN_CHARACTERS:]
    except OSError:
        return ""


@contextmanager
def _cleaned(subject: Subject, name: str, folder: Path) -> Iterator[list[Finding]]:
    """Remove job and folder at the end; yields a warning for a job that may be left."""
    leftovers: list[Finding] = []
    try:
        yield leftovers
    finally:
        try:
            _end(subject, name)
        except SlurmError as error:
            advice = f"Run `scancel --name={name}`; by itself it ends in minutes."
            leftovers.append(warn(NAME, f"its job may be left: {error}", advice))
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # another doctor may be at work
            folder.parent.rmdir()


def _end(subject: Subject, name: str) -> None:
    jobs = subject.backend.find_by_name(name)
    live = [job.key for job in jobs if not job.has_ended]
    if live:
        subject.backend.cancel(live)


_TRIES = (1, 2)
"""Generations of the world: a launch that fails once may be the node's chance fault."""
_WORLD_S = 25.0
_AGENT_S = 15.0
_SHOWN = 2_000
"""Characters of what mpirun printed that the answer keeps, from its end."""


def main() -> None:
    """Start the world and write the answer, on the compute node."""
    folder = Path(sys.argv[1])
    started_s = time.time()  # noqa: TID251 -- the clock of this node is what is asked
    found = {
        "started_s": started_s,
        "host": socket.gethostname(),
        "node": os.environ.get("SLURMD_NODENAME", ""),
        "python": ".".join(map(str, sys.version_info[:3])),
        "freetrain": importlib.metadata.version("freetrain"),
        "links": look_at_links(folder).verdict,
        "locks_granted": granted_locks(folder / LOCKED),
        **_launch(folder, os.environ),
    }
    found["ended_s"] = time.time()  # noqa: TID251 -- as above
    path = folder / RESULT
    with replaced(path, temporary=path.with_suffix(".new")) as file:
        file.write(json.dumps(found).encode())


def _launch(folder: Path, environ: Mapping[str, str]) -> dict[str, object]:
    """Start a world of two ranks as an agent does, then the launch agent by itself."""
    state = StateDir(folder)
    member = AssignedLease(
        key=LeaseKey(folder.name, 0),
        job_id=int(environ.get("SLURM_JOB_ID", "0")),
        display_id=environ.get("SLURM_JOB_ID", ""),
        node=environ.get("SLURMD_NODENAME", ""),
    )
    tries: list[dict[str, object]] = []
    deadline_s = time.monotonic() + _WORLD_S
    try:
        job = read_job(state.trainer(TRAINER).job)
        launcher = LocalLauncher(state, this_node(environ))
        for generation in _TRIES:
            assigned = AssignmentFile(
                trainer=TRAINER,
                generation=generation,
                members=(member,),
                created_s=0.0,
                author=TRAINER,
                reason="one-step run",
            )
            status = _wait_for_world(launcher.launch(job, assigned), deadline_s)
            log = state.trainer(TRAINER).logs / f"{generation:010d}.log"
            said = log.read_text("utf-8", "replace")[-_SHOWN:]
            tries.append({"status": status, "said": said})
            if status is None or status == 0:
                break
    except (FreeTrainError, CannotLaunchError, OSError) as error:
        return {"world_failed": str(error)}
    return {"world_tries": tries, **_try_agent(state, member)}


def _wait_for_world(session: Session, deadline_s: float) -> int | None:
    """Return the launcher's status; None where it took too long and was killed."""
    while session.poll() is None and time.monotonic() < deadline_s:
        time.sleep(_BEAT_S)
    status = session.poll()
    session.kill()
    return status


def _try_agent(state: StateDir, member: AssignedLease) -> dict[str, object]:
    """Call the launch agent as mpirun would for another node; it starts a step."""
    agent = state.trainer(TRAINER).world(_TRIES[0]) / "agent"
    try:
        done = subprocess.run(  # noqa: S603 -- our own script and fixed words
            [str(agent), member.node, "echo reached-$FREETRAIN_LEASE"],
            capture_output=True,
            check=False,
            timeout=_AGENT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"agent_failed": str(error)}
    said = (done.stdout + done.stderr).decode("utf-8", "replace")
    return {"agent_reached": f"reached-{member.key.uuid}-" in said, "agent_said": said}


LOCKED = "locked"

_LOCKS = {"flock": fcntl.flock, "fcntl": fcntl.lockf}
"""flock(2), and the locks that SQLite uses."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold both kinds of locks on *path*, as far as they can be had."""
    with path.open("a") as file:
        for lock in _LOCKS.values():
            with suppress(OSError):
                lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def granted_locks(path: Path) -> list[str]:
    """Return the kinds of locks that are granted here though another host holds them.

    A kind that the file system does not have is one that it does not hold either.
    """
    granted = []
    for name, lock in _LOCKS.items():
        with path.open("a") as file:
            try:
                lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
                    continue
        granted.append(name)
    return granted


def look_at_links(folder: Path) -> Finding:
    """Find whether link(2) makes a name once: assignments depend on it."""
    source, target = folder / "link-source", folder / "link-target"
    source.touch()
    try:
        os.link(source, target)
    except OSError as error:
        advice = "Name a state_directory on another file system."
        return bad("link(2)", f"refused: {error.strerror}", advice)
    first, second = source.stat(), target.stat()
    if first.st_nlink != _LINKED or first.st_ino != second.st_ino:
        return bad("link(2)", "a link is a copy here", "Use another file system.")
    try:
        os.link(source, target)
    except FileExistsError:
        return ok("link(2)", "a name is made once, and a second time is refused")
    return bad("link(2)", "one name was made twice", "Use another file system.")


_LINKED = 2
"""Names of a file once it is linked."""


RANKS = 2
_SKEW_S = 2.0
_UNSET = "?"
"""What a rank prints whose launcher set no size (``freetrain.doctor.__main__``)."""

_RANK = re.compile(r"doctor-rank set=(\S+) seen=(\S+)")
_RULER = re.compile(r"-{8,}")
"""The lines that Open MPI puts around each of its messages."""


def look_at_answer(
    answer: Mapping[str, object], *, begun_s: float, ended_s: float
) -> Iterator[Finding]:
    """Yield the findings in the *answer* of a compute node.

    *begun_s* is this host's time before the job was submitted, *ended_s* when the
    answer was read.
    """
    node = _text(answer, "node") or _text(answer, "host")
    yield ok("one-step run", f"ran on {node}, {ended_s - begun_s:.1f} s in all")
    yield _look_at_versions(answer, node)
    yield _look_at_state(answer, node)
    yield look_at_locks(answer, node)
    yield _look_at_clock(answer, node, begun_s=begun_s, ended_s=ended_s)
    yield _look_at_world(answer)
    yield _look_at_agent(answer)


def _look_at_versions(answer: Mapping[str, object], node: str) -> Finding:
    name = "versions there"
    here = ".".join(map(str, sys.version_info[:3]))
    ours = importlib.metadata.version("freetrain")
    there = (
        f"FreeTrain {_text(answer, 'freetrain')} on Python {_text(answer, 'python')}"
    )
    if there != f"FreeTrain {ours} on Python {here}":
        advice = f"{node} must run the same: install on a file system that it shares."
        return bad(name, f"{there}; here {ours} on {here}", advice)
    return ok(name, f"{there}, as here")


def _look_at_state(answer: Mapping[str, object], node: str) -> Finding:
    name = "state directory there"
    if _text(answer, "links") != CheckVerdict.OK:
        advice = "Assignments need link(2) on compute nodes: use another file system."
        return bad(name, f"{node} sees it, but link(2) does not work there", advice)
    return ok(name, f"{node} sees it and can write; link(2) works")


def look_at_locks(answer: Mapping[str, object], node: str) -> Finding:
    """Find whether locks of this host were seen on the compute node *node*."""
    name, granted = "locks there", answer.get("locks_granted")
    if not isinstance(granted, list):
        return skipped(name, "the job did not try them")
    if granted:
        kinds = ", ".join(map(str, granted))
        return warn(
            name,
            f"{node} was granted a lock that this host holds ({kinds})",
            "Ticks are kept apart by files in turns/, which need no locks. Run "
            "commands on the host that ticks, or ask for a mount without nolock, "
            "local_lock or localflock.",
        )
    return ok(name, f"a lock of this host is refused on {node}")


def _look_at_clock(
    answer: Mapping[str, object], node: str, *, begun_s: float, ended_s: float
) -> Finding:
    """Compare clocks: the job ran after its submission and before its answer."""
    name = "clock there"
    started, ended = answer.get("started_s"), answer.get("ended_s")
    if not isinstance(started, float) or not isinstance(ended, float):
        return skipped(name, "the job reported no times")
    apart_s = max(begun_s - started, ended - ended_s, 0.0)
    seen = f"{node} is at least {apart_s:.1f} s apart from this host"
    if apart_s > _SKEW_S:
        return warn(name, seen, "Ask for NTP on the nodes; leases end by their clock.")
    return ok(name, f"no difference to {node} was seen")


def _look_at_world(answer: Mapping[str, object]) -> Finding:
    """Find whether mpirun, started as agents start it, made one world of its ranks."""
    name = "MPI there"
    failed = _text(answer, "world_failed")
    if failed:
        return warn(name, failed, "Programs with other launchers need none.")
    *earlier, (status, said) = _tries(answer)
    ranks = _RANK.findall(said)
    if status != 0 or len(ranks) != RANKS:
        advice = "Try the same by hand, with `srun` and `mpirun`, on a node."
        return bad(name, _world_failed(status, said), advice)
    if earlier:
        seen = f"{_world_failed(*earlier[0])}. It worked at the second try"
        return warn(name, seen, "Agents try again, too; look for what fails at times.")
    sizes = {seen for _, seen in ranks}
    if sizes == {"none"}:
        return _look_at_set_sizes({size for size, _ in ranks})
    if sizes != {str(RANKS)}:
        advice = "mpi4py is bound to another MPI than mpirun's; see `mpi4py` above."
        return bad(name, f"each rank saw a world of {', '.join(sizes)}", advice)
    return ok(name, f"mpirun started one world of {RANKS}, and mpi4py sees it so")


def _tries(answer: Mapping[str, object]) -> list[tuple[object, str]]:
    """Return how each try to start the world ended, and what was printed."""
    tries = answer.get("world_tries")
    found: list[tuple[object, str]] = [
        (one.get("status"), _text(one, "said"))
        for one in (tries if isinstance(tries, list) else ())
        if isinstance(one, dict)
    ]
    return found or [(None, "")]


def _world_failed(status: object, said: str) -> str:
    ended = "did not end" if status is None else f"ended with {status}"
    return f"mpirun {ended}: {one_line(_RULER.sub('', said))[-_SHOWN_CHARACTERS:]}"


def _look_at_set_sizes(sizes: set[str]) -> Finding:
    """Find whether mpirun made one world, by the size that it set for each rank."""
    name = "MPI there"
    if sizes == {str(RANKS)}:
        return ok(name, f"mpirun started one world of {RANKS}; no mpi4py to try")
    if _UNSET in sizes:
        return skipped(name, "neither mpirun nor mpi4py said how large the world is")
    seen = f"mpirun set worlds of {', '.join(sorted(sizes))} for its ranks"
    return bad(name, seen, "Use another mpirun: this one starts no world.")


def _look_at_agent(answer: Mapping[str, object]) -> Finding:
    name = "launch agent"
    if "agent_reached" not in answer and "agent_failed" not in answer:
        return skipped(name, "no world was launched, so there was none to try")
    if answer.get("agent_reached") is not True:
        said = _text(answer, "agent_said") or _text(answer, "agent_failed")
        advice = (
            "Worlds cannot span leases. It uses `srun --jobid --overlap`; where that "
            "is forbidden, name another with launch_agent."
        )
        return bad(
            name,
            f"did not reach its node: {one_line(said)[-_SHOWN_CHARACTERS:]}",
            advice,
        )
    return ok(name, "a step was started inside of the job by srun --jobid --overlap")


def _text(answer: Mapping[str, object], key: str) -> str:
    value = answer.get(key)
    return one_line(value) if isinstance(value, str) else ""
