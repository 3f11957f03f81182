"""Command lines by which a world's programs run in a container.

FreeTrain's agent, its starters and mpirun stay outside; each rank, or each lease's
torchrun, is wrapped. The processes inside must keep FreeTrain's marks in their
environments, by which agents find and end them, and see the same network, ``/tmp``,
working folder and run directory under the same paths.

Sources of the words: apptainer-exec(1) and "Bind Paths and Mounts" of Apptainer 1.5,
also of SingularityCE; podman-run(1) of Podman 4.3; ch-run(1) of Charliecloud 0.31;
README.md of Pyxis 0.24. Podman and Charliecloud were tried, the others were not.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.config.job import ContainerGpus, ContainerRuntime, StopSignal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.config.job import ContainerSettings, TrainerJob

PROGRAMS: Mapping[ContainerRuntime, str] = {
    ContainerRuntime.APPTAINER: "apptainer",
    ContainerRuntime.SINGULARITY: "singularity",
    ContainerRuntime.PODMAN: "podman",
    ContainerRuntime.CHARLIECLOUD: "ch-run",
    ContainerRuntime.PYXIS: "srun",
}
"""The program of each runtime, which compute nodes need."""

PACKAGE = Path(__file__).resolve().parents[1]
"""FreeTrain's package, which an elastic program inside sees."""

IMPORTS = PACKAGE / "launch" / "inside"
"""For its PYTHONPATH: what lies beside the package is the node's, not the image's."""

SEPARATORS = frozenset(",:")
"""Every runtime takes them for the ends of the paths that it binds."""

_LAUNCHERS_VARIABLES = (
    *("FREETRAIN_*", "OMPI_*", "PMIX_*", "PMI_*", "PRTE_*", "MASTER_*"),
    *("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK"),
    *("WORLD_SIZE", "LOCAL_WORLD_SIZE"),
)
_IGNORE_TERM = ("/bin/sh", "-c", "trap '' TERM; exec \"$@\"", "sh")
# torchrun handles TERM, and ends its workers; one that is blocked never reaches it.
_BLOCKING = (
    "import os, signal, sys; "
    "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
_BLOCK_TERM = ("python3", "-I", "-S", "-c", _BLOCKING)
_TMP = "/tmp"  # noqa: S108 -- MPI's daemons and ranks meet there
_NVIDIA_OF_PODMAN = ("--device=nvidia.com/gpu=all",)
_AMD_OF_PODMAN = ("--device=/dev/kfd", "--device=/dev/dri")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """What a command inside a container needs of the node.

    Attributes:
        directory: Where it starts.
        folders: Folders that it sees under the same paths, beside *directory*.
        imports_us: Whether it imports FreeTrain's package, which it may only read.
        variables: Variables that the job file or the lease sets, by name.
        step: For Pyxis: srun and the words by which it starts a step of the lease.
    """

    directory: Path
    folders: tuple[Path, ...]
    imports_us: bool = False
    variables: tuple[str, ...] = ()
    step: tuple[str, ...] = ()

    @property
    def seen(self) -> tuple[Path, ...]:
        """All folders, each once, without those that lie in others."""
        package = (PACKAGE,) if self.imports_us else ()
        every = dict.fromkeys((self.directory, *self.folders, *package))
        return tuple(
            folder
            for folder in every
            if not any(folder != o and folder.is_relative_to(o) for o in every)
        )


def in_container(
    container: ContainerSettings, inside: Inside, command: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the words that run *command* in a container; no shell sees them."""
    binds = [
        f"{folder}:{folder}{':ro' if folder == PACKAGE else ''}"
        for folder in inside.seen
    ]
    binds += container.binds
    runtime = container.runtime
    if runtime is ContainerRuntime.PODMAN:
        return _podman(container, inside, binds, command)
    if runtime is ContainerRuntime.CHARLIECLOUD:
        return _charliecloud(container, inside, binds, command)
    if runtime is ContainerRuntime.PYXIS:
        return _pyxis(container, inside, binds, command)
    return _apptainer(container, inside, binds, command)


def shield_of(job: TrainerJob, *, is_torchrun: bool) -> tuple[str, ...]:
    """Return words before a command inside, by which it outlives TERM; none needed: ().

    Slurm sends TERM to every process of a lease that it preempts, and Podman passes it
    on. A program that saves by itself at another signal would end by it, unsaved. The
    starter blocks TERM, but only Charliecloud keeps it blocked on the way inside.
    An elastic program takes TERM for a request to commit.
    """
    container = job.container
    if container is None or container.runtime is ContainerRuntime.CHARLIECLOUD:
        return ()
    if job.elastic or job.stop.signal is StopSignal.TERM:
        return ()
    return _BLOCK_TERM if is_torchrun else _IGNORE_TERM


def _apptainer(
    container: ContainerSettings,
    inside: Inside,
    binds: list[str],
    command: tuple[str, ...],
) -> tuple[str, ...]:
    """It brings the host's variables, ``/tmp`` and home along, and passes signals on.

    Its processes are children of the caller, without a daemon.
    """
    gpus = {ContainerGpus.NVIDIA: ("--nv",), ContainerGpus.AMD: ("--rocm",)}
    return (
        *(PROGRAMS[container.runtime], "exec"),
        *(gpus[container.gpus] if container.gpus else ()),
        *(f"--bind={bind}" for bind in binds),
        f"--pwd={inside.directory}",
        *container.options,
        container.image,
        *command,
    )


def _podman(
    container: ContainerSettings,
    inside: Inside,
    binds: list[str],
    command: tuple[str, ...],
) -> tuple[str, ...]:
    """The container is no child of the caller: conmon watches it, and removes it.

    Without control groups of its own it stays in those of the lease, whose limits
    count. Podman gives such a container process numbers of its own, where the first
    process ignores signals that it does not handle: ``--init`` is that one.
    """
    gpus = {ContainerGpus.NVIDIA: _NVIDIA_OF_PODMAN, ContainerGpus.AMD: _AMD_OF_PODMAN}
    is_folder = container.image.startswith("/")
    return (
        *(PROGRAMS[container.runtime], "run", "--rm", "--init"),
        *("--network=host", "--ipc=host", "--userns=keep-id", "--cgroups=disabled"),
        # Output goes to the caller alone, and to no file of Podman's. "passthrough"
        # would copy it less often, but refuses the terminals that Open MPI gives ranks.
        *("--log-driver=none", "--security-opt=label=disable", "--entrypoint="),
        *(f"--env={name}" for name in (*_LAUNCHERS_VARIABLES, *inside.variables)),
        *(gpus[container.gpus] if container.gpus else ()),
        *(f"--volume={bind}" for bind in (f"{_TMP}:{_TMP}", *binds)),
        f"--workdir={inside.directory}",
        *container.options,
        *(("--rootfs",) if is_folder else ()),
        container.image,
        *command,
    )


def _charliecloud(
    container: ContainerSettings,
    inside: Inside,
    binds: list[str],
    command: tuple[str, ...],
) -> tuple[str, ...]:
    """It becomes the command; variables and ``/tmp`` are the host's.

    Folders that are bound must be there in the image, and cannot be read-only. Below
    ``/tmp`` nothing can be bound, and all is seen already, unless TMPDIR has another
    folder put there.
    """
    plain = [bind.removesuffix(":ro").removesuffix(":rw") for bind in binds]
    plain = [bind for bind in plain if not _is_in_tmp(bind)]
    return (
        *("env", f"TMPDIR={_TMP}", PROGRAMS[container.runtime]),
        *(f"--bind={bind}" for bind in plain),
        f"--cd={inside.directory}",
        *container.options,
        container.image,
        "--",
        *command,
    )


def _is_in_tmp(bind: str) -> bool:
    outside, _, inside = bind.partition(":")
    return outside == inside and outside.startswith(f"{_TMP}/")


def _pyxis(
    container: ContainerSettings,
    inside: Inside,
    binds: list[str],
    command: tuple[str, ...],
) -> tuple[str, ...]:
    """A step of its own in the same lease, as Pyxis has whole steps in containers.

    A variable that the image sets is the image's, but for those that are named.
    """
    named = ",".join(inside.variables)
    return (
        *inside.step,
        f"--container-image={container.image}",
        "--container-mounts=" + ",".join((f"{_TMP}:{_TMP}", *binds)),
        f"--container-workdir={inside.directory}",
        *((f"--container-env={named}",) if named else ()),
        *container.options,
        *command,
    )
