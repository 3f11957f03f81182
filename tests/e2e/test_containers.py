"""A trainer whose ranks run in containers, killed and rescaled, on a real Slurm.

The image is a folder without files, into which the host's programs and this Python are
bound: nothing is built or fetched.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from freetrain.config.job import ContainerRuntime
from freetrain.launch.container import PACKAGE, PROGRAMS
from freetrain.processes import PROC
from freetrain.state.files import TrainerDir
from tests.cluster.waiting import wait_for
from tests.e2e.faults import check_all, wait_for_the_end
from tests.e2e.outcome import losses, rescales
from tests.e2e.stage import EPOCHS, TOP, Stage

pytestmark = pytest.mark.slurm

NAME = "ada"
LIMIT_S = 300.0
HERE = "/a-container"
"""A folder that only the image has."""

_OF_THE_HOST = ("/usr", "/lib", "/lib64", "/bin", sys.base_prefix, sys.prefix, str(TOP))
_OWN_FOLDERS = ("dev", "proc", "sys", "etc", "tmp", "run", "var", "root", "home")
_OWN_FILES = ("passwd", "group", "hosts", "resolv.conf")
_OPTIONS: dict[ContainerRuntime, tuple[str, ...]] = {
    ContainerRuntime.CHARLIECLOUD: (),
    # Of root, who has no other user's numbers to keep, and whose limits are low here.
    ContainerRuntime.PODMAN: (
        *("--userns=host", "--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096"),
    ),
}
# crun refuses the mixture of both kinds of control groups that some hosts have.
_PODMAN = """\
#!/bin/sh
exec unshare --mount /bin/sh -c \\
    'umount /sys/fs/cgroup/unified 2>/dev/null; exec {podman} "$@"' podman "$@"
"""


def make_image(stage: Stage) -> Path:
    """Return a folder that a runtime takes for an image."""
    image = stage.folder / "image"
    inside = (HERE, *_OF_THE_HOST, str(PACKAGE), str(stage.folder))
    for folder in (*_OWN_FOLDERS, *(place.lstrip("/") for place in inside)):
        (image / folder).mkdir(parents=True, exist_ok=True)
    for name in _OWN_FILES:
        (image / "etc" / name).touch()
    return image


def put_on_path(stage: Stage, program: str) -> None:
    """Let the program of a runtime be found, or skip where it cannot run."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    if program == "podman":
        place = stage.folder / "bin" / program
        place.unlink(missing_ok=True)
        place.write_text(_PODMAN.format(podman=found))
        place.chmod(0o755)


def container_lines(launcher: str, runtime: ContainerRuntime, image: Path) -> str:
    """Return the table of a job file."""
    binds = [f"{place}:{place}:ro" for place in dict.fromkeys(_OF_THE_HOST)]
    return f"""\
launcher = "{launcher}"
[container]
image = "{image}"
runtime = "{runtime}"
binds = {binds}
options = {list(_OPTIONS[runtime])}
"""


def try_it(stage: Stage, runtime: ContainerRuntime, image: Path) -> None:
    """Skip where the runtime does not work at all on this machine."""
    options = list(_OPTIONS[runtime])
    words = {
        ContainerRuntime.CHARLIECLOUD: ["ch-run", "-b/usr", "-b/lib", "-b/lib64"],
        ContainerRuntime.PODMAN: [
            *("podman", "run", "--rm", "--init", "--cgroups=disabled"),
            *("--network=host", "-v/usr:/usr:ro", "-v/lib:/lib:ro"),
            *("-v/lib64:/lib64:ro", *options, "--rootfs"),
        ],
    }[runtime]
    end = ["--"] if runtime is ContainerRuntime.CHARLIECLOUD else []
    done = subprocess.run(  # noqa: S603 -- words of ours
        [*words, str(image), *end, "/usr/bin/true"],
        check=False,
        capture_output=True,
        text=True,
        env=stage.environ | {"USER": "root"},
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        pytest.skip(f"{runtime} does not work here: {done.stderr.strip()[:200]}")


def ranks(stage: Stage) -> list[int]:
    """Return the processes of the trainer that are in a container."""
    found = []
    for pid in stage.processes():
        try:
            words = (PROC / f"{pid}/cmdline").read_bytes().split(b"\0")
            is_inside = (PROC / f"{pid}/root{HERE}").is_dir()
        except OSError:
            continue
        if is_inside and any(word.endswith(b"digits_program.py") for word in words):
            found.append(pid)
    return found


def said(trainer: TrainerDir) -> str:
    """Return what the first world of a trainer printed."""
    logs = sorted(trainer.logs.iterdir())
    return logs[0].read_text(errors="replace")[-2_000:] if logs else "no world began"


@pytest.mark.parametrize(
    ("runtime", "launcher"),
    [  # the other two pairs would show nothing that these do not
        (ContainerRuntime.CHARLIECLOUD, "srun"),
        (ContainerRuntime.PODMAN, "mpirun"),
    ],
)
def test_ranks_in_containers_are_killed_and_rescaled_and_nothing_is_lost_or_left(
    stage_on: Callable[..., Stage],
    reference: dict[int, float],
    runtime: ContainerRuntime,
    launcher: str,
) -> None:
    stage = stage_on()
    put_on_path(stage, PROGRAMS[runtime])
    image = make_image(stage)
    try_it(stage, runtime, image)
    hurry = stage.folder / "hurry"
    stage.submit(
        NAME,
        most=2,
        launch=container_lines(launcher, runtime, image),
        USER="root",
        HOME="/root",
        DIGITS_EPOCHS=str(EPOCHS),
        DIGITS_STEP_S="0.5",
        DIGITS_HURRY=str(hurry),
    )
    folder, run = stage.trainer(NAME)

    with stage.ticking(3):
        wait_for(
            lambda: f"two ranks inside; {said(folder)}",
            lambda: len(ranks(stage)) >= 2,
            limit_s=LIMIT_S,
        )
        wait_for("steps", lambda: losses(run), limit_s=LIMIT_S)
        seen = len(losses(run))
        os.kill(ranks(stage)[-1], signal.SIGKILL)
        wait_for("it to go on", lambda: len(losses(run)) > seen + 5, limit_s=LIMIT_S)
        lease = max(job.display_id for job in stage.leases())
        stage.cluster.run("scancel", lease)
        wait_for("it to shrink", lambda: rescales(folder, run).shrinks, limit_s=LIMIT_S)
        wait_for("it to grow", lambda: rescales(folder, run).grows, limit_s=LIMIT_S)
        hurry.touch()
        wait_for_the_end(stage, limit_s=LIMIT_S)

    check_all(stage, reference, [NAME])
    if runtime is ContainerRuntime.PODMAN:
        left = subprocess.run(  # noqa: S603 -- our own wrapper
            [str(stage.folder / "bin" / "podman"), "ps", "--all", "--quiet"],
            check=True,
            capture_output=True,
            env=stage.environ,
        )
        assert left.stdout == b""
