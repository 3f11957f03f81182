"""``freetrain run`` and ``freetrain init``: job files made of commands and scripts."""

import io
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from freetrain.broker.reasons import TrainerReason
from freetrain.config.document import BaseFolders
from freetrain.config.job import TrainerJob, parse_job
from freetrain.state.files import EndingKind, StateDir
from freetrain.state.tables import TrainerState
from freetrain.tick.status_report import TrainerLine
from tests.cli.commands import Ran, Terminal, at_home, refused, run
from tests.client.client_states import (
    NOW_S,
    a_page,
    assign,
    end,
    put_page,
    put_state,
    rows,
)

TORCH = """\
import argparse
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--snapshot-path", default="snapshot.pt")

def load_snapshot(): ...
"""
ALONE = """\
import argparse
from pathlib import Path

CKPT_DIR = Path("ckpt")

def restore(): ...
"""
ELASTIC = "from freetrain import elastic\n"


def script(text: str, name: str = "train.py") -> None:
    Path(name).write_text(text)


def drafted(*words: str) -> tuple[dict[str, Any], str]:
    """Return the job file that ``freetrain run --dry-run`` shows, and its notes."""
    ran = run("run", "--dry-run", *words)
    assert ran.code == 0, ran.stderr
    as_job(ran.stdout)
    return tomllib.loads(ran.stdout), ran.stderr


def as_job(text: str) -> TrainerJob:
    places = BaseFolders(Path.cwd(), Path.home())
    return parse_job(text.encode(), path="job.toml", places=places)


GOLDEN = """\
name = "train"
command = ["python", "-u", "train.py", "--epochs", "3"]
elastic = false  # it saves by itself, and goes on from there

[nodes]
min = 1
max = 8

[launch]
launcher = "torchrun"
processes_per_node = 4              # in each lease
options = ["--log-dir=logs"]

[checkpoint]
path = "snapshot.pt"  # its newest file: the last save
every = "5min"

[stop]
signal = "TERM"  # ends it, unless it saves first and then ends
kill_after = "30s"
"""


def test_torchruns_words_become_a_job_file() -> None:
    script(TORCH)
    ours = ("--standalone", "--max-restarts", "3", "--rdzv_id=7")
    theirs = ("--nproc_per_node=4", "--log-dir=logs", "train.py", "--epochs", "3")

    ran = run(
        *("run", "--dry-run", "--nodes", "1:8", "--every", "5min", "--"),
        *("torchrun", *ours, *theirs),
    )

    schema, origin, _, *rest = ran.stdout.split("\n")
    assert schema.startswith("#:schema file:///")
    assert "`freetrain run --nodes 1:8 --every 5min -- torchrun" in origin
    assert [line.split("  #")[0].rstrip() for line in rest] == [
        line.split("  #")[0].rstrip() for line in GOLDEN.split("\n")
    ]
    assert "--standalone, --rdzv_id=7: taken out" in ran.stderr
    assert "--max-restarts 3: taken out; [restart] attempts" in ran.stderr
    assert [path.name for path in Path.cwd().iterdir()] == ["train.py"]


LAUNCHED = [
    (("torchrun", "train.py"), "torchrun", None, (1, 1)),
    (("torchrun", "--nnodes=2:6", "train.py"), "torchrun", None, (2, 6)),
    (("python", "-m", "torch.distributed.run", "train.py"), "torchrun", None, (1, 1)),
    (("/opt/v/bin/torchrun", "--nproc-per-node", "2", "t.py"), "torchrun", 2, (1, 1)),
    (("accelerate", "launch", "--num_processes", "8", "--num_machines", "2", "t.py"),
     "torchrun", 4, (2, 2)),
    (("mpirun", "-np", "8", "-N", "4", "./train"), "mpirun", 4, (1, 1)),
    (("mpirun", "--map-by", "ppr:2:node", "-f", "hosts", "./t"), "mpirun", 2, (1, 1)),
    (("mpiexec", "-n", "4", "./train"), "mpirun", 4, (1, 1)),
    (("mpirun", "-map-by", "ppr:4:node", "./train"), "mpirun", 4, (1, 1)),
    (("mpirun", "-N", "2", "--map-by", "core", "./t"), "mpirun", 2, (1, 1)),
    (("mpirun", "-n", "6", "-N", "3", "-H", "a,b", "./t"), "mpirun", 3, (1, 1)),
    (("python", "-m", "torch.distributed.launch", "--use_env", "--nproc_per_node=2",
      "train.py"), "torchrun", 2, (1, 1)),
    (("accelerate", "launch", "--cpu", "t.py"), "torchrun", 1, (1, 1)),
    (("python", "-W", "error", "train.py"), "srun", None, (1, 1)),
    (("./train", "--lr", "1"), "srun", None, (1, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("command", "launcher", "ranks", "sizes"), LAUNCHED)
def test_each_launchers_command_is_translated(
    command: tuple[str, ...],
    launcher: str,
    ranks: int | None,
    sizes: tuple[int, int],
) -> None:
    for name in ("train.py", "t.py"):
        script(TORCH, name)

    job, _ = drafted("--", *command)

    assert job["launch"]["launcher"] == launcher
    assert job["launch"].get("processes_per_node") == ranks
    assert (job["nodes"]["min"], job["nodes"]["max"]) == sizes
    assert job["command"][-1] == command[-1]
    assert job["elastic"] is False


def test_words_after_the_programs_name_are_the_programs() -> None:
    script(TORCH)
    theirs = ("--name", "hello", "--config", "c.yaml", "--nodes", "x", "--force", "-h")

    job, _ = drafted("--nodes", "1:2", "python", "train.py", *theirs)

    assert job["command"] == ["python", "train.py", *theirs]
    assert (job["name"], job["nodes"]["max"]) == ("train", 2)


@pytest.mark.parametrize("mapping", ["ppr:4:node:PE=2", "ppr:4:node,pe=2"])
def test_cores_of_mpiruns_ranks_are_kept(mapping: str) -> None:
    job, _ = drafted("--", "mpirun", "-map-by", mapping, "./train")

    assert job["launch"]["processes_per_node"] == 4
    assert job["launch"]["options"] == ["--map-by", mapping]


@pytest.mark.parametrize(
    "command", [("mpirun", "./t"), ("accelerate", "launch", "train.py")]
)
def test_with_leases_of_gpus_each_gpu_has_a_process(command: tuple[str, ...]) -> None:
    script(TORCH)

    job, _ = drafted("--gpus-per-lease", "2", "--", *command)

    assert "processes_per_node" not in job["launch"]


@pytest.mark.parametrize("package", ["mpi4py", "horovod.torch", "mpi4py, torch"])
def test_ranks_of_mpi_are_started_by_mpirun_by_both_commands(package: str) -> None:
    script(f"import {package}")

    job, _ = drafted("--nodes", "1:4", "--", "python", "train.py")
    run("init", "train.py")

    assert job["launch"]["launcher"] == "mpirun"
    assert as_job(Path("job.toml").read_text()).launch.launcher == "mpirun"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("torchrun", "-m", "pkg.train", "--lr", "1"), "train"),
        (("python", "-u", "-m", "pkg.deep.fit"), "fit"),
        (("python", "-W", "error", "-m", "alone"), "alone"),
        (("python", "-c", "pass"), "python"),
    ],
)
def test_a_module_gives_its_name(command: tuple[str, ...], name: str) -> None:
    assert drafted("--", *command)[0]["name"] == name


def test_variables_before_the_command_are_kept() -> None:
    script(TORCH)
    variables = ("OMP_NUM_THREADS=4", "EMPTY=", "PYTHONUNBUFFERED=0")

    job, _ = drafted("--", *variables, "python", "train.py", "A=1")
    by_env, _ = drafted("--", "env", *variables, "python", "train.py", "A=1")

    assert by_env == job
    assert job["name"] == "train"
    assert job["command"] == ["python", "train.py", "A=1"]
    assert job["environment"] == {
        "OMP_NUM_THREADS": "4",
        "EMPTY": "",
        "PYTHONUNBUFFERED": "0",
    }


def test_programs_of_a_launcher_keep_its_python_and_its_settings() -> None:
    script(TORCH)

    by_path, _ = drafted("--", "/opt/v/bin/torchrun", "-m", "pkg.train", "--lr", "1")
    mixed = ("--mixed_precision=bf16", "--main_process_port", "1", "--cpu")
    accelerated, notes = drafted("--", "accelerate", "launch", *mixed, "train.py")
    plain, _ = drafted("--", "python", "train.py")

    assert by_path["command"][:3] == ["/opt/v/bin/python", "-u", "-m"]
    assert by_path["launch"]["executable"] == "/opt/v/bin/torchrun"
    assert accelerated["environment"] == {
        "ACCELERATE_MIXED_PRECISION": "bf16",
        "ACCELERATE_USE_CPU": "true",
    }
    assert "--main_process_port 1: taken out" in notes
    assert plain["environment"] == {"PYTHONUNBUFFERED": "1"}


REFUSED = [
    (("--", "srun", "./train"), "leave srun out"),
    (("--", "torchrun", "--nproc-per-node=gpu", "train.py"), "add --gpus-per-lease N"),
    (("--", "torchrun", "--nproc-per-node=x", "train.py"), "needs a number"),
    (("--", "torchrun", "--new", "train.py"), "option --new is not known"),
    (("--", "torchrun", "--role"), "--role lacks its value"),
    (("--", "torchrun", "--standalone"), "has no program"),
    (("--", "torchrun", "--run-path", "train.py"), "--run-path cannot be kept"),
    (("--nodes", "8:1", "--", "python", "train.py"), "neither a number of nodes nor"),
    (("--nodes", "1:8", "--", "mpirun", "-n", "4", "./t"), "changes with the nodes"),
    (("--", "mpirun", "-n", "16", "-H", "a,b", "./t"), "or add --nodes 1 for all"),
    (("--", "mpirun", "-n", "16", "--hostfile", "h", "./t"), "changes with the nodes"),
    (("--", "mpirun", "--map-by", "ppr:2:socket", "./t"), "Write ppr:N:node"),
    (("--", "mpirun", "-n", "2", "-map-by", "socket:PE=4", "./t"), "Write ppr:N:node"),
    (("--", "mpirun", "./t"), "goes by what a node has"),
    (("--", "accelerate", "launch", "train.py"), "goes by what a node has"),
    (("--", "python", "-m", "torch.distributed.launch", "train.py"), "--local-rank"),
    (
        ("--", "accelerate", "launch", "--config_file", "a.yaml", "train.py"),
        "give its num_processes, num_machines,",
    ),
    (
        ("--", "accelerate", "launch", "--config_file=a.yaml", "train.py"),
        "give its num_processes, num_machines,",
    ),
    (
        ("--", "accelerate", "launch", "--new", "1", "train.py"),
        "Start the script by torchrun",
    ),
    (("--", "A=1", "B=2"), "names no program"),
    (("--", "env", "A=1"), "names no program"),
    (("--", "python", "train.py", "\udcff"), "is not UTF-8"),
    (("--checkpoint", "\udcff", "--", "python", "train.py"), "is not UTF-8"),
    (("--", "mpirun", "./a", ":", "./b"), "several programs"),
    (
        ("--gpus-per-lease", "1", "--", "torchrun", "--nproc-per-node=8", "train.py"),
        "8 processes in each lease and --gpus-per-lease 1 contradict",
    ),
    (
        ("--", "accelerate", "launch", "--use_fsdp=1", "train.py"),
        "cannot be translated",
    ),
    (
        ("--", "accelerate", "launch", "--num_processes=3", "--num_machines=2", "t.py"),
        "do not divide",
    ),
    (("--nodes", "1:8", "--", "python", "alone.py"), "would do the same work"),
    (("--nodes", "1:8", "--", "bash", "run.sh"), "would do the same work"),
]


@pytest.mark.parametrize(("words", "said"), REFUSED)
def test_what_contradicts_itself_is_refused_and_nothing_written(
    words: tuple[str, ...], said: str
) -> None:
    script(TORCH)
    script(ALONE, "alone.py")

    line = refused("run", *words, code=64)

    assert said in line
    assert len([*Path.cwd().iterdir()]) == 2


def test_a_script_that_is_not_there_is_refused() -> None:
    assert "cannot read" in refused("run", "--", "python", "train.py", code=66)


@pytest.mark.parametrize("text", ["def f(:", "x = 1\0", "x = " + "(" * 300])
def test_of_a_script_that_is_not_understood_nothing_is_seen(text: str) -> None:
    script(f"CKPT_DIR = 'ckpt'\n{text}\n")

    job, notes = drafted("--", "python", "train.py")

    assert "path" not in job["checkpoint"]
    assert "nothing of train.py is seen: " in notes
    assert "begins it from the start" not in notes


def test_a_long_sum_is_read() -> None:
    script(f"CKPT_DIR = 'ckpt'\nx = {' + '.join(['1'] * 1000)}\n")

    assert drafted("--", "python", "train.py")[0]["checkpoint"]["path"] == "ckpt"


@pytest.mark.parametrize("place", ["../outputs", "a\\0b", "\\ud800"])
def test_a_guess_that_no_job_file_may_have_is_left_out(place: str) -> None:
    script(f"import transformers\nOUTPUT_DIR = '{place}'\n")

    job, notes = drafted("--", "python", "train.py")
    made = run("init", "train.py")

    assert "path" not in job["checkpoint"]
    assert "progress" not in job
    assert "train.py seems to save to " in notes
    assert "train.py seems to save to " in made.stderr


def test_a_path_that_no_job_file_may_have_is_refused_before_anything_is_written() -> (
    None
):
    script(ALONE)

    line = refused("run", "--checkpoint", "../a", "--", "python", "train.py", code=78)

    assert "[checkpoint]: path" in line
    assert [path.name for path in Path.cwd().iterdir()] == ["train.py"]


@pytest.mark.parametrize(
    ("text", "arguments", "place"),
    [
        (TORCH, (), "snapshot.pt"),
        (TORCH, ("--snapshot-path", "/scratch/s.pt"), "/scratch/s.pt"),
        (ALONE, (), "ckpt"),
        (ALONE, ("--output_dir=out",), "out"),
        ("Trainer(default_root_dir='runs')", (), "runs"),
        ("import torch\ntorch.save(model, 'last.pt')", (), "last.pt"),
        ("ck = 'a.pt'\nif ready:\n    torch.save(model, ck)", (), "a.pt"),
        ("ck = Path('a.pt')\ndef save():\n    torch.save(m, ck)", (), "a.pt"),
        ("BASE = 'runs'\nTrainer(default_root_dir=BASE)", (), "runs"),
        ("ck = 'a.pt'\nck = 'b.pt'\ntorch.save(model, ck)", (), None),
        ("ck = 'a.pt'\ndef save(ck):\n    torch.save(model, ck)", (), None),
        ("import net", (), "deep/ckpt"),
        ("print('hello')", ("--save", "--lr", "1"), None),
    ],
)
def test_where_a_script_saves_is_seen(
    text: str, arguments: tuple[str, ...], place: str | None
) -> None:
    script("import train\nCHECKPOINT_DIR = 'deep/ckpt'", "net.py")
    script(f"{text}\nmodel.load_state_dict({{}})")

    job, notes = drafted("--", "python", "train.py", *arguments)

    assert job["checkpoint"].get("path") == place
    assert ("where train.py saves is not seen" in notes) == (place is None)


def test_a_program_that_may_not_resume_is_told_of() -> None:
    script("parser.add_argument('--resume', action='store_true')", "a.py")
    script("import numpy", "b.py")

    without, given = (
        drafted("--", "python", "a.py"),
        drafted("--", "python", "a.py", "--resume"),
    )

    assert "has an option --resume, and the command does not give it" in without[1]
    assert "--resume" not in given[1]
    neither = drafted("--", "python", "b.py")[1]
    assert "saves, or goes on from a checkpoint: if so, each change of" in neither
    assert neither.count("note: ") == 1


ALIKE = "if so, all that torchrun starts do the same work"


@pytest.mark.parametrize(
    ("words", "text", "is_told"),
    [
        (("torchrun", "--nproc-per-node=2"), ALONE, True),
        (("torchrun", "--nnodes=2", "--nproc-per-node=1"), ALONE, True),
        (("torchrun", "--nproc-per-node=1"), ALONE, False),
        (("torchrun", "--nproc-per-node=2"), TORCH, False),
        (("torchrun", "--nproc-per-node=2"), "def f(:", False),
    ],
)
def test_that_all_processes_seem_to_do_the_same_is_told(
    words: tuple[str, ...], text: str, *, is_told: bool
) -> None:
    script(text)

    assert (ALIKE in drafted("--", *words, "train.py")[1]) == is_told


@pytest.mark.parametrize(
    "text",
    [
        "trainer.train(resume_from_checkpoint=True)",
        "trainer.train(resume_from_checkpoint=get_last_checkpoint('out'))",
        "trainer.fit(model, loader, ckpt_path='last')",
    ],
)
def test_a_library_that_is_told_to_go_on_is_seen(text: str) -> None:
    script(text)

    assert "begins it from the start" not in drafted("--", "torchrun", "train.py")[1]


LIGHTNING = "import lightning\nfrom pytorch_lightning.loggers import *\n"


@pytest.mark.parametrize(
    ("made", "progress"),
    [
        ('CSVLogger("logs")', ("lightning", "logs/lightning_logs")),
        ('CSVLogger(".")', ("lightning", "lightning_logs")),
        ('CSVLogger(save_dir=OUT, name="a")', ("lightning", "runs/a")),
        ('TensorBoardLogger(OUT, "a")', ("tensorboard", "runs/a/version_*")),
    ],
)
def test_where_lightning_reports_progress_is_written(
    made: str, progress: tuple[str, str]
) -> None:
    script(f'{LIGHTNING}OUT = "runs"\nTrainer(logger={made})')

    job, notes = drafted("--", "torchrun", "train.py")

    assert (job["progress"]["format"], job["progress"]["file"]) == progress
    assert "where train.py logs is not seen" not in notes


@pytest.mark.parametrize(
    "made",
    [
        "True",
        "CSVLogger(args.out)",
        'CSVLogger("a", version=V)',
        'CSVLogger("a", name=NAME)',
        'CSVLogger("../a")',
    ],
)
def test_where_lightning_may_report_progress_is_not_guessed(made: str) -> None:
    script(f"{LIGHTNING}Trainer(logger={made})")

    job, notes = drafted("--checkpoint", "ckpt", "--", "torchrun", "train.py")

    assert "progress" not in job
    assert ("where train.py logs is not seen" in notes) == ("../" not in made)


def test_an_elastic_program_is_found_to_be_one() -> None:
    script(ELASTIC)
    script(f"import torch\n{ELASTIC}", "torch_ddp.py")

    plain, notes = drafted("--nodes", "1:8", "--", "python", "train.py")
    by_torch, _ = drafted("--nodes", "1:8", "--", "python", "torch_ddp.py")

    assert "elastic" not in plain
    assert {"checkpoint", "stop"}.isdisjoint(plain)
    assert (plain["launch"]["launcher"], notes) == ("mpirun", "")
    assert by_torch["launch"]["launcher"] == "srun"


@pytest.mark.parametrize("library", ["torch", "transformers", "lightning"])
def test_a_program_of_an_integration_is_elastic_and_started_by_torchrun(
    library: str,
) -> None:
    script(
        f"import {library}\nfrom freetrain.integrations.{library} import join\n"
        f"join(samples=64, global_batch=16)\n"
    )

    typed, notes = drafted("--", "torchrun", "--nproc-per-node", "2", "train.py")
    guessed, _ = drafted("--nodes", "1:8", "--", "python", "train.py")

    assert "elastic" not in typed
    assert {"checkpoint", "stop", "progress"}.isdisjoint(typed)
    assert notes == ""
    assert typed["launch"] == {"launcher": "torchrun", "processes_per_node": 2}
    assert guessed["launch"]["launcher"] == "torchrun"


SHARED = "from freetrain.integrations.torch import join\n"


@pytest.mark.parametrize(
    ("batch", "nodes", "sizes"),
    [
        ("join(samples=99, global_batch=32)", "1:3", [1, 2]),
        ("SIZE = 24\njoin(samples=99, global_batch=SIZE)", "2:6", [2, 3, 4, 6]),
        ("join(samples=99, global_batch=32)", "1:2", None),
    ],
)
def test_sizes_are_those_whose_ranks_divide_the_global_batch(
    batch: str, nodes: str, sizes: list[int] | None
) -> None:
    script(f"{SHARED}{batch}\n")

    job, notes = drafted("--nodes", nodes, "--", "torchrun", "train.py")

    assert job["nodes"].get("sizes") == sizes
    assert notes == ""


def test_ranks_of_a_lease_count_where_shares_must_be_equal() -> None:
    script(f"{SHARED}join(samples=99, global_batch=12)\n")
    torchrun = ("torchrun", "--nproc-per-node", "4", "train.py")

    job, _ = drafted("--nodes", "1:4", "--", *torchrun)

    assert job["nodes"]["sizes"] == [1, 3]
    said = refused("run", "--nodes", "2", "--", *torchrun, code=64)
    assert "a global batch of 12 in train.py has no equal shares for 4" in said


@pytest.mark.parametrize(
    "batch", ["global_batch=n", "global_batch=8), f(global_batch=6"]
)
def test_a_global_batch_that_is_not_seen_is_said_to_need_sizes(batch: str) -> None:
    script(f"{SHARED}join(samples=99, {batch})\n")

    job, notes = drafted("--nodes", "1:3", "--", "torchrun", "train.py")

    assert "sizes" not in job["nodes"]
    assert "do not divide it fails: list the numbers of nodes that do as sizes" in notes


BATCHES = "the number of ranks changes with the nodes, and with it the samples of a"


def finish(state: StateDir, end: TrainerState) -> Any:  # noqa: ANN401 - a sleep
    return lambda _: put_state(state, "train", end)


def submitted(state: StateDir, end: TrainerState, *words: str) -> Ran:
    """Run ``freetrain run``, and let the trainer end while it is followed."""
    return run("run", *words, "--", "python3", "train.py", sleep=finish(state, end))


def test_a_command_is_written_submitted_and_followed_to_its_end() -> None:
    state = at_home()
    script(ALONE)

    ran = submitted(state, TrainerState.FINISHED)

    assert ran.code == 0
    assert as_job(Path("train.job.toml").read_text()).name == "train"
    assert ran.stdout.startswith("train.job.toml: written;")
    assert "train: submitted, to begin from the start." in ran.stdout
    assert "train saves by itself: at each change of nodes it gets TERM" in ran.stderr
    assert BATCHES not in ran.stderr
    assert "no tick has come lately" in ran.stderr
    assert "train: finished 0 s after it was submitted" in ran.stderr
    assert ran.stderr.endswith(f"train: what it saved: {Path.cwd() / 'ckpt'}\n")
    assert state.trainer("train").job.exists()


def test_that_the_samples_of_a_step_change_with_the_nodes_is_told() -> None:
    state = at_home()
    script(TORCH)
    words = ("--nodes", "1:2", "--", "python3", "train.py")

    ran = run("run", *words, sleep=finish(state, TrainerState.FINISHED))

    assert BATCHES in ran.stderr


def test_a_training_that_fails_fails_the_command() -> None:
    state = at_home()
    script(ALONE)

    assert submitted(state, TrainerState.FAILED).code == 1


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        (EndingKind.FINISHED, 0, "finished 1 min after it was submitted"),
        (EndingKind.DO_NOT_RESTART, 1, "failed 1 min after it was submitted"),
    ],
)
def test_an_end_that_no_tick_has_noted_yet_ends_the_command(
    how: EndingKind, code: int, said: str
) -> None:
    state = at_home()
    script(ALONE)

    def finish_itself(_: float) -> None:
        assign(state, "train", 1, nodes=1)
        end(state, "train", 1, how, message="" if not code else "all is lost")

    ran = run("run", "--", "python3", "train.py", sleep=finish_itself)

    assert ran.code == code
    why = ": all is lost" if code else ""
    logs, saved = state.trainer("train").logs, Path.cwd() / "ckpt"
    assert ran.stderr.splitlines()[-3:] == [
        f"train: {said}, in generation 1{why}",
        f"train: what it printed: {logs}",
        f"train: what it saved: {saved}",
    ]
    assert rows(state)["train"].state is TrainerState.WANTED


def test_what_a_training_waits_for_is_told_once_and_as_it_changes() -> None:
    state = at_home()
    script(TORCH)
    waits = TrainerLine(name="train", state="wanted", reason="no hole is there")
    asked = replace(waits, reason=TrainerReason.AWAITS_LEASES, planned_nodes=3)

    def seen(line: TrainerLine, at_s: float) -> None:
        put_page(state, a_page(at_s=at_s, trainers=(line,)))

    steps: list[Any] = [
        lambda: seen(waits, NOW_S - 1.0),
        lambda: seen(waits, NOW_S),
        lambda: seen(waits, NOW_S + 1.0),
        lambda: seen(asked, NOW_S + 2.0),
        lambda: assign(state, "train", 1, nodes=3, reason="starts on 3 nodes"),
        lambda: None,
        lambda: put_state(state, "train", TrainerState.FINISHED),
    ]
    for place in range(len(steps), 0, -1):  # each is seen a few times
        steps[place:place] = [lambda: None] * 3
    still = iter(steps)
    words = ("run", "--nodes", "1:3", "--", "python3", "train.py")

    ran = run(*words, sleep=lambda _: next(still)())

    told = [line for line in ran.stderr.splitlines() if line.startswith("train: ")]
    assert told[:4] == [
        "train: waiting for the next tick, which looks for nodes for it",
        "train: waiting: no hole is there. The next tick looks again",
        "train: Slurm is asked for 3 nodes; it starts on them once they are there",
        "train: generation 1 on n1, n2, n3 (starts on 3 nodes)",
    ]
    assert told[4].startswith("train: finished ")


def test_the_same_command_again_follows_the_same_trainer() -> None:
    state = at_home()
    script(ALONE)

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    words = ("run", "--", "python3", "train.py")
    first = run(*words, sleep=interrupt)
    again = run(*words, sleep=finish(state, TrainerState.FINISHED))
    other = run("run", "--every", "1h", "--", "python3", "train.py")

    assert first.code == 0
    assert "train goes on." in first.stderr
    assert "`freetrain cancel train` stops it" in first.stderr
    assert "submitted before with the same job file" in again.stdout
    assert other.code == 73
    assert "train.job.toml exists and differs" in other.stderr
    assert "--out" not in other.stderr
    assert "another name with --name" in other.stderr


def test_the_same_command_of_another_installation_follows_the_same_trainer() -> None:
    state = at_home()
    script(ALONE)
    words = ("run", "--", "python3", "train.py")
    run(*words, sleep=finish(state, TrainerState.FINISHED))
    path = Path("train.job.toml")
    elsewhere = "#:schema file:///elsewhere/job.schema.json\n" + path.read_text()
    path.write_text(elsewhere)

    again = run(*words, sleep=finish(state, TrainerState.FINISHED))

    assert again.code == 0
    assert again.stdout.startswith("train.job.toml: there already;")
    assert path.read_text() == elsewhere


def test_a_job_that_is_not_submitted_is_not_written() -> None:
    at_home()

    ran = run("run", "--", "./not-there")

    assert ran.code == 78
    assert "not-there" in ran.stderr
    assert ran.stdout == ""
    assert not Path("not-there.job.toml").exists()


def test_init_writes_a_commented_job_file_and_asks_nothing_without_a_terminal() -> None:
    script(TORCH)

    ran = run("init", "train.py")
    text = Path("job.toml").read_text()

    assert ran.code == 0
    assert as_job(text).launch.launcher == "torchrun"
    assert as_job(text).checkpoint.path == Path.cwd() / "snapshot.pt"
    assert "max = 1  # not said: how many nodes at most" in text
    assert "# not seen: how often it saves" in text
    assert run("init", "train.py").code == 0
    assert run("init", "train.py", "--nodes", "1:4").code == 73
    assert run("init", "train.py", "--nodes", "1:4", "--force").code == 0
    assert as_job(Path("job.toml").read_text()).nodes.max_nodes == 4


def test_init_asks_on_a_terminal_what_it_cannot_see() -> None:
    script(TORCH.replace('default="snapshot.pt"', ""))
    answers = Terminal("2:8\n4\n/scratch/ckpt\n\n")

    ran = run("init", stdin=answers, is_terminal=True, stderr=Terminal())
    job = as_job(Path("job.toml").read_text())

    assert ran.code == 0
    assert ran.stderr.count("]: ") == 4
    assert (job.nodes.min_nodes, job.nodes.max_nodes) == (2, 8)
    assert job.launch.processes_per_node == 4
    assert job.checkpoint.path == Path("/scratch/ckpt")
    assert job.checkpoint.every_s == 600.0


def test_init_asks_nothing_of_what_is_said_or_with_yes() -> None:
    script(TORCH)
    said = ("--nodes", "1:2", "--gpus-per-lease", "1", "--every", "1h")

    for words in (said, ("--yes", "--out", "other.toml")):
        stdin = Terminal("never read\n")
        ran = run("init", *words, stdin=stdin, is_terminal=True, stderr=Terminal())
        assert ran.code == 0
        assert stdin.tell() == 0


COMMANDS = [
    ("torchrun", "--nproc-per-node", "2", "train.py", "--nodes", "x"),
    ("OMP_NUM_THREADS=4", "python", "-u", "train.py"),
    ("mpirun", "-np", "8", "-N", "4", "./train"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_init_takes_the_commands_that_run_takes(command: tuple[str, ...]) -> None:
    script(TORCH)

    ran = run("init", "--nodes", "1:8", "--", *command)

    assert ran.code == 0, ran.stderr
    text = Path("job.toml").read_text()
    assert tomllib.loads(text) == drafted("--nodes", "1:8", "--", *command)[0]
    assert f"`freetrain init --nodes 1:8 -- {' '.join(command)}`" in text


def test_init_keeps_the_arguments_of_a_script() -> None:
    script(TORCH)

    assert run("init", "--", "train.py", "--epochs", "9").code == 0

    job = as_job(Path("job.toml").read_text())
    assert job.command == ("python", "train.py", "--epochs", "9")
    assert job.launch.launcher == "torchrun"


def test_init_needs_a_script() -> None:
    assert "there are no scripts" in refused("init", code=64)
    script(ALONE)
    script(ALONE, "other.py")
    assert "there are 2 scripts" in refused("init", code=64)


def test_a_closed_input_takes_what_is_offered() -> None:
    script(ALONE)
    stdin = Terminal("")

    ran = run("init", stdin=stdin, is_terminal=True, stderr=Terminal())

    assert ran.code == 0
    assert as_job(Path("job.toml").read_text()).nodes.max_nodes == 1
    assert isinstance(stdin, io.StringIO)
