"""The one-step run: a job like a lease, of one minute, that reports back.

It proves what no setting tells: that we may submit, that compute nodes see the state
directory and our Python, that a launcher and the launch agent work there. Whatever
happens, the job and its folder are gone afterwards.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from freetrain.doctor.answer import look_at_answer
from freetrain.doctor.finding import bad, skipped, warn
from freetrain.doctor.lease_request import LIMIT_MIN, lease_request, requirement
from freetrain.doctor.probe import RESULT, TRAINER
from freetrain.exchange.layout import StateDir
from slurm.errors import SlurmError
from slurm.holes import find_holes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from freetrain.doctor.finding import Finding
    from freetrain.doctor.slurm_checks import Seen
    from freetrain.doctor.subject import Subject
    from slurm.records import JobRecord, Partition

NAME = "one-step run"
_LOOKS_S = (10.0, 20.0, 30.0, 60.0)
"""How long to wait for the answer before Slurm is asked what became of the job."""

_PATIENCE_S = sum(_LOOKS_S)
_BEAT_S = 0.2
_MINUTE_S = 60.0
_PRIVATE = 0o700
_SHOWN = 300
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


def run_one_step(subject: Subject, seen: Seen | None) -> Iterator[Finding]:
    """Run the job if that is wanted and a node is idle, and tell what it found."""
    why = _why_not(subject, seen)
    if why or seen is None or seen.partition is None:
        yield skipped(NAME, why or "Slurm was not seen")
        return
    name = f"freetrain-doctor-{subject.new_uuid()}"
    folder = subject.site.state_directory / "doctor" / name.rpartition("doctor-")[2]
    with _cleaned(subject, name, folder) as leftovers:
        yield from _run(subject, seen.partition, name=name, folder=folder)
    yield from leftovers


def _why_not(subject: Subject, seen: Seen | None) -> str:
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
    needed_s = seen.snapshot.time_s + LIMIT_MIN * _MINUTE_S
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
        deadline_s=begun_s + _PATIENCE_S + LIMIT_MIN * _MINUTE_S,
    )
    subject.backend.submit(request)
    jobs: tuple[JobRecord, ...] = ()
    for patience_s in _LOOKS_S:
        answer = _wait(subject, folder / RESULT, patience_s)
        if answer is not None:
            ended_s = subject.now_s()
            yield from look_at_answer(answer, begun_s=begun_s, ended_s=ended_s)
            return
        jobs = subject.backend.find_by_name(name)
        if jobs and all(job.has_ended for job in jobs):
            break
    yield _no_answer(jobs, said=_tail(folder / "output"))


def _no_answer(jobs: Sequence[JobRecord], *, said: str) -> Finding:
    """Return why there is none, from Slurm's last word and the job's."""
    if any(job.is_pending for job in jobs):
        reason = next((job.reason for job in jobs if job.reason), "no reason told")
        return skipped(NAME, f"the job did not start in {_PATIENCE_S:g} s: {reason}")
    states = ", ".join(sorted(state for job in jobs for state in job.states))
    return bad(
        NAME,
        f"the job ({states or 'gone'}) wrote no answer; it said: {said or 'nothing'}",
        "Compute nodes must see the state directory and FreeTrain's Python under the "
        "same paths.",
    )


def _wait(subject: Subject, path: Path, patience_s: float) -> dict[str, object] | None:
    """Return what stands in *path* once it is there; no Slurm command is run."""
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


def _prepare(subject: Subject, folder: Path) -> None:
    """Write the job's script, and a trainer as submitting one does."""
    trainer = StateDir(folder).trainer(TRAINER)
    folder.parent.mkdir(mode=_PRIVATE, exist_ok=True)
    folder.mkdir(mode=_PRIVATE)
    trainer.create()
    words = [str(subject.python), "-P", "-m", "freetrain.doctor.rank"]
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
    program = f"{shlex.quote(str(subject.python))} -P -m freetrain.doctor.probe"
    path = subject.environ.get("PATH", os.defpath)
    home = subject.environ.get("HOME", "/")
    return (
        "#!/bin/sh\n"
        f"export PATH={shlex.quote(path)}\n"
        f"export HOME={shlex.quote(home)}\n"
        f"exec {step} {program} {shlex.quote(str(folder))}\n"
    )


@contextmanager
def _cleaned(subject: Subject, name: str, folder: Path) -> Iterator[list[Finding]]:
    """Leave neither job nor folder behind; yields what could not be removed."""
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


def _tail(path: Path) -> str:
    try:
        return " ".join(path.read_text("utf-8", "replace").split())[-_SHOWN:]
    except OSError:
        return ""
