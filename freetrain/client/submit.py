"""Submitting a trainer: read the job file, check it, decide how it begins, keep it.

``submit_file`` is the command. It refuses mistakes (``kept_environment``,
``check_program``); a possible mistake becomes a remark. ``choose_begin`` finds how the
training begins before anything changes, from the trainers, folders and checkpoints that
are there. Then files and row are written inside one transaction; submitting twice is
the same as submitting once. ``preview_of`` is for ``freetrain submit --dry-run``.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
import tomllib
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from freetrain.broker.lease import Intent, LeaseKey
from freetrain.client.trainers import (
    LIVE,
    LeftOver,
    is_over,
    job_of,
    left_over,
    next_generation,
)
from freetrain.config.document import BaseFolders
from freetrain.config.job import ContainerRuntime, parse_job, read_job, render_job
from freetrain.config.site import requirement_of
from freetrain.elastic.files import replaced, sync_folder
from freetrain.errors import (
    BadConfigurationError,
    MissingInputError,
    TryLaterError,
    UsageError,
)
from freetrain.launch.base import (
    CannotLaunchError,
    HeadNode,
    WorldRequest,
    launcher_of,
    logs_of,
    plan_world,
    run_dir_of,
)
from freetrain.launch.container import PROGRAMS
from freetrain.launch.local import LocalFinder, find_tool
from freetrain.launch.mpirun import Flavour, unfit_path
from freetrain.opening import PlantedLinkError, lead_of, why_unsafe
from freetrain.pack.pack import Inbox, read_pack
from freetrain.patterns import advice, slow_line
from freetrain.state.database import (
    check_directory,
    has_state,
    is_local,
    mount_of,
    open_store,
    read_mounts,
    read_store,
    transaction,
)
from freetrain.state.files import (
    GO_ON,
    MPI_TUNING,
    USER,
    AssignedLease,
    AssignmentFile,
    StateDir,
    UnreadableFileError,
    create_assigned,
    read_environment,
    render_environment,
)
from freetrain.state.tables import (
    TrainerRow,
    TrainerState,
    leases,
    put_trainers,
    remove_trainer,
    trainers,
)
from freetrain.text import MINUTE_S, exact_duration, one_line, shown
from freetrain.tick.leases import lease_script, request_for
from slurm.batch import sbatch_argv
from slurm.pieces import GPU

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from freetrain.config.job import ContainerSettings, TrainerJob
    from freetrain.config.site import Site
    from freetrain.launch.base import WorldPlan
    from freetrain.state.files import TrainerDir
    from freetrain.tick.environment import TickEnvironment


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitRequest:
    """The arguments of ``freetrain submit``.

    Attributes:
        path: The job file, absolute.
        content: What it will hold; None where it is there.
        named: The job file as the user named it.
        go_on: Whether to go on from an earlier training's checkpoints.
        anew: Whether to begin from the start under a name that was used.
        is_checked: Whether directory and program must be here.
        is_dry_run: Whether nothing is to be kept.
    """

    path: Path
    named: str
    content: bytes | None = None
    go_on: bool = False
    anew: bool = False
    is_checked: bool = True
    is_dry_run: bool = False


class OnLeftOver(StrEnum):
    """The user's choice where an earlier training left something."""

    GO_ON = "go on"
    ANEW = "anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A trainer to be kept, with the user's variables and its folders."""

    job: TrainerJob
    environment: Mapping[str, str]
    run_dir: Path
    logs: Path
    now_s: float
    on_left_over: OnLeftOver | None = None

    @property
    def text(self) -> str:
        """The job file that is kept."""
        return render_job(self.job)


class Begin(StrEnum):
    """How a submission begins."""

    NEW = "new"  # nothing of that name was there
    SAME = "same"  # it was submitted before; nothing is to be done
    GO_ON = "go on"  # from what an earlier training committed
    ANEW = "anew"  # the earlier trainer's folder is put away


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionOutcome:
    """How a submission begins, or would begin.

    Attributes:
        submission: The trainer as it was asked for.
        row: The trainer as the database has it now.
        left: The earlier training that it goes on from, or would find.
        put_away: Where an earlier trainer's folder of that name was put.
        was_mended: Whether files that were missing were written again.
        remarks: Possible mistakes in the job file; one line each.
    """

    submission: Submission
    begin: Begin
    row: TrainerRow
    left: LeftOver
    put_away: Path | None = None
    was_mended: bool = False
    remarks: tuple[str, ...] = ()


def submit_file(  # noqa: PLR0913 - the environment, piece by piece
    asked: SubmitRequest,
    site: Site,
    *,
    environ: Mapping[str, str],
    home: Path | None,
    uid: int,
    now_s: float,
) -> SubmissionOutcome:
    """Submit the trainer that *asked* names, or find the outcome of doing so.

    Raises:
        FreeTrainError: Nothing was submitted; the message says why.
        OSError: A file could not be written. Nothing was submitted.
    """
    if asked.content is None:
        job = read_job(asked.path, named=asked.named, home=home)
    else:
        places = BaseFolders(asked.path.parent, home)
        job = parse_job(asked.content, path=asked.named, places=places)
    kept = kept_environment(environ)
    theirs = kept | dict(job.environment)
    members = members_of(job, home=home) if asked.is_checked else ()
    for part in (job, *members):
        check_pattern(part)
    if asked.is_checked:
        for part in (job, *members):
            check_program(part, theirs | dict(part.environment))
    state = StateDir(site.state_directory)
    folder = state.trainer(job.name)
    check_launch_agent(job, site)
    if asked.is_checked:
        check_launch_folder(job, folder.path, theirs)
    check_folders(job, uid=uid)
    for member in members:
        check_folders(member, uid=uid)
    submission = Submission(
        job=job,
        environment=kept,
        run_dir=run_dir_of(job, folder).path,
        logs=logs_of(job, folder),
        now_s=now_s,
        on_left_over=_on_left_over(asked),
    )
    keep = preview if asked.is_dry_run else submit
    submitted = keep(state, submission, uid=uid)
    folders = [part.directory for part in (job, *members)]
    image = job.container.image_path if job.container else None
    shared = (
        *(state.path, *folders, submission.run_dir, submission.logs),
        *((image.parent,) if image else ()),
    )
    beside = Path(sys.executable).parent
    found = (
        *remarks(job, theirs, shared, beside=beside, mounts=read_mounts()),
        *past_deadline(job, now_s=now_s),
        *promise_of(job),
        *member_remarks(job, members),
    )
    return replace(submitted, remarks=tuple(map(one_line, found)))


def _on_left_over(asked: SubmitRequest) -> OnLeftOver | None:
    if asked.go_on and asked.anew:
        raise UsageError(
            "--go-on and --anew exclude each other. Nothing was submitted. Give one."
        )
    if asked.go_on:
        return OnLeftOver.GO_ON
    return OnLeftOver.ANEW if asked.anew else None


# The user's variables that are kept with a trainer, as sbatch keeps them

MOST_BYTES = 1 << 19
"""All of them together; Linux takes 2 MiB, arguments included."""

_MOST_VALUE_BYTES = 100_000  # Linux takes no single one above 131,072
_LEFT_OUT_PREFIXES = (
    "FREETRAIN_",  # the launch sets these
    "SLURM_",  # a world must not believe in the job it was submitted from
    "PMI_",
    "PMIX_",
    "OMPI_",
    "PRTE_",
)
_LEFT_OUT = frozenset({"PWD", "OLDPWD", "SHLVL", "_"})  # the shell's, about itself


def kept_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of *environ* with which a trainer is launched.

    Raises:
        BadConfigurationError: It is larger than is ever kept.
    """
    kept = {name: value for name, value in environ.items() if _is_kept(name)}
    for name, value in kept.items():
        if _bytes(value) > _MOST_VALUE_BYTES:
            raise _too_large(f"the variable {name} has {_bytes(value)} bytes")
    total = sum(_bytes(name) + _bytes(value) + 2 for name, value in kept.items())
    if total > MOST_BYTES:
        raise _too_large(f"your environment has {total} bytes")
    return kept


def _is_kept(name: str) -> bool:
    if name.startswith(MPI_TUNING):  # the launch knows which it sets itself
        return True
    return name not in _LEFT_OUT and not name.startswith(_LEFT_OUT_PREFIXES)


def _bytes(text: str) -> int:
    return len(os.fsencode(text))


def _too_large(problem: str) -> BadConfigurationError:
    return BadConfigurationError(
        f"{problem}, more than can be kept for a trainer ({_MOST_VALUE_BYTES} each, "
        f"{MOST_BYTES} together). Nothing was submitted. Unset what the program does "
        f"not need, or submit with `env -i`."
    )


# Whether the program can run, as far as this host shows


def members_of(job: TrainerJob, *, home: Path | None) -> tuple[TrainerJob, ...]:
    """Return the members that the pack of *job* has now; none where it is no pack.

    Files of its inbox that are no job files are ignored, as the pack ignores them.

    Raises:
        FreeTrainError: The pack file, or a job file that it names, cannot be used.
    """
    if job.launch.pack is None:
        return ()
    pack = read_pack(job.launch.pack, home=home)
    return Inbox(pack, home=home, say=_ignore).arrivals()


def _ignore(complaint: str) -> None:
    del complaint


_UNCHECKED = "Nothing was submitted. {}, or submit --unchecked if compute nodes see it."


def check_program(job: TrainerJob, environment: Mapping[str, str]) -> None:
    """Refuse a job whose directory or program is not here; a pack has no program.

    Of a program in a container its image and runtime must be here.
    *environment* are the variables that the trainer will get, its own included.

    Raises:
        BadConfigurationError: There is no such directory or program.
    """
    if not job.directory.is_dir():
        raise _refusal(f"there is no directory {job.directory}", "Correct directory")
    if job.container is not None:
        _check_container(job, job.container, environment)
        return
    program = job.command[0] if job.command else ""
    if program and find_program(program, job.directory, environment) is None:
        where = f"in {job.directory}" if "/" in program else "on your PATH"
        raise _refusal(
            f"the program {shown(program)} is not {where}, or cannot be executed",
            "Activate the environment that has it, or name it in full",
        )


def _check_container(
    job: TrainerJob, container: ContainerSettings, environment: Mapping[str, str]
) -> None:
    runtime = PROGRAMS[container.runtime]
    if find_program(runtime, job.directory, environment) is None:
        raise _refusal(
            f"[container] runtime = {container.runtime} needs the program {runtime}, "
            f"which is not on your PATH",
            "Load its module",
        )
    image = container.image_path
    if image is not None and not image.exists():
        raise _refusal(f"there is no image {image}", "Correct [container] image")
    outside = [Path(bind.partition(":")[0]) for bind in container.binds]
    missing = [str(folder) for folder in outside if not folder.exists()]
    if missing:
        raise _refusal(
            f"[container] binds {', '.join(missing)}, which is not there",
            "Correct binds",
        )


def check_pattern(job: TrainerJob) -> None:
    """Refuse a job whose pattern takes too long on some lines.

    Raises:
        BadConfigurationError: It does.
    """
    if job.progress is None or not job.progress.pattern:
        return
    slow = slow_line(job.progress.pattern)
    if slow is not None:
        raise BadConfigurationError(
            f"trainer {job.name}: [progress]: {advice(slow, job.progress.pattern)}. "
            f"Nothing was submitted."
        )


def check_launch_agent(job: TrainerJob, site: Site) -> None:
    """Refuse a job of pieces of nodes where the site has a launch agent of its own.

    Raises:
        BadConfigurationError: It has one.
    """
    if job.nodes.gpus_per_lease is not None and site.launch_agent is not None:
        raise BadConfigurationError(
            f"trainer {job.name}: [nodes]: gpus_per_lease puts several leases on one "
            f"node, and launch_agent of freetrain.toml starts processes on a node, "
            f"whichever lease is meant. Nothing was submitted. Leave launch_agent out, "
            f"so that srun starts them in their lease, or ask for whole nodes."
        )


def check_launch_folder(
    job: TrainerJob, folder: Path, environment: Mapping[str, str]
) -> None:
    """Refuse a job whose mpirun could not use the files of its worlds.

    They are below *folder*, the trainer's. mpirun is asked for its kind only where the
    path is one that some kinds cannot take.

    Raises:
        BadConfigurationError: It could not.
    """
    if job.launch.launcher != "mpirun" or not unfit_path(Flavour.OPEN_MPI_5, folder):
        return
    head = HeadNode(
        environment={},
        srun="srun",
        python=sys.executable,
        address="",
        launch_agent=None,
    )
    try:
        tool = launcher_of(job).find_tool(
            job, head, LocalFinder(job, environment, head)
        )
    except CannotLaunchError:  # compute nodes may have one all the same
        return
    problem = unfit_path(Flavour(tool.flavour), folder)
    if problem:
        raise BadConfigurationError(
            f"{problem}. Nothing was submitted. Name another state_directory in "
            f"freetrain.toml."
        )


def check_folders(job: TrainerJob, *, uid: int) -> None:
    """Refuse a job that would write, or be read, where other users could put links.

    Raises:
        BadConfigurationError: Others can change what lies in a folder of its own.
        OSError: A folder cannot be looked at.
    """
    for what, place in _places(job):
        folder = place if job.elastic or what == "logs" else place.parent
        why = why_unsafe(folder, uid=uid)
        if why:
            raise BadConfigurationError(
                f"{what} = {shown(str(place))}: {folder} cannot be used: {why}. "
                f"Nothing was submitted, as other users could have FreeTrain write "
                f"into files of yours."
            )
    if job.progress is not None and job.progress.file is not None:
        try:
            lead_of(job.progress.file, uid=uid)
        except PlantedLinkError as error:
            raise BadConfigurationError(
                f"progress.file = {shown(str(job.progress.file))} cannot be used: "
                f"{error.strerror}. Nothing was submitted, as the trainer's progress "
                f"would not be read."
            ) from error


def find_program(
    program: str, directory: Path, environment: Mapping[str, str]
) -> str | None:
    """Return the path of *program*, as the kernel would find it from *directory*."""
    if "/" in program:
        path = directory / program
        return str(path) if path.is_file() and os.access(path, os.X_OK) else None
    return shutil.which(program, path=environment.get("PATH", os.defpath))


def _refusal(problem: str, advice: str) -> BadConfigurationError:
    return BadConfigurationError(f"{problem}. {_UNCHECKED.format(advice)}")


# Remarks: possible mistakes


def remarks(
    job: TrainerJob,
    environment: Mapping[str, str],
    shared: Iterable[Path],
    *,
    beside: Path,
    mounts: str,
) -> tuple[str, ...]:
    """Return possible mistakes in *job*, a line each.

    Args:
        job: The trainer.
        environment: The variables that it will get.
        shared: Folders that compute nodes must see.
        beside: The folder of FreeTrain's own Python; it may have launchers, too.
        mounts: The content of ``/proc/self/mountinfo``.
    """
    found = []
    launcher = launcher_of(job).program(job.launch)
    if job.container is not None and launcher_of(job).is_inside:
        launcher = ""
    path = f"{environment.get('PATH', os.defpath)}:{beside}"
    if launcher and find_program(launcher, job.directory, {"PATH": path}) is None:
        found.append(
            f"the launcher {shown(launcher)} is not on your PATH here; compute nodes "
            f"need it"
        )
    local = [
        str(folder)
        for folder in _outermost(shared)
        if is_local(mount_of(folder.resolve(), mounts=mounts))
    ]
    if local:
        found.append(
            f"compute nodes must see {', '.join(local)}, which seems to be on a disk "
            f"of this machine"
        )
    if job.container is not None and _lacks_gpus(job, job.container):
        found.append(
            "[container] gpus is missing: the program gets GPUs, and sees none of them "
            'without gpus = "nvidia" or "amd"'
        )
    uncounted = _uncounted(job)
    if uncounted:
        found.append(
            f"[work] {uncounted} ends nothing: [progress] does not report how many are "
            f"done"
        )
    return tuple(found)


_LEAVE_GPUS_OUT = frozenset(
    {ContainerRuntime.APPTAINER, ContainerRuntime.SINGULARITY, ContainerRuntime.PODMAN}
)
"""Runtimes that show no GPU unless they are asked to."""


def _lacks_gpus(job: TrainerJob, container: ContainerSettings) -> bool:
    gets = job.nodes.gpus_per_lease is not None or any(
        gres.name == GPU for gres in job.nodes.gres or ()
    )
    return gets and not container.gpus and container.runtime in _LEAVE_GPUS_OUT


def _uncounted(job: TrainerJob) -> str:
    """Return the key of [work] that *job* does not report; empty for none."""
    if job.elastic:
        return ""
    reported = job.progress.reported if job.progress else frozenset()
    if job.work.samples is not None and "samples" not in reported:
        return "samples"
    return "epochs" if job.work.epochs is not None and "epoch" not in reported else ""


def _outermost(folders: Iterable[Path]) -> list[Path]:
    """Return those of *folders* that lie in none of the others, each once."""
    every = list(dict.fromkeys(folders))
    return [
        folder
        for folder in every
        if not any(folder != other and folder.is_relative_to(other) for other in every)
    ]


def past_deadline(job: TrainerJob, *, now_s: float) -> tuple[str, ...]:
    """Return a remark if the deadline of *job* is past."""
    at = None if job.deadline is None else job.deadline.at
    if at is None or at.timestamp() > now_s:
        return ()
    return (f"the deadline {at.isoformat()} is past; no priority tries to meet it",)


def promise_of(job: TrainerJob) -> tuple[str, ...]:
    """Return remarks on what changes of nodes do to a program that saves by itself.

    An elastic one commits when it is asked to stop, loses nothing, and keeps its batch.
    """
    if job.elastic:
        return ()
    every = exact_duration(job.checkpoint.every_s)
    remark = (
        f"{job.name} saves by itself: at each change of nodes it gets "
        f"{job.stop.signal}, and is started again by the same command. Unless it saves "
        f"at {job.stop.signal}, what it did since it last saved is lost each time, up "
        f"to {every} of work if it saves that often ([checkpoint] every)"
    )
    if len(job.nodes.sizes) == 1:
        return (remark,)
    batches = (
        "the number of ranks changes with the nodes, and with it the samples of a "
        "step, where each rank takes a batch of a fixed size: `freetrain docs "
        "own-program` says how to keep them the same"
    )
    return (remark, batches)


def member_remarks(job: TrainerJob, members: Iterable[TrainerJob]) -> tuple[str, ...]:
    """Return settings of members that may be mistakes in a pack."""
    limit_s = job.stop.kill_after_s
    slow = [member.name for member in members if member.stop.kill_after_s > limit_s]
    if not slow:
        return ()
    remark = (
        f"{', '.join(slow)} may take longer to stop than the pack's [stop] kill_after, "
        f"{limit_s:g} s, and would be killed then"
    )
    return (remark,)


# How a submission begins

NOTHING_LEFT = LeftOver()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingState:
    """The trainers and folders that decide how a submission begins.

    Attributes:
        state: The state directory.
        row: The trainer of its name; None where there is none.
        others: All other trainers.
        is_over: Whether no world of that name can be running any more.
        left: The content of the folders that the job file names itself.
        kept: The content of the folder that FreeTrain has for that name.
    """

    state: Path
    row: TrainerRow | None = None
    others: tuple[TrainerRow, ...] = ()
    is_over: bool = True
    left: LeftOver = NOTHING_LEFT
    kept: LeftOver = NOTHING_LEFT


def choose_begin(submission: Submission, found: ExistingState) -> Begin:
    """Return how *submission* begins.

    Raises:
        UsageError: The name is taken, or the folders hold another training.
        BadConfigurationError: Its folders are another trainer's, or FreeTrain's.
        TryLaterError: The name's earlier training is still being stopped.
    """
    _check_places(submission, found)
    row = found.row
    if row is None:
        return _new(submission, found)
    is_same = job_of(row) == submission.job
    if row.state in LIVE:
        if not is_same:
            raise _taken(submission, row)
        return Begin.SAME
    if is_same and submission.on_left_over is None:
        return Begin.SAME
    if submission.on_left_over is OnLeftOver.GO_ON:
        return Begin.GO_ON
    if not found.is_over:
        raise TryLaterError(
            f"{row.name} is {row.state}, but its last processes have not ended yet. "
            f"Nothing was submitted. Try again in a few seconds, or choose another "
            f"name."
        )
    _check_is_empty(submission, found)
    return Begin.ANEW


def _new(submission: Submission, found: ExistingState) -> Begin:
    if submission.on_left_over is OnLeftOver.GO_ON:
        return Begin.GO_ON
    _check_is_empty(submission, found)
    return Begin.ANEW if found.kept.generation else Begin.NEW


def differences(old: str, new: str) -> tuple[str, ...]:
    """Return the keys whose values differ in two job files, as ``[nodes] max``."""
    before, after = dict(_keys(old)), dict(_keys(new))
    return tuple(
        key for key in {**before, **after} if before.get(key) != after.get(key)
    )


def _keys(text: str) -> Iterator[tuple[str, object]]:
    for name, value in tomllib.loads(text).items():
        if isinstance(value, dict):
            yield from ((f"[{name}] {key}", inner) for key, inner in value.items())
        else:
            yield name, value


def _taken(submission: Submission, row: TrainerRow) -> UsageError:
    keys = ", ".join(differences(row.job, submission.text))
    return UsageError(
        f"there is a trainer {row.name} already, and it is {row.state}; this job file "
        f"differs from its own in {keys}. Nothing was submitted. Choose another name, "
        f"or `freetrain cancel {row.name}` first."
    )


def _check_is_empty(submission: Submission, found: ExistingState) -> None:
    """Refuse to begin anew in folders that hold an earlier training."""
    name, left = submission.job.name, found.left
    if left.step is not None:
        raise UsageError(
            f"the run directory {shown(str(submission.run_dir))} holds the checkpoints "
            f"of an earlier training, of {left.step} steps. Nothing was submitted. To "
            f"go on from there add --go-on; to train {name} from the start name "
            f"another checkpoint.path, or move the folder away."
        )
    if left.has_logs:
        raise UsageError(
            f"{shown(str(submission.logs))} holds what an earlier training printed, "
            f"and {name} would be taken for it. Nothing was submitted. Name another "
            f"folder for logs, or move the files away; --go-on goes on from them."
        )


def _check_places(submission: Submission, found: ExistingState) -> None:
    for what, place in _places(submission.job):
        if overlap(place, found.state):
            raise BadConfigurationError(
                f"{what} = {shown(str(place))} and the state directory {found.state} "
                f"lie in each other. Nothing was submitted. Name another folder."
            )
    for other in found.others:
        job = job_of(other)
        if job is not None:
            _check_apart(submission.job, job, other)


def _check_apart(job: TrainerJob, other: TrainerJob, row: TrainerRow) -> None:
    for what, mine in _places(job):
        for _, theirs in _places(other):
            # Of an ended trainer the same folder is asked about, not refused.
            is_same = is_within(mine, theirs) and is_within(theirs, mine)
            if overlap(mine, theirs) and (row.state in LIVE or not is_same):
                raise BadConfigurationError(
                    f"{what} = {shown(str(mine))} and {shown(str(theirs))} of the "
                    f"trainer {row.name}, which is {row.state}, lie in each other. "
                    f"Nothing was submitted. Name another folder."
                )


def _places(job: TrainerJob) -> Iterator[tuple[str, Path]]:
    if job.checkpoint.path is not None:
        yield "checkpoint.path", job.checkpoint.path
    if job.logs is not None:
        yield "logs", job.logs


def is_within(inner: Path, outer: Path) -> bool:
    """Return whether *inner* is *outer* or lies in it, links followed."""
    return inner.resolve().is_relative_to(outer.resolve())


def overlap(folder: Path, other: Path) -> bool:
    """Return whether one of two folders lies in the other."""
    return is_within(folder, other) or is_within(other, folder)


# Keeping a submission: its files, then its row, everything or nothing


def submit(state: StateDir, submission: Submission, *, uid: int) -> SubmissionOutcome:
    """Keep *submission*; done twice it is done once.

    Raises:
        UsageError: Its name or its folders are taken.
        BadConfigurationError: Its folders cannot be used.
        TryLaterError: Its name's earlier training has not ended yet.
        StoreError: The state cannot be used. Nothing was submitted.
        OSError: A file could not be written. Nothing was submitted.
    """
    with open_store(state.path, uid=uid) as connection, transaction(connection):
        judged = _judged(submission, look(connection, state, submission))
        return _keep(connection, state, judged)


def preview(state: StateDir, submission: Submission, *, uid: int) -> SubmissionOutcome:
    """Return the outcome of ``submit``; nothing is made or changed.

    Raises:
        FreeTrainError: As ``submit``.
    """
    if not has_state(state.path):
        if state.path.exists():
            check_directory(state.path, uid=uid)
        return _judged(submission, _found(state, submission, {}, frozenset()))
    with read_store(state.path, uid=uid) as connection:
        return _judged(submission, look(connection, state, submission))


def look(
    connection: sqlite3.Connection, state: StateDir, submission: Submission
) -> ExistingState:
    """Return the trainers and folders that matter to *submission*.

    Raises:
        StoreError: The state could not be read.
        OSError: A folder could not be read.
    """
    rows = {row.name: row for row in trainers(connection)}
    held = {lease.key for lease in leases(connection, ending_after_s=math.inf)}
    return _found(state, submission, rows, held)


def _found(
    state: StateDir,
    submission: Submission,
    rows: Mapping[str, TrainerRow],
    held: Collection[LeaseKey],
) -> ExistingState:
    """Return the same, given the trainers by name and the leases that are held."""
    name = submission.job.name
    folder = state.trainer(name)
    newest = next_generation(folder) - 1
    kept = left_over(folder.run.path, folder.logs)
    return ExistingState(
        state=state.path,
        row=rows.get(name),
        others=tuple(row for row in rows.values() if row.name != name),
        is_over=is_over(folder, held),
        left=_named(submission, state),
        kept=LeftOver(kept.step, max(kept.generation, newest), kept.has_logs),
    )


def _named(submission: Submission, state: StateDir) -> LeftOver:
    """Return the content of the folders that the job file names itself."""
    own = state.trainer(submission.job.name)
    nowhere = state.path / "nowhere"
    run_dir = nowhere if submission.run_dir == own.run.path else submission.run_dir
    logs = nowhere if submission.logs == own.logs else submission.logs
    return left_over(run_dir, logs)


def _judged(submission: Submission, found: ExistingState) -> SubmissionOutcome:
    begin = choose_begin(submission, found)
    if begin is Begin.SAME and found.row is not None:
        return SubmissionOutcome(
            submission=submission, begin=begin, row=found.row, left=found.left
        )
    both = (found.left, found.kept) if begin is Begin.GO_ON else ()
    steps = [left.step for left in both if left.step is not None]
    row = TrainerRow(
        name=submission.job.name,
        job=submission.text,
        run_dir=str(submission.run_dir),
        state=TrainerState.WANTED,
        submitted_s=submission.now_s,
        changed_s=submission.now_s,
        reported_generation=found.row.reported_generation
        if begin is Begin.GO_ON and found.row is not None
        else 0,
    )
    used = max((left.generation for left in both), default=0)
    left = LeftOver(max(steps, default=None), used)
    return SubmissionOutcome(submission=submission, begin=begin, row=row, left=left)


def _keep(
    connection: sqlite3.Connection, state: StateDir, judged: SubmissionOutcome
) -> SubmissionOutcome:
    submission, folder = judged.submission, state.trainer(judged.row.name)
    if judged.begin is Begin.SAME:
        mended = not (folder.job.is_file() and folder.environment.is_file())
        if mended:
            _write(folder, submission)
        return replace(judged, was_mended=mended)
    put_away = None
    if judged.begin is Begin.ANEW:
        put_away = _put_away(state, folder, submission.now_s)
    _write(folder, submission)
    if judged.left.generation:
        _mark(folder, submission, judged.left.generation)
    remove_trainer(connection, judged.row.name)
    put_trainers(connection, [judged.row])
    return replace(judged, put_away=put_away)


def _put_away(state: StateDir, folder: TrainerDir, now_s: float) -> Path | None:
    if not folder.path.exists():
        return None
    state.past.mkdir(mode=0o700, exist_ok=True)
    _forget_secrets(folder)
    stamp = int(now_s)
    while (place := state.past / f"{folder.path.name}.{stamp}").exists():
        stamp += 1
    folder.path.rename(place)
    sync_folder(state.past)
    return place


def _forget_secrets(folder: TrainerDir) -> None:
    """Take what may be secret out of a folder before it is put away for good.

    Names of variables and programs stay, for they help to see what a training was;
    values of variables and arguments of commands go.
    """
    shutil.rmtree(folder.path / "worlds", ignore_errors=True)  # launchers' variables
    with suppress(FileNotFoundError):
        names: Iterable[str] = ()
        with suppress(UnreadableFileError):
            names = read_environment(folder)
        values = render_environment(dict.fromkeys(names, ""))
        _write_private(folder.environment, values)
    try:
        job = read_job(folder.job)
    except (BadConfigurationError, MissingInputError):
        folder.job.unlink(missing_ok=True)
        return
    variables = tuple((name, "") for name, _ in job.environment)
    target = job.target and structs.replace(job.target, hook=job.target.hook[:1])
    kept = structs.replace(
        job, environment=variables, command=job.command[:1], target=target
    )
    _write_private(folder.job, render_job(kept).encode())


def _write(folder: TrainerDir, submission: Submission) -> None:
    folder.create()
    sync_folder(folder.path.parent)
    _write_private(folder.job, submission.text.encode())
    _write_private(folder.environment, render_environment(submission.environment))


def _write_private(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.new")
    with replaced(path, temporary=temporary, mode=0o600) as file:
        file.write(content)


def _mark(folder: TrainerDir, submission: Submission, used: int) -> None:
    """Take a generation in which nothing runs: the next is above all *used* ones.

    Where the last ending is judged, it also says that there is a new beginning.
    """
    generation = max(used, next_generation(folder))
    create_assigned(
        folder,
        AssignmentFile(
            trainer=submission.job.name,
            generation=generation,
            members=(),
            created_s=submission.now_s,
            author=USER,
            reason=GO_ON,
        ),
    )


# What a dry run shows

UUID = "UUID"
"""Stands for the name that a tick gives each submission."""

DEFAULT_PARTITION = "DEFAULT-PARTITION"
"""Stands for the cluster's default partition, which only Slurm knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The commands that would be run.

    Attributes:
        sbatch: The command that would ask for a lease of the shortest length.
        script: The lease's batch script.
        world: How a world of the fewest nodes would be started; None where it
            cannot be.
        problem: Why it cannot; else empty.
    """

    sbatch: tuple[str, ...]
    script: str
    world: WorldPlan | None
    problem: str = ""


def preview_of(
    submission: Submission, site: Site, environment: TickEnvironment
) -> Preview:
    """Return the commands for *submission*; the launcher is asked for its version.

    Raises:
        BadConfigurationError: A path or a value that no script, or Slurm, can take.
    """
    script = lease_script(environment, site)
    asked = _lease_argv(submission, site)
    try:
        world = _world(submission, site, environment)
    except CannotLaunchError as error:
        return Preview(sbatch=asked, script=script, world=None, problem=str(error))
    return Preview(sbatch=asked, script=script, world=world)


def _lease_argv(submission: Submission, site: Site) -> tuple[str, ...]:
    limit_min = math.ceil(site.lease.shortest_s / MINUTE_S)
    intent = Intent(
        uuid=UUID,
        shape="",
        limit_min=limit_min,
        deadline_s=submission.now_s + limit_min * MINUTE_S,
        tasks=1,
        created_s=submission.now_s,
    )
    asked = requirement_of(
        submission.job.nodes, site.lease, default_partition=DEFAULT_PARTITION
    )
    state = StateDir(site.state_directory)
    try:
        return tuple(sbatch_argv(request_for(site, state, intent, asked, grace_s=0.0)))
    except ValueError as error:
        raise BadConfigurationError(
            f"no lease could be asked for: {error}. Shorten or correct it in "
            f"freetrain.toml."
        ) from error


def _world(
    submission: Submission, site: Site, environment: TickEnvironment
) -> WorldPlan:
    job = submission.job
    head = HeadNode(
        environment={"PATH": environment.path},
        srun="srun",
        python=environment.python,
        address="node1",
        launch_agent=site.launch_agent,
    )
    request = WorldRequest(
        job=job,
        assigned=_assigned(job.name, job.nodes.sizes[0], submission.now_s),
        folder=StateDir(site.state_directory).trainer(job.name),
        environment=submission.environment,
        head=head,
    )
    return plan_world(request, find_tool(request))


def _assigned(trainer: str, nodes: int, now_s: float) -> AssignmentFile:
    members = tuple(
        AssignedLease(
            key=LeaseKey(UUID, n), job_id=n, display_id=str(n), node=f"node{n}"
        )
        for n in range(1, nodes + 1)
    )
    return AssignmentFile(
        trainer=trainer,
        generation=1,
        members=members,
        created_s=now_s,
        author=USER,
        reason="a dry run",
    )
