"""The command lines of containers, word for word as their documentation has them.

Apptainer: apptainer-exec(1) of 1.5, "Bind Paths and Mounts" and "GPU Support" of its
user guide; SingularityCE has the same words. Podman: podman-run(1) of 4.3.
Charliecloud: ch-run(1) of 0.31. Pyxis: README.md of 0.24, and srun(1).
"""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from freetrain.config.job import (
    CheckpointSettings,
    ContainerGpus,
    ContainerRuntime,
    ContainerSettings,
    NodeSettings,
    StopSettings,
    StopSignal,
)
from freetrain.launch.base import (
    CannotLaunchError,
    Tool,
    launcher_environment,
    launcher_of,
    plan_world,
)
from freetrain.launch.local import LocalFinder
from freetrain.launch.mpirun import Flavour
from tests.launch.launch_records import FOLDER, job, request

IMAGE = "/images/torch.sif"
TMP = "/tmp"  # noqa: S108 -- only named
WORK = "/home/ada/digits"
RUN = f"{FOLDER}/run"
US = str(Path(sys.modules["freetrain"].__path__[0]))
TERMINATED = (
    sys.executable,
    "-c",
    "import os, signal; os.kill(os.getpid(), signal.SIGTERM); print('saved')",
)
COMMAND = "python train.py '$(touch x); *'"
STEP = (
    "--overlap --nodes=1 --ntasks=1 --mpi=none --export=ALL --cpu-bind=none --mem=0 "
    "--input=none --kill-on-bad-exit=1 --wait=0"
)
PODMAN = (
    "podman run --rm --init --network=host --ipc=host --userns=keep-id "
    "--cgroups=disabled --log-driver=none --security-opt=label=disable "
    "--entrypoint= '--env=FREETRAIN_*' '--env=OMPI_*' '--env=PMIX_*' '--env=PMI_*' "
    "'--env=PRTE_*' '--env=MASTER_*' --env=RANK --env=LOCAL_RANK --env=NODE_RANK "
    "--env=GROUP_RANK --env=WORLD_SIZE --env=LOCAL_WORLD_SIZE --env=A "
    "--env=PYTHONPATH --env=CUDA_VISIBLE_DEVICES --env=GPU_DEVICE_ORDINAL "
    "--env=ROCR_VISIBLE_DEVICES --env=ZE_AFFINITY_MASK"
)


def contained(runtime: str, **keys: Any) -> ContainerSettings:  # noqa: ANN401
    fields = {"image": IMAGE, "binds": ("/data:/data:ro",), "options": ("--x",)} | keys
    return ContainerSettings(runtime=ContainerRuntime(runtime), **fields)


def inside(container: ContainerSettings, launcher: str, tool: str) -> list[str]:
    """Return what a program that saves at USR2 is started with inside."""
    asked = request(
        job(launcher, container=container, elastic=False, command=TERMINATED)
    )
    plan = plan_world(asked, Tool(tool))
    orders = next(f.content for f in plan.files if f.path.name == "node-1.json")
    argv: list[str] = json.loads(orders)["commands"][0]["argv"]
    return argv[argv.index("--x" if "pyxis" in container.runtime else IMAGE) + 1 :]


def words(container: ContainerSettings, launcher: str = "srun", **keys: Any) -> str:  # noqa: ANN401
    """Return the command of the second lease's first process, as a shell has it."""
    changes = {"directory": Path(WORK), "environment": (("A", "1"),)} | keys
    asked = request(job(launcher, container=container, **changes))
    plan = plan_world(asked, Tool("torchrun"))
    orders = next(f.content for f in plan.files if f.path.name == "node-1.json")
    return shlex.join(json.loads(orders)["commands"][0]["argv"])


@pytest.mark.parametrize("name", ["apptainer", "singularity"])
@pytest.mark.parametrize(
    ("gpus", "option"), [(None, ""), ("nvidia", " --nv"), ("amd", " --rocm")]
)
def test_apptainer_executes_the_program_in_its_image(
    name: str, gpus: str | None, option: str
) -> None:
    container = contained(name, gpus=gpus and ContainerGpus(gpus))

    assert words(container) == (
        f"{name} exec{option} --bind={WORK}:{WORK} --bind={RUN}:{RUN} "
        f"--bind={US}:{US}:ro --bind=/data:/data:ro --pwd={WORK} --x {IMAGE} {COMMAND}"
    )


@pytest.mark.parametrize(
    ("gpus", "option"),
    [
        (None, ""),
        ("nvidia", " --device=nvidia.com/gpu=all"),
        ("amd", " --device=/dev/kfd --device=/dev/dri"),
    ],
)
def test_podman_s_container_shares_network_and_control_group_of_the_lease(
    gpus: str | None, option: str
) -> None:
    container = contained(
        "podman", image="quay.io/ada/torch", gpus=gpus and ContainerGpus(gpus)
    )

    assert words(container) == (
        f"{PODMAN}{option} --volume=/tmp:/tmp --volume={WORK}:{WORK} "
        f"--volume={RUN}:{RUN} --volume={US}:{US}:ro --volume=/data:/data:ro "
        f"--workdir={WORK} --x quay.io/ada/torch {COMMAND}"
    )


def test_podman_takes_a_path_for_an_unpacked_image() -> None:
    assert f" --x --rootfs {IMAGE} {COMMAND}" in words(contained("podman"))


def test_charliecloud_binds_nothing_below_tmp_and_nothing_for_reading_alone() -> None:
    binds = ("/data:/data:ro", f"{TMP}/a:{TMP}/a", f"{TMP}/a:/b:rw")
    us = "" if US.startswith(f"{TMP}/") else f"--bind={US}:{US} "

    assert words(contained("charliecloud", binds=binds)) == (
        f"env TMPDIR=/tmp ch-run --bind={WORK}:{WORK} --bind={RUN}:{RUN} "
        f"{us}--bind=/data:/data --bind={TMP}/a:/b --cd={WORK} --x {IMAGE} -- {COMMAND}"
    )


def test_pyxis_starts_a_step_of_the_same_lease() -> None:
    named = (
        "A,PYTHONPATH,CUDA_VISIBLE_DEVICES,GPU_DEVICE_ORDINAL,ROCR_VISIBLE_DEVICES,"
        "ZE_AFFINITY_MASK"
    )

    assert words(contained("pyxis")) == (
        f"/opt/slurm/bin/srun --jobid=42 --nodelist=n2 {STEP} "
        f"--container-image={IMAGE} --container-mounts=/tmp:/tmp,{WORK}:{WORK},"
        f"{RUN}:{RUN},{US}:{US}:ro,/data:/data:ro --container-workdir={WORK} "
        f"--container-env={named} --x {COMMAND}"
    )


def test_torchrun_itself_runs_in_the_container_and_is_not_looked_for_outside() -> None:
    container = contained("apptainer")
    asked = request(job("torchrun", container=container))
    finder = LocalFinder(asked.job, {"PATH": "/nowhere"}, asked.head)

    tool = launcher_of(asked.job).find_tool(asked.job, asked.head, finder)
    assert tool == Tool("torchrun")
    assert f"{IMAGE} torchrun --nnodes=3 " in words(container, "torchrun")


def test_mpirun_stays_outside_and_starts_a_container_for_each_rank() -> None:
    asked = request(job(container=contained("apptainer"), directory=Path(WORK)))
    argv = plan_world(asked, Tool("/mpi/bin/mpirun", Flavour.OPEN_MPI_5)).argv

    assert argv[0] == "/mpi/bin/mpirun"
    assert shlex.join(argv).endswith(f"--x {IMAGE} {COMMAND}")
    assert "apptainer" in argv


def test_a_folder_inside_another_is_bound_once() -> None:
    run = CheckpointSettings(path=Path(WORK) / "run")

    said = words(contained("apptainer", binds=()), checkpoint=run)
    assert f"{WORK}/run" not in said
    assert said.count("--bind=") == 2


def test_a_program_that_saves_by_itself_sees_the_folder_and_not_freetrain() -> None:
    saves = CheckpointSettings(path=Path("/scratch/ada/last.pt"))
    keys: dict[str, Any] = {"elastic": False, "checkpoint": saves}
    container = contained("apptainer", binds=())

    said = words(container, **keys)
    assert "--bind=/scratch/ada:/scratch/ada " in said
    assert US not in said
    asked = request(job("srun", container=container, **keys))
    assert "PYTHONPATH" not in launcher_environment(asked)


def test_an_elastic_program_inside_imports_the_freetrain_that_starts_it() -> None:
    own = (("PYTHONPATH", "/home/ada/lib"),)
    asked = request(job("srun", container=contained("apptainer"), environment=own))

    found = launcher_environment(asked)["PYTHONPATH"]
    assert found == f"{US}/launch/inside:/home/ada/lib"


def test_it_imports_nothing_else_of_the_node_where_the_node_s_folders_are_seen() -> (
    None
):
    asked = request(job("srun", container=contained("apptainer")))
    program = (
        "import importlib.util\n"
        "import freetrain.elastic.contract\n"
        "print(freetrain.__file__, importlib.util.find_spec('milp'))"
    )

    done = subprocess.run(  # noqa: S603 -- our own words
        [sys.executable, "-S", "-c", program],
        check=False,
        capture_output=True,
        text=True,
        cwd="/",
        env={"PYTHONPATH": launcher_environment(asked)["PYTHONPATH"]},
    )
    assert (done.stdout, done.stderr) == (f"{US}/__init__.py None\n", "")


@pytest.mark.parametrize(
    ("runtime", "launcher", "elastic", "heeds"),
    [
        ("pyxis", "srun", True, False),
        ("pyxis", "torchrun", True, False),
        ("pyxis", "srun", False, True),
        ("podman", "torchrun", True, True),
    ],
)
def test_workers_of_data_loaders_never_get_a_signal_that_srun_gives_to_all(
    runtime: str, launcher: str, *, elastic: bool, heeds: bool
) -> None:
    asked = request(job(launcher, container=contained(runtime), elastic=elastic))

    plan = plan_world(asked, Tool("torchrun"))
    orders = next(f.content for f in plan.files if f.path.name == "node-0.json")
    assert bool(json.loads(orders)["heeds"]) == heeds


@pytest.mark.parametrize("runtime", ["apptainer", "podman", "pyxis"])
def test_a_program_that_saves_at_usr2_outlives_the_term_that_slurm_gives_to_all(
    runtime: str,
) -> None:
    argv = inside(contained(runtime), "srun", "")

    done = subprocess.run(argv, check=False, capture_output=True, text=True)  # noqa: S603 -- our own words
    assert (done.returncode, done.stdout) == (0, "saved\n")


def test_torchrun_inside_outlives_it_too_though_it_handles_term(tmp_path: Path) -> None:
    torchrun = tmp_path / "torchrun"
    torchrun.write_text(
        f"#!{sys.executable}\n"
        "import os, signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "words = sys.argv[sys.argv.index('--no-python') + 1:]\n"
        "os.execv(words[0], words)\n"
    )
    torchrun.chmod(0o755)
    argv = inside(contained("podman"), "torchrun", str(torchrun))

    done = subprocess.run(argv, check=False, capture_output=True, text=True)  # noqa: S603 -- our own words
    assert (done.returncode, done.stdout) == (0, "saved\n")


def test_a_program_that_wants_term_gets_it() -> None:
    keys: dict[str, Any] = {
        "elastic": False,
        "stop": StopSettings(signal=StopSignal.TERM),
    }

    assert words(contained("podman"), **keys).endswith(f"{IMAGE} {COMMAND}")


def test_no_spare_is_kept_for_a_container() -> None:
    assert job("srun").may_have_spares
    assert not job("srun", container=contained("podman")).may_have_spares


def test_a_folder_whose_name_a_runtime_would_split_is_refused() -> None:
    for name in ("a,b", "a:b"):
        asked = job("srun", container=contained("podman"), directory=Path("/", name))

        with pytest.raises(CannotLaunchError, match="commas and colons"):
            plan_world(request(asked), Tool(""))


def test_a_custom_command_is_followed_by_the_container() -> None:
    asked = request(
        job(
            "custom",
            via=("wrap",),
            container=contained("apptainer"),
            nodes=NodeSettings(max_nodes=3),
        )
    )

    assert plan_world(asked, Tool("")).argv[:3] == ("wrap", "apptainer", "exec")
