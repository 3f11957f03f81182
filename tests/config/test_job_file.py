"""Job files: their meaning, what is rendered of them, and their mistakes."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.config import job as jobs
from freetrain.config.document import BaseFolders, keys_of
from freetrain.config.job import TrainerJob, parse_job, read_job, render_job
from freetrain.errors import BadConfigurationError, MissingInputError
from freetrain.losscurve.forecast import MetricDirection
from slurm.records import Gres
from tests.config.job_files import (
    LEAST,
    PLACES,
    WHOLE,
    pack_file,
    parse,
    trainer_jobs,
    with_line,
)

ELSEWHERE = BaseFolders(Path("/elsewhere"))


def test_a_job_file_says_everything_about_a_trainer() -> None:
    job = parse(WHOLE)

    assert job.name == "digits"
    assert job.command == ("python", "train.py", "--note", "two words; $(rm -rf /)")
    assert job.directory == Path("/home/ada/work/src")
    assert job.environment == (("EMPTY", ""), ("OMP_PROC_BIND", "close"))
    assert job.logs == Path("/home/ada/logs")
    assert (job.weight, job.order, job.elastic) == (
        2.0,
        jobs.ServiceOrder.BACKGROUND,
        False,
    )
    assert job.scaling == ((1, 100.0), (4, 350.0))
    assert job.nodes.sizes == (2, 4, 8)
    assert job.nodes.gres == (Gres("gpu", "a100", 2), Gres("nvme", "", 1))
    assert (job.nodes.memory_mib, job.nodes.cpus) == (65_536, 16)
    assert (job.nodes.partition, job.nodes.features) == ("gpu", ("a100", "ib"))


def test_a_pack_names_its_file_and_no_program() -> None:
    job = parse(pack_file())

    assert (job.launch.launcher, job.command) == ("pack", ())
    assert job.launch.pack == PLACES.folder / "pack.toml"


def test_a_job_file_says_how_a_trainer_runs() -> None:
    job = parse(WHOLE)

    assert job.launch.launcher == "srun"
    assert (job.launch.processes_per_node, job.launch.threads) == (2, 8)
    assert (job.launch.ahead, job.launch.spare) == (False, False)
    assert (job.work.epochs, job.work.time_limit_s) == (20, 172_800.0)
    assert job.checkpoint == jobs.CheckpointSettings(
        path=Path("/scratch/ada/digits"), every_s=30.0
    )
    assert job.stop == jobs.StopSettings(signal=jobs.StopSignal.TERM, kill_after_s=10.0)
    assert job.restart == jobs.RestartSettings(attempts=5, wait_s=60.0)
    assert job.progress is not None
    assert job.progress.file == Path("/home/ada/work/train.log")
    assert job.costs == jobs.RescaleCosts(grow_s=18.0, shrink_s=12.0, start_s=20.0)


def test_a_job_file_says_what_is_wanted_of_a_trainer() -> None:
    job = parse(WHOLE)

    assert job.deadline is not None
    assert job.deadline.time_s(0.0) == 1_798_131_600.0
    later = parse(with_line('deadline = "2h"')).deadline
    assert later is not None
    assert later.time_s(1_000.0) == 8_200.0
    assert job.quality == jobs.QualitySettings(
        metric="loss", better=MetricDirection.HIGHER
    )
    assert job.target == jobs.TargetSettings(
        deliver=-1.0, final=0.25, hook=("notify", "--of", "two words"), hook_limit_s=5.0
    )


def test_without_a_word_a_lower_loss_is_better_and_nothing_is_written_about_it() -> (
    None
):
    job = parse(LEAST)

    assert job.measure == jobs.QualitySettings(
        metric="loss", better=MetricDirection.LOWER
    )
    assert job.measure.is_reached(0.5, 0.5)
    assert not job.measure.is_reached(0.5, float("nan"))
    assert "[quality]" not in render_job(job)
    assert "[target]" not in render_job(job)


FOUR = f"{LEAST}gpus_per_lease = 4\n[launch]\nlauncher = 'srun'\n"


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        (FOUR, 4),
        (f"{FOUR}ahead = true", 4),
        (f"{FOUR}processes_per_node = 1", 1),
        (LEAST, 1),
        (pack_file(nodes="max = 1\ngpus_per_lease = 4"), 1),
    ],
)
def test_a_lease_of_gpus_has_a_rank_for_each_unless_the_file_says_how_many(
    text: str, ranks: int
) -> None:
    assert parse(text).launch.processes_per_node == ranks


PIECES = f"{LEAST}gpus_per_lease = 1\n"
ALONE = PIECES.replace("max = 4", "max = 1")


@pytest.mark.parametrize("launcher", ["mpirun", 'custom"\ncommand = "x'])
def test_a_launcher_that_goes_by_nodes_gets_no_two_leases_on_one(launcher: str) -> None:
    launch = f'[launch]\nlauncher = "{launcher}"\n'

    said = refusal(PIECES + launch)

    assert "gpus_per_lease puts several leases on one node" in said
    assert 'choose launcher = "srun" or "torchrun"' in said
    assert parse(ALONE + launch).nodes.sizes == (1,)


@pytest.mark.parametrize("launcher", ["srun", "torchrun"])
def test_launchers_by_steps_take_several_leases_of_a_node(launcher: str) -> None:
    assert parse(f'{PIECES}[launch]\nlauncher = "{launcher}"\n').nodes.max_nodes == 4


def test_with_gpus_per_lease_slurm_alone_says_which_devices_there_are() -> None:
    line = "environment = { CUDA_VISIBLE_DEVICES = '0' }"

    assert "environment sets CUDA_VISIBLE_DEVICES" in refusal(f"{line}\n{ALONE}")
    assert parse(with_line(line)).environment == (("CUDA_VISIBLE_DEVICES", "0"),)


CONTAINER = f'{LEAST}[container]\nruntime = "apptainer"\n'


@pytest.mark.parametrize(
    ("image", "kept"),
    [
        ("torch.sif", "/home/ada/work/torch.sif"),
        ("./torch", "/home/ada/work/torch"),
        ("~/torch", "/home/ada/torch"),
        ("/images/torch", "/images/torch"),
        ("docker://quay.io/ada/torch.sif", "docker://quay.io/ada/torch.sif"),
        ("quay.io/ada/torch:2", "quay.io/ada/torch:2"),
    ],
)
def test_an_image_is_a_path_or_a_name_that_its_runtime_knows(
    image: str, kept: str
) -> None:
    container = parse(f'{CONTAINER}image = "{image}"').container

    assert container is not None
    assert container.image == kept
    assert (container.image_path is not None) == kept.startswith("/")


def test_folders_are_bound_where_the_job_file_says() -> None:
    binds = 'binds = ["data", "~/a:/b", "/c:/d:ro"]'
    container = parse(f'{CONTAINER}image = "a"\n{binds}').container

    assert container is not None
    assert container.binds == (
        "/home/ada/work/data:/home/ada/work/data",
        "/home/ada/a:/b",
        "/c:/d:ro",
    )


_STEPS = '[launch]\nlauncher = "srun"\n'


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('image = "-a"', "expected a container's image"),
        ('image = "a"\nbinds = ["/a:b"]', "expected folders such as"),
        ('image = "a"\nbinds = ["/a,b"]', "expected folders such as"),
        ('image = "a"\nbinds = ["/a:/b:z"]', "expected folders such as"),
        ('image = "a"\nruntime = "docker"', "expected one of apptainer"),
        ('image = "a"\n[launch]\nspare = true', "no spare is kept in a container"),
        ('image = "a"\nruntime = "pyxis"', 'is for launcher = "srun" or "torchrun"'),
        (
            f'image = "a"\nruntime = "pyxis"\n{_STEPS}[stop]\nsignal = "TERM"',
            'needs launcher = "srun" and [stop] signal = "USR2"',
        ),
    ],
)
def test_a_container_that_could_not_work_is_refused(lines: str, said: str) -> None:
    head = LEAST if "runtime" in lines else f'{LEAST}[container]\nruntime = "podman"\n'
    table = "" if "runtime" not in lines else "[container]\n"
    text = f"{'elastic = false' if 'TERM' in lines else ''}\n{head}{table}{lines}"

    assert said in refusal(text)


@pytest.mark.parametrize("runtime", ["apptainer", "singularity"])
@pytest.mark.parametrize(
    "option",
    ["-e", "--cleanenv", "--cleanenv=true", "-e=1", "-c", "--contain=T", "-ec", "-uC"],
)
def test_options_that_hide_variables_or_tmp_are_refused(
    runtime: str, option: str
) -> None:
    lines = f'image = "a"\nruntime = "{runtime}"\noptions = ["{option}"]'

    said = refusal(f"{LEAST}[container]\n{lines}")

    assert f"options has {option}, which keeps FreeTrain's variables or" in said


@pytest.mark.parametrize(
    "option", ["--cleanenv=false", "-e=0", "--no-home", "-u", "--env=A=1"]
)
def test_options_that_hide_nothing_are_taken(option: str) -> None:
    lines = f'image = "a"\nruntime = "apptainer"\noptions = ["{option}"]'
    container = parse(f"{LEAST}[container]\n{lines}").container

    assert container is not None
    assert container.options == (option,)


def test_an_option_that_hides_variables_in_apptainer_is_another_in_podman() -> None:
    options = 'runtime = "podman"\noptions = ["-e", "HF_HOME"]'
    container = parse(f'{LEAST}[container]\nimage = "a"\n{options}').container

    assert container is not None
    assert container.options == ("-e", "HF_HOME")


def test_members_of_a_pack_have_no_container() -> None:
    table = '[container]\nruntime = "podman"\nimage = "a"\n'

    assert "run on the node itself" in refusal(f"{pack_file()}\n{table}")


def test_name_command_and_most_nodes_are_enough() -> None:
    job = parse(LEAST)

    assert job == TrainerJob(
        name="digits",
        command=("python", "train.py"),
        directory=PLACES.folder,
        nodes=jobs.NodeSettings(max_nodes=4),
    )
    assert job.nodes.sizes == (1, 2, 3, 4)


@given(trainer_jobs())
def test_what_is_rendered_reads_back_as_the_same_from_anywhere(job: TrainerJob) -> None:
    text = render_job(job)

    again = parse_job(text.encode(), path="job.toml", places=ELSEWHERE)

    assert again == job
    assert render_job(again) == text


def test_a_rendered_job_says_the_defaults_too() -> None:
    text = render_job(parse(LEAST))

    assert 'directory = "/home/ada/work"' in text
    assert '[checkpoint]\nevery = "1min"' in text


@pytest.mark.parametrize(
    ("path", "error", "said"),
    [
        ("gone.toml", MissingInputError, r"cannot read job file gone\.toml: No"),
        ("a\0b", MissingInputError, "Nothing was submitted"),
        ("/dev/zero", BadConfigurationError, "larger than 1 MiB"),
    ],
    ids=["missing", "a name with NUL", "endless"],
)
def test_a_file_that_cannot_be_read_whole_is_refused(
    tmp_path: Path, path: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        read_job(tmp_path / path, named=path)


PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "job-file.md"
MANY_GRES = ",".join(f"g{k}" for k in range(200))


def refusal(text: str) -> str:
    with pytest.raises(BadConfigurationError) as refused:
        parse(text)
    assert refused.value.exit_code == 78
    return str(refused.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('naem = "a"', "job.toml: unknown key \"naem\". Did you mean 'name'?"),
        ("[node]", "job.toml: unknown key \"node\". Did you mean 'nodes'?"),
        ("name = 3", "job.toml: name = 3, expected up to 64 letters, digits"),
        ('name = "a\\nb"', 'name = "a\\nb", expected up to 64 letters'),
        ('name = "../a"', 'name = "../a", expected up to 64 letters'),
        (f'name = "{"a" * 10**6}"', "..., expected up to 64 letters"),
        ("command = []", "command = [], expected a command"),
        ('command = ""', 'command = "", expected a command'),
        ('command = [" "]', 'command = [" "], expected a command'),
        ('command = ["a", 3]', 'command = ["a", 3], expected a command'),
        ('command = "a \'b"', "expected a command; no closing quotation"),
        ('command = ["a\\u0000"]', 'command = ["a\\u0000"], expected a command'),
        (f'command = "{"a" * 300_000}"', "of up to 200000 bytes"),
        (f'command = ["a", "{"b" * 100_001}"]', "of up to 200000 bytes"),
        ("command = [" + f'"{"b" * 90_000}",' * 3 + "]", "of up to 200000 bytes"),
        ("command = [" + '"a",' * 10_001 + "]", "expected a command, such as"),
        ("command = '" + "a" * 200_000 + "\"'", "of up to 200000 bytes"),
        ('directory = ".."', 'directory = "..", expected a path'),
        ('directory = "a/../../b"', "expected a path of printable characters"),
        ('directory = ""', 'directory = "", expected a path'),
        ('directory = "~eve/x"', 'directory = "~eve/x", expected a path'),
        ('logs = "a\\nb"', 'logs = "a\\nb", expected a path'),
        ('logs = "a\\u0000b"', "expected a path of printable characters"),
        (f'logs = "{"a" * 5_000}"', "expected a path of printable characters"),
        ("environment = 3", "environment = 3, expected variables and their texts"),
        ('environment = { "A B" = "c" }', 'expected no variable "A B"'),
        ('environment = { "A" = 3 }', "expected a text without NUL for A"),
        ('environment = { "A" = "\\u0000" }', "expected a text without NUL for A"),
        ('environment = { SLURM_JOB_ID = "3" }', "no variable SLURM_JOB_ID; FreeTrain"),
        ('elastic = "yes"', 'elastic = "yes", expected true or false'),
        ("weight = 0", "weight = 0, expected a number above 0"),
        ("weight = nan", "weight = NaN, expected a number above 0"),
        (
            'order = "bakground"',
            "one of normal, background. Did you mean 'background'?",
        ),
        ("deadline = 2030-01-01T00:00:00", "or a time with its offset, such as"),
        ("deadline = 9999-12-31T23:00:00-01:00", "or a time with its offset"),
        ("deadline = 3600", "deadline = 3600, expected a duration with its unit"),
        ('deadline = "0s"', 'deadline = "0s", expected a duration with its unit'),
        ("weight = 2030-02-31T00:00:00Z", "this is not TOML"),
        (f"weight = 1{'0' * 5_000}", "this is not TOML"),
        ("scaling = { }", "scaling = {}, expected samples a second by node count"),
        ("scaling = { x = 1 }", '"x" is no node count from 1 to 100000'),
        ('scaling = { "1" = nan }', "for 1 nodes it has NaN"),
    ],
)
def test_a_mistake_at_the_top_is_named(line: str, said: str) -> None:
    message = refusal(with_line(line))

    assert said in message
    assert message.endswith("Nothing was submitted.")
    assert message.isprintable()
    assert len(message) < 1_000


@pytest.mark.parametrize(
    ("table", "line", "said"),
    [
        ("nodes", "min = 0", "[nodes]: min = 0, expected a whole number from 1"),
        ("nodes", "min = 5", "[nodes]: min = 5 is above max = 4"),
        ("nodes", "maxx = 5", "unknown key \"maxx\". Did you mean 'max'?"),
        ("nodes", "sizes = [5]", "expected a node count from min = 1 to max = 4"),
        ("nodes", "sizes = [1, 5]", "expected only node counts from min = 1 to max"),
        ("nodes", "sizes = []", 'sizes = [], expected "powers-of-two" or a list'),
        ("nodes", 'partition = "a b"', "expected the name of a partition"),
        ("nodes", 'partition = "-x"', "expected the name of a partition"),
        ("nodes", 'features = "a100"', 'expected a list such as ["a", "b"]'),
        ("nodes", 'features = ["a&b"]', 'expected a list such as ["a", "b"]'),
        ("nodes", f"features = {['a'] * 11}", "of up to 10, each the name of"),
        ("nodes", f'gres = "{MANY_GRES}"', "expected generic resources"),
        ("nodes", "features = [[]]", 'expected a list such as ["a", "b"]'),
        ("nodes", 'gres = "gpu:0"', 'gres = "gpu:0", expected generic resources'),
        ("nodes", 'gres = "gpu:2,gpu:3"', "each once"),
        ("nodes", 'gres = "gpu:²"', "expected generic resources"),
        ("nodes", 'gres = "gpu;rm"', "expected generic resources"),
        ("nodes", "gpus_per_lease = 0", "expected a whole number from 1 to 64"),
        ("nodes", "gpus_per_lease = 65", "expected a whole number from 1 to 64"),
        ("nodes", 'gpus_per_lease = 1\ngpu_type = "a100:2"', "expected a kind of GPU"),
        ("nodes", 'gpu_type = "a100"', "[nodes]: gpu_type is for leases of GPUs"),
        ("nodes", 'gpus_per_lease = 1\ngres = "gpu:2"', "and gres names GPUs too"),
        ("nodes", 'memory = "64GB"', 'memory = "64GB", expected an amount'),
        ("nodes", "memory = 64", "memory = 64, expected an amount with its unit"),
        ("launch", 'launcher = "mpirnu"', "Did you mean 'mpirun'?"),
        ("launch", "processes_per_node = 0", "expected a whole number from 1 to 4096"),
        ("launch", 'options = "-x"', "expected a list of words"),
        ("launch", 'options = ["\\u0000"]', "expected a list of words"),
        ("launch", "executable = []", "expected a program's name or path"),
        ("launch", 'command = ["x"]', 'command is for launcher = "custom"'),
        ("launch", 'launcher = "custom"', "needs command, such as"),
        (
            "launch",
            'launcher = "custom"\ncommand = ["x"]\noptions = ["y"]',
            "all goes into command",
        ),
        (
            "launch",
            'launcher = "custom"\ncommand = ["x", "{hostfil}"]',
            "Did you mean 'hostfile'?",
        ),
        (
            "launch",
            'launcher = "custom"\ncommand = ["x", "{hosts.__class__}"]',
            'command has "{hosts.__class__}", expected one of {hostfile}',
        ),
        (
            "launch",
            'launcher = "custom"\ncommand = ["x", "{hosts:{nodes}}"]',
            "expected one of {hostfile}",
        ),
        ("launch", 'launcher = "custom"\ncommand = ["x", "{"]', "write {{ for {"),
        ("launch", 'pack = "p.toml"', 'pack is for launcher = "pack", and it is mpir'),
        ("launch", 'launcher = "pack"', "needs pack, such as"),
        ("work", "samples = 1\nepochs = 1", "expected either samples or epochs"),
        ("work", 'time_limit = "0s"', "(s, min, h, d), such as"),
        ("work", "epochs = 1.5", "epochs = 1.5, expected a whole number"),
        ("checkpoint", "every = 30", "every = 30, expected a duration with its unit"),
        ("checkpoint", 'every = "30"', 'every = "30", expected a duration'),
        ("stop", 'signal = "USR1"', 'signal = "USR1", expected one of USR2, TERM'),
        ("stop", 'signal = "KILL"', 'signal = "KILL", expected one of USR2, TERM'),
        ("stop", "signal = []", "signal = [], expected one of USR2, TERM"),
        ("stop", 'kill_after = "2h"', "1s or more, 1h or less"),
        ("restart", "attempts = -1", "expected a whole number from 0 to 1000"),
        ("progress", 'format = "csv"', "[progress]: a program that uses freetrain"),
        ("progress", 'file = "x"', "[progress]: format is missing"),
        ("quality", 'metric = "a b"', 'metric = "a b", expected a metric\'s name'),
        ("quality", 'better = "hihger"', "Did you mean 'higher'?"),
        *(
            ("quality", f"lr_steps = {bad}", "expected a list of numbers above 0")
            for bad in ("[0]", "[]", "3000", "[true]", "[1, inf]", '["1"]')
        ),
        ("target", "final = 1", "[target]: deliver is missing"),
        ("target", "deliver = nan", "deliver = NaN, expected a number"),
        ("target", 'deliver = "0.1"', 'deliver = "0.1", expected a number'),
        ("target", "deliver = 1\nfinal = 2", "final = 2 comes before deliver = 1"),
        ("target", 'deliver = 1\nhook = ""', 'hook = "", expected a command'),
        ("target", 'deliver = 1\nhook_limit = "2h"', "1s or more, 1min or less"),
        ("target", 'deliver = 1\npublish = "../x"', "expected a path of printable"),
        ("costs", 'grow = "-1s"', 'grow = "-1s", expected a duration'),
    ],
)
def test_a_mistake_in_a_table_is_named(table: str, line: str, said: str) -> None:
    message = refusal(with_line(line, table=table))

    assert said in message
    assert f"job.toml: [{table}]: " in message
    assert message.isprintable()


def test_a_librarys_metrics_may_have_any_name_unless_fields_name_them() -> None:
    text = f'elastic = false\n{LEAST}[progress]\nformat = "lightning"\nfile = "logs"\n'
    metric = '[quality]\nmetric = "val/acc"\n'

    assert parse(text + metric).measure.metric == "val/acc"
    named = text + 'fields = { loss = "train_loss" }\n'
    assert parse(named).progress.reported == {"step", "epoch", "loss"}  # type: ignore[union-attr]
    assert "is no field of [progress]" in refusal(named + metric)


def test_json_lines_may_be_called_jsonl() -> None:
    text = (
        f"elastic = false\n{LEAST}[progress]\nfile = 'x'\nfields = {{ step = 's' }}\n"
    )

    assert parse(f"{text}format = 'jsonl'\n") == parse(f"{text}format = 'json-lines'\n")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('format = "pattern"', 'format = "pattern" needs pattern'),
        ('format = "csv"\nfile = "x"', 'format = "csv" needs file and fields'),
        ('format = "csv"\nfields = { step = "s" }', "needs file and fields"),
        ("format = \"pattern\"\npattern = '(?P<loss>.)'", "step or samples or epoch"),
        ("format = \"pattern\"\npattern = '('", "expected a regular expression; "),
        ("format = \"pattern\"\npattern = '[[a](?P<step>.)'", "Possible nested set"),
        (
            f"format = \"pattern\"\npattern = '(?P<step>a{{{'9' * 30}}})'",
            "expected a regular expression; ",
        ),
        ('format = "csv"\nfile = "x"\nfields = { loss = "l" }', "at least one of step"),
        ('format = "csv"\nfile = "x"\nfields = { step = "" }', "names of columns"),
        ('format = "lightning"', 'format = "lightning" needs file, and takes no'),
        ('format = "keras"\nfile = "x"\npattern = "(?P<step>.)"', "takes no pattern"),
        ('format = "wandb"\nfile = "x"', "expected one of pattern, csv, json-lines,"),
        ('format = "csv"\nfile = "x"\nfields = { "s t" = "a", step = "b" }', "names"),
    ],
)
def test_progress_that_could_not_be_read_is_refused(lines: str, said: str) -> None:
    text = f"elastic = false\n{LEAST}[progress]\n{lines}\n"

    assert said in refusal(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "job.toml: name is missing"),
        ('name = "a"\nnodes = { max = 1 }', "job.toml: command is missing"),
        ('name = "a"\ncommand = "b"', "job.toml: [nodes]: max is missing"),
        (
            'name = "a"\ncommand = "b"\nnodes = 3',
            "nodes = 3, expected a table, begun by a line [nodes]",
        ),
        ("= 3", "job.toml: the file: this is not TOML"),
        ("x = " + "[" * 100_000, "job.toml: the file: this is not TOML"),
    ],
)
def test_a_file_that_describes_no_trainer_is_refused(text: str, said: str) -> None:
    assert said in refusal(text)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"top": "command = 'x'"}, "members of a pack have commands"),
        ({"top": "elastic = false"}, "a pack stops and goes on by itself"),
        ({"nodes": "max = 2"}, "[nodes]: a pack is on one node, expected max = 1"),
        ({"launch": "processes_per_node = 2"}, "a pack takes no options, executable"),
        ({"launch": "options = ['-x']"}, "a pack takes no options, executable"),
        ({"launch": "executable = 'x'"}, "a pack takes no options, executable"),
        ({"launch": "spare = true"}, "a pack has no ranks that could begin in one"),
        ({"more": "[quality]\nmetric = 'loss'"}, "[quality]: a pack tells no metrics"),
        ({"more": "[target]\ndeliver = 1.0"}, "[target]: a pack tells no metrics"),
    ],
)
def test_what_makes_no_sense_for_a_pack_is_refused(
    part: dict[str, str], said: str
) -> None:
    assert said in refusal(pack_file(**part))


def test_the_message_that_the_page_shows_is_the_real_one() -> None:
    message = refusal(with_line('signal = "USR1"', table="stop"))

    assert f"error: {message}\n" in PAGE.read_text()


def test_home_is_not_guessed() -> None:
    with pytest.raises(BadConfigurationError, match="expected a path"):
        parse(with_line('logs = "~/x"'), BaseFolders(PLACES.folder))


def test_nothing_is_expanded_in_a_command() -> None:
    job = parse(with_line("command = 'run $HOME *.py ; rm `x` > y'"))

    assert job.command == ("run", "$HOME", "*.py", ";", "rm", "`x`", ">", "y")


values = st.recursive(
    st.sampled_from(
        ["true", "0", "1", "-1", "1e400", "nan", '"18s"', '"x"', '"\\u0000"', '"~"']
    )
    | st.sampled_from(["2030-01-01T00:00:00Z", "1979-05-27", '"powers-of-two"', "{}"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda v: f"[{', '.join(v)}]")
        | inner.map(lambda value: f'{{ "1" = {value}, step = {value} }}')
    ),
    max_leaves=4,
)
TABLES = {"": TrainerJob} | {
    key.name: key.type for key in keys_of(TrainerJob) if key.is_table
}
keys_of_tables = st.sampled_from(
    [(name, key.name) for name, table in TABLES.items() for key in keys_of(table)]
)


@given(st.dictionaries(keys_of_tables, values, max_size=4))
def test_any_value_anywhere_gives_a_trainer_or_one_clear_line(
    found: dict[tuple[str, str], str],
) -> None:
    base = {("", "name"): '"a"', ("", "command"): '"b"', ("nodes", "max"): "4"}
    pairs = base | found
    text = "".join(
        (f"[{table}]\n" if table else "")
        + "".join(f"{k} = {v}\n" for (t, k), v in pairs.items() if t == table)
        for table in TABLES
        if not table or any(t == table for t, _ in pairs)
    )
    said = ""
    try:
        parse(text)
    except BadConfigurationError as refused:
        said = str(refused)
    assert said == "" or (said.isprintable() and said.startswith("job.toml: "))


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_in_one_line(content: bytes) -> None:
    message = refusal(content.decode("latin-1"))

    assert message.isprintable()


@given(st.integers(0, len(WHOLE)), st.characters())
def test_one_wrong_character_never_surprises(at: int, char: str) -> None:
    text = WHOLE[:at] + char + WHOLE[at + 1 :]
    try:
        parse(text.encode(errors="replace").decode())
    except BadConfigurationError as refused:
        assert str(refused).isprintable()  # noqa: PT017  # most changes are harmless


@pytest.mark.parametrize(
    ("command", "program"),
    [
        (["python", "train.py", "--lr", "0.1"], ["python", "train.py"]),
        (["python", "-u", "train.py", "-b", "64"], ["python", "-u", "train.py"]),
        (["python", "-m", "pkg.train", "-b", "64"], ["python", "-m", "pkg.train"]),
        (["torchrun", "--nproc=4", "a.py", "x"], ["torchrun", "--nproc=4", "a.py"]),
        (["./train", "data", "-b", "64"], ["./train", "data"]),
        (["./box.sh", "python", "a.py", "-x"], ["./box.sh", "python", "a.py"]),
        (["python", "-m", "runner", "a.py"], ["python", "-m", "runner", "a.py"]),
        (["python", "-c", "print()"], ["python", "-c", "print()"]),
    ],
)
def test_trainers_of_one_script_are_of_one_program_whatever_its_options(
    command: list[str], program: list[str]
) -> None:
    job = parse(LEAST.replace('["python", "train.py"]', json.dumps(command)))

    assert job.program == tuple(program)


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ("[launch]\nspare = true", "[launch]: spare = true is for programs that join"),
        (
            "[target]\ndeliver = 1",
            "[target]: the table [progress] is missing, which says where",
        ),
        (
            (
                '[quality]\nmetric = "los"\n[progress]\nformat = "pattern"\n'
                "pattern = '(?P<step>.) (?P<loss>.)'"
            ),
            "the metric \"los\" is no field of [progress]. Did you mean 'loss'?",
        ),
        (
            (
                '[target]\ndeliver = 1\npublish = "x"\n[progress]\nformat = "csv"\n'
                'file = "f"\nfields = { step = "a", loss = "b" }'
            ),
            "publish is for programs that use freetrain.elastic",
        ),
    ],
)
def test_a_program_is_not_asked_for_what_it_cannot_give(tables: str, said: str) -> None:
    assert said in refusal(f"{with_line('elastic = false')}\n{tables}\n")
