"""Job files as tests write them, and strategies that make up any."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

from hypothesis import strategies as st
from msgspec import structs

from freetrain.config import job as jobs
from freetrain.config.document import BaseFolders
from freetrain.config.job import TrainerJob, parse_job
from freetrain.losscurve.forecast import MetricDirection
from slurm.records import Gres

PLACES = BaseFolders(Path("/home/ada/work"), Path("/home/ada"))

WHOLE = """
name = "digits"
command = "python train.py --note 'two words; $(rm -rf /)'"
directory = "src"
environment = { OMP_PROC_BIND = "close", EMPTY = "" }
elastic = false
logs = "~/logs"
weight = 2
order = "background"
scaling = { "1" = 100.0, "4" = 350 }
deadline = 2026-12-24T18:00:00+01:00

[nodes]
min = 2
max = 9
sizes = "powers-of-two"
partition = "gpu"
features = ["a100", "ib"]
gres = "gpu:a100:2,nvme"
memory = "64GiB"
cpus = 16

[launch]
launcher = "srun"
processes_per_node = 2
threads = 8
ahead = false
spare = false
executable = "/opt/slurm/bin/srun"
options = ["--cpu-bind=cores"]

[work]
epochs = 20
time_limit = "2d"

[checkpoint]
path = "/scratch/ada/digits"
every = "0.5min"

[stop]
signal = "TERM"
kill_after = "10s"

[restart]
attempts = 5
wait = "1min"

[progress]
format = "pattern"
file = "train.log"
pattern = 'step (?P<step>\\d+) loss (?P<loss>\\S+)'

[quality]
metric = "loss"
better = "higher"

[target]
deliver = -1
final = 2.5e-1
hook = "notify --of 'two words'"
hook_limit = "5s"

[costs]
grow = "18s"
shrink = "12s"
start = "20s"
"""

LEAST = """
name = "digits"
command = ["python", "train.py"]
[nodes]
max = 4
"""


def parse(text: str, places: BaseFolders = PLACES) -> TrainerJob:
    return parse_job(text.encode(), path="job.toml", places=places)


def pack_file(
    *, top: str = "", nodes: str = "max = 1", launch: str = "", more: str = ""
) -> str:
    """Return the least job file of a pack, changed."""
    pack = 'launcher = "pack"\npack = "pack.toml"'
    tables = f"[nodes]\n{nodes}\n[launch]\n{pack}\n{launch}\n{more}\n"
    return f'name = "small-ones"\n{top}\n{tables}'


def with_line(line: str, *, table: str = "") -> str:
    """Return the least job file with one more line, in *table*."""
    if not table:
        key = line.split(" ", maxsplit=1)[0]
        rows = [row for row in LEAST.splitlines() if not row.startswith(f"{key} ")]
        return "\n".join([line, *rows])
    if table == "nodes":
        return f"{LEAST}{line}\n"
    return f"{LEAST}[{table}]\n{line}\n"


texts = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20
)
arguments = st.lists(texts, max_size=3).map(tuple)
commands = st.tuples(texts.filter(lambda text: text.strip() != ""), texts)
words = st.from_regex(r"\A[A-Za-z0-9_][A-Za-z0-9_.:@+-]{0,9}\Z")
durations = st.integers(1, 3_000_000).map(lambda ms: ms / 1_000)
numbers = st.floats(min_value=1e-300, max_value=1e300)
names = st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_]{0,9}\Z")
paths = st.from_regex(r"\A(/[A-Za-z0-9 ~$'\";é-]{1,8}){1,3}\Z").map(Path)
kinds = st.sampled_from(["a100", "1g.5gb"])


def _generic(*names: str) -> st.SearchStrategy[Gres]:
    counts = st.integers(1, 99_999)
    return st.builds(Gres, st.sampled_from(names), st.just("") | kinds, counts)


@st.composite
def node_counts(draw: st.DrawFn) -> jobs.NodeSettings:
    least = draw(st.integers(1, 40))
    most = draw(st.integers(least, 100_000))
    listed = st.lists(st.integers(least, most), min_size=1, max_size=4)
    only = st.just(()) | listed.map(lambda found: tuple(sorted(set(found))))
    if most >= 2 * least:
        only |= st.just(tuple(2**k for k in range(17)))
    gpus = draw(st.none() | st.integers(1, 64))
    return jobs.NodeSettings(
        min_nodes=least,
        max_nodes=most,
        only=draw(only),
        partition=draw(st.none() | words),
        features=draw(st.lists(words, max_size=2, unique=True).map(tuple)),
        gpus_per_lease=gpus,
        gpu_type=draw(st.none() | kinds) if gpus else None,
        gres=draw(st.none() | st.tuples(_generic("nvme", *([] if gpus else ["gpu"])))),
        memory_mib=draw(st.none() | st.integers(1, 2**29)),
        cpus=draw(st.none() | st.integers(1, 100_000)),
    )


launches = st.builds(
    jobs.LaunchSettings,
    launcher=st.sampled_from(["mpirun", "srun", "torchrun"]),
    processes_per_node=st.integers(1, 4_096),
    ahead=st.booleans(),
    threads=st.none() | st.integers(1, 4_096),
    executable=st.just("") | texts.filter(lambda text: text.strip() != ""),
    options=arguments,
) | st.builds(
    jobs.LaunchSettings,
    launcher=st.just("custom"),
    command=st.just(("mpiexec", "-f", "{hostfile}", "{{", "-n", "{processes}")),
)
packs = st.builds(
    jobs.LaunchSettings,
    launcher=st.just("pack"),
    ahead=st.booleans(),
    threads=st.none() | st.integers(1, 4_096),
    pack=paths,
)
spares = st.none() | st.booleans()
works = st.builds(
    jobs.WorkSettings,
    samples=st.none() | numbers,
    time_limit_s=st.none() | durations.filter(lambda s: s >= 1),
) | st.builds(jobs.WorkSettings, epochs=st.integers(1, 10**9))
told = st.dictionaries(names, words, max_size=2).map(
    lambda more: tuple(sorted((more | {"step": "a step"}).items()))
)
progresses = (
    st.builds(
        jobs.ProgressSettings,
        form=st.just(jobs.ProgressFormat.PATTERN),
        file=st.none() | paths,
        pattern=st.sampled_from([r"(?P<step>\d+)", r'"(?P<epoch>\S+)" é (?P<loss>.*)']),
    )
    | st.builds(
        jobs.ProgressSettings,
        form=st.sampled_from([jobs.ProgressFormat.CSV, jobs.ProgressFormat.JSON_LINES]),
        file=paths,
        fields=told,
    )
    | st.builds(
        jobs.ProgressSettings,
        form=st.sampled_from(sorted(jobs.LIBRARIES)),
        file=paths,
        fields=st.just(()) | st.just((("loss", "train/loss"),)),
    )
)
variables = st.dictionaries(names, texts, max_size=3).map(
    lambda found: tuple(sorted(found.items()))
)
curves = st.dictionaries(st.integers(1, 100_000), numbers, max_size=3).map(
    lambda points: tuple(sorted(points.items()))
)
zones = st.integers(-14 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m)))
deadlines = durations.filter(lambda s: s >= 1).map(jobs.JobDeadline) | st.datetimes(
    datetime(1971, 1, 1),  # noqa: DTZ001 - the strategy adds the zone
    datetime(2999, 1, 1),  # noqa: DTZ001
    timezones=zones | st.just(UTC),
).map(lambda at: jobs.JobDeadline(at=at))
qualities = st.builds(
    jobs.QualitySettings,
    metric=st.sampled_from(["loss", "val/accuracy", "1@5"]),
    better=st.sampled_from(MetricDirection),
    lr_steps=st.lists(st.floats(1e-3, 1e12), max_size=3, unique=True).map(
        lambda steps: tuple(sorted(steps))
    ),
)


@st.composite
def targets(draw: st.DrawFn, quality: jobs.QualitySettings) -> jobs.TargetSettings:
    ends = st.floats(allow_nan=False, allow_infinity=False)
    first, last = sorted(draw(st.tuples(ends, ends)))
    if quality.better is MetricDirection.LOWER:
        first, last = last, first
    return jobs.TargetSettings(
        deliver=first,
        final=draw(st.none() | st.just(last)),
        publish=draw(st.none() | paths),
        hook=draw(st.just(()) | commands),
        hook_limit_s=draw(st.integers(1, 60)),
    )


@st.composite
def containers(draw: st.DrawFn) -> jobs.ContainerSettings:
    bind = st.sampled_from(["/data:/data", "/a b:/c:ro", "/d:/d:rw"])
    return jobs.ContainerSettings(
        image=draw(st.sampled_from(["/i/a.sif", "docker://a/b:1", "nvcr.io#nvidia/c"])),
        runtime=draw(st.sampled_from(sorted({*jobs.ContainerRuntime} - {"pyxis"}))),
        binds=tuple(draw(st.lists(bind, max_size=2))),
        gpus=draw(st.none() | st.sampled_from(jobs.ContainerGpus)),
        options=draw(st.sampled_from([(), ("--fakeroot",)])),
    )


@st.composite
def trainer_jobs(draw: st.DrawFn) -> TrainerJob:
    progress = draw(st.none() | progresses)
    is_elastic = progress is None and draw(st.booleans())
    quality = draw(st.none() | qualities) if is_elastic else None
    target = st.none() | targets(quality or jobs.QualitySettings())
    seldom = st.none() | durations
    is_pack = is_elastic and quality is None and draw(st.booleans())
    nodes = jobs.NodeSettings(max_nodes=1) if is_pack else draw(node_counts())
    by_steps = launches.filter(lambda launch: launch.launcher in {"srun", "torchrun"})
    of_programs = launches if nodes.gpus_per_lease is None else by_steps
    has_container = not is_pack and draw(st.booleans())
    return TrainerJob(
        name=draw(st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")),
        command=() if is_pack else draw(commands),
        directory=draw(paths),
        nodes=nodes,
        environment=draw(variables),
        elastic=is_elastic,
        logs=draw(st.none() | paths),
        weight=draw(numbers),
        order=draw(st.sampled_from(jobs.ServiceOrder)),
        scaling=draw(curves),
        deadline=draw(st.none() | deadlines),
        launch=structs.replace(
            draw(packs if is_pack else of_programs),
            spare=draw(st.sampled_from([False, None]) if has_container else spares)
            if is_elastic and not is_pack
            else None,
        ),
        container=draw(containers()) if has_container else None,
        work=draw(works),
        checkpoint=jobs.CheckpointSettings(
            path=draw(st.none() | paths), every_s=draw(durations)
        ),
        stop=jobs.StopSettings(signal=draw(st.sampled_from(jobs.StopSignal))),
        restart=jobs.RestartSettings(attempts=draw(st.integers(0, 1_000))),
        progress=progress,
        quality=quality,
        target=draw(target) if is_elastic and not is_pack else None,
        costs=jobs.RescaleCosts(grow_s=draw(seldom), start_s=draw(seldom)),
    )
