"""Every reader of what comes from outside: its samples, its call and its errors."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
from dataclasses import asdict, dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from freetrain.agent.observation import read_patience
from freetrain.broker.lease import parse_comment
from freetrain.client.submit import kept_environment
from freetrain.config.document import BaseFolders
from freetrain.config.job import (
    LIBRARIES,
    NodeSettings,
    ProgressFormat,
    ProgressSettings,
    TrainerJob,
    parse_job,
)
from freetrain.config.site import parse_rules, parse_site
from freetrain.elastic.checkpoint import (
    Checkpoint,
    Position,
    read_checkpoint,
    read_claim,
    write_checkpoint,
)
from freetrain.elastic.contract import ElasticError, parse_outcome, read_launch
from freetrain.elastic.files import RunDir
from freetrain.errors import FreeTrainError
from freetrain.losscurve.recorded import parse_curve
from freetrain.pack.pack import MemberRecord, PackRecord, read_pack, read_record
from freetrain.progress import ProgressReader, latest_progress
from freetrain.replay.trainers_file import parse_trainers
from freetrain.state.files import (
    Heartbeat,
    TickSign,
    TrainerDir,
    generations,
    read_assigned,
    read_ending,
    read_environment,
    read_heartbeat,
    read_tick_sign,
)
from freetrain.text import parse_duration
from freetrain.tick.status_report import as_plain, read_status_report
from logs.read import read_trace
from logs.sacct import expand_hostlist
from logs.trace import LogError
from slurm.associations import parse_assoc_mgr, parse_associations, parse_qos
from slurm.batch import parse_sbatch
from slurm.demands import parse_constraint
from slurm.errors import SlurmError
from slurm.json import (
    parse_jobs_json,
    parse_nodes_json,
    parse_partitions_json,
    parse_reservations_json,
)
from slurm.records import collapse, expand
from slurm.text import (
    parse_config,
    parse_nodes,
    parse_partitions,
    parse_reservations,
    parse_sdiag,
    parse_squeue,
    parse_topology,
    parse_version,
)
from tests.client.client_states import a_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOP = Path(__file__).parents[2]
SLURM = TOP / "tests" / "data" / "slurm"
PLACES = BaseFolders(Path("/work"), Path("/home/ada"))


@dataclass(frozen=True, slots=True)
class Reader:
    """One reader.

    Attributes:
        name: Its name in reports.
        samples: What it reads well.
        read: Reads bytes, in a folder for files.
        errors: What it may raise.
    """

    name: str
    samples: tuple[bytes, ...]
    read: Callable[[bytes, Path], object]
    errors: tuple[type[Exception], ...]


_MOST_SAMPLES = 6
"""The smallest answers of each kind: changing large ones takes most of the time."""


def _text(parse: Callable[[str], object]) -> Callable[[bytes, Path], object]:
    """Return a reader of texts, which come as a runner decodes them."""
    return lambda content, _: parse(content.decode("utf-8", "surrogateescape"))


def _recorded(*names: str) -> tuple[bytes, ...]:
    found = [path for name in names for path in sorted(SLURM.glob(f"*/*/{name}"))]
    contents = dict.fromkeys(path.read_bytes() for path in found)
    return tuple(sorted(contents, key=len)[:_MOST_SAMPLES])


def _json(*values: object) -> tuple[bytes, ...]:
    return tuple(json.dumps(value, indent=1).encode() for value in values)


def _number(value: float) -> dict[str, object]:
    return {"set": True, "infinite": False, "number": value}


JOB = {
    "job_id": 7,
    "array_job_id": _number(5),
    "array_task_id": _number(2),
    "job_state": ["RUNNING"],
    "user_name": "ada",
    "user_id": 1000,
    "name": "x",
    "partition": "main",
    "priority": _number(10),
    "nice": 0,
    "qos": "normal",
    "submit_time": _number(1.76e9),
    "start_time": 1_760_000_000,
    "end_time": None,
    "time_limit": _number(60),
    "nodes": "n[1-2]",
    "required_nodes": "n1",
    "node_count": _number(2),
    "cpus": _number(4),
    "tres_per_node": "gres/gpu:1",
    "state_reason": "None",
    "scheduled_nodes": "",
    "features": "a100&ib",
}
NODE = {
    "name": "n1",
    "state": ["IDLE"],
    "active_features": ["a100", "ib"],
    "cpus": 8,
    "gres": "gpu:a100:2(S:0-1)",
    "real_memory": 2000,
    "partitions": ["main"],
    "alloc_cpus": 0,
    "reason": "",
    "comment": "",
}
PARTITION = {
    "name": "main",
    "nodes": {"configured": "n[1-8]"},
    "preempt_mode": ["CANCEL"],
    "maximums": {"time": _number(60), "over_time_limit": _number(5)},
    "grace_time": 30,
    "priority": {"tier": 1},
    "partition": {"state": ["UP"]},
}
RESERVATION = {
    "name": "r",
    "start_time": _number(1.76e9),
    "end_time": _number(1.77e9),
    "node_list": "n[1-2]",
    "flags": ["MAINT"],
    "users": "ada",
    "accounts": "",
}

_FIELDS = "JobIDRaw|Submit|Start|End|Elapsed|Timelimit|NNodes|NodeList|State|Priority"
SACCT = f"""{_FIELDS}
1|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T01:00:00|00:59:00|1-00:00:00|2|n[1-2]|COMPLETED|5
1.batch|2026-01-01T00:00:00|2026-01-01T00:01:00|Unknown|00:59:00||1|n1|RUNNING|
2_[1-3]|1767225600|None|Unknown|00:00:00|UNLIMITED|1.5K|None assigned|PENDING|7
"""
SWF = """; Version: 2.2
; UnixStartTime: 1767225600
; MaxNodes: 8
; MaxProcs: 64
1 0 10 100 8 -1 -1 8 200 -1 1 3 -1 -1 1 1 -1 -1
2 5 -1 -1 -1 -1 -1 16 300 -1 5 4 -1 -1 1 1 -1 -1
"""
JOBS_CSV = """# 4360 KNL nodes, t0_unix=1641021254
job,submit_s,start_s,run_s,nodes,req_s,user
a,0,10.5,100,8,200,ada
"b,c",5,-1,-1,,1e3,"o""hm"
"""
GPU_CSV = """# 32 nodes, gpus_per_node=8
job_id,gpu_num,node_num,submit_time,start_time,end_time,node_list,time_limit,state
a,16,2,2023-03-01 00:18:22+08:00,2023-03-01T00:18:54Z,,"n[1-2]",60,ok
b,1,,1677601102,1677601109,1677602000,n1,-1,
"""
FRAGMENTS = """# Summit, 47 nodes
node,idle_start_s,idle_end_s
3,0,100
12,50.5,70
3,200,1e4
"""


def _parquet() -> Iterator[bytes]:
    for text in (JOBS_CSV, FRAGMENTS, GPU_CSV):
        content = io.BytesIO()
        frame = pd.read_csv(io.StringIO(text), comment="#")
        frame.attrs["comments"] = [text.splitlines()[0].removeprefix("# ")]
        frame.to_parquet(content)
        yield content.getvalue()


def _read_log(content: bytes, folder: Path) -> object:
    path = folder / "log"
    path.write_bytes(content)
    return read_trace(path, skip_bad=len(content) % 3)


def _job_files() -> tuple[bytes, ...]:
    files = TOP.glob("examples/*/job.toml")
    return (*(path.read_bytes() for path in sorted(files)), FULL_JOB)


FULL_JOB = rb"""
name = "t"
command = "python train.py --lr 0.1"
elastic = false
environment = { OMP_PROC_BIND = "close", A = '''b''' }
scaling = { "1" = 100.0, "2" = 190.0 }
deadline = 2026-12-24T18:00:00Z
[nodes]
min = 1
max = 8
sizes = "powers-of-two"
gres = "gpu:a100:2,nvme:1"
memory = "64GiB"
[work]
samples = 1e6
time_limit = "2d"
[checkpoint]
path = "~/run"
every = "1.5min"
[progress]
format = "pattern"
pattern = 'step (?P<step>\d+) loss (?P<loss>\S+)'
[quality]
metric = "loss"
[target]
deliver = 0.5
hook = ["tell", "ada"]
"""
SITE = b"""
state_directory = "/work/.freetrain"
[lease]
partition = "main"
mode = "yield"
gres = "gpu:2"
longest = "4h"
[caps]
leases = 8
[planner]
priority = "weight"
priority_settings = { hysteresis = 0.1 }
[holes]
margin = "30s"
"""
RULES = b"""
[caps]
leases = 100
[weights]
ada = 2.0
"""
PACK = b"""
members = ["digits.toml", "wine/job.toml"]
inbox = "inbox"
stay = "1min"
sharing = "fair"
alpha = 0.05
"""
TRAINERS = b"""
[[trainer]]
name = "bert"
count = 3
arrival = "10s"
every = "1h"
samples = 1e6
scaling = { "1" = 100.0, "2" = 190.0 }
"""
CURVE_FOLDER = Path(str(files("freetrain.losscurve"))) / "curves"


def _curves() -> tuple[bytes, ...]:
    files = sorted(CURVE_FOLDER.rglob("*.csv"), key=lambda path: path.stat().st_size)
    return tuple(path.read_bytes() for path in files[:3])


def _read_pack(content: bytes, folder: Path) -> object:
    path = folder / "pack.toml"
    path.write_bytes(content)
    return read_pack(path, home=folder)


def _of_library(name: str) -> bytes:
    """Return the one file that a library wrote in the folder *name*."""
    folder = Path(__file__).parents[1] / "data" / "progress" / name
    (file,) = folder.iterdir()
    return file.read_bytes()


PROGRESS = {
    ProgressFormat.PATTERN: b"step 1 loss 0.5\nepoch 2 step 1,234 loss nan\r[3/9] ok\n",
    ProgressFormat.CSV: b"step,loss,t\n1,0.5,1767225600\n2,,\nstep;loss;t\n3;1e-3;7\n",
    ProgressFormat.JSON_LINES: b'{"step": 1, "val": {"loss": 0.5}}\n{"step": "2"}\n',
    ProgressFormat.TENSORBOARD: _of_library("torch"),
    ProgressFormat.HUGGINGFACE: _of_library("huggingface/checkpoint-8"),
    ProgressFormat.LIGHTNING: _of_library("lightning/lightning_logs/version_0"),
    ProgressFormat.KERAS: _of_library("keras"),
}
ELASTIC = _json(
    {"t": 1.0, "step": 1, "samples": 32, "epoch": 0, "generation": 1, "world_size": 2},
    {"step": 2, "loss": None, "nonfinite": {"loss": "nan"}, "event": "start"},
)
NAMED = (("loss", "val.loss"), ("step", "step"), ("t", "t"))


def _progress(form: ProgressFormat | None) -> Callable[[bytes, Path], object]:
    def read(content: bytes, folder: Path) -> object:
        file = folder / "progress.jsonl"
        head, mark, rest = content.partition(b"\x01")
        pattern = head.decode("utf-8", "replace") if mark else ""
        file.write_bytes(rest if mark else content)
        progress = None
        if form is not None:
            fields = () if pattern or form in LIBRARIES else NAMED
            files = file if form not in LIBRARIES else folder / "progress.*"
            progress = ProgressSettings(
                form=form, file=files, pattern=pattern, fields=fields
            )
        job = TrainerJob(
            name="t",
            directory=folder,
            nodes=NodeSettings(max_nodes=1),
            elastic=form is None,
            progress=progress,
        )
        try:
            reader = ProgressReader(job, folder, folder / "logs")
            reader.read()
            latest_progress(job, folder, folder / "logs")
        except (re.error, ValueError, RecursionError, OverflowError) as error:
            # Patterns are checked before: ``_read_pattern`` refuses what `re` does.
            if not mark or not _is_of_re(error):
                raise
        return None

    return read


def _is_of_re(error: Exception) -> bool:
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return frame is not None and "/re/" in frame.tb_frame.f_code.co_filename


PATTERNS = tuple(
    pattern + b"\x01" + line * 20
    for pattern, line in (
        (rb"step (?P<step>\d+) loss (?P<loss>\S+)", b"step 1 loss 0.5 step 2 loss 1\n"),
        (rb"(?P<step>a+)+b", b"a" * 62 + b"\n"),
        (rb"(?P<epoch>\d+)/\d+ (?:\S+\s+)*(?P<loss>[-+.\deE]+)", b"1/2 a b c 1e-3\n"),
        (rb"(?i)(?P<step>[a-z0-9]*)(.*)(.*)x", b"step step step\n"),
    )
)

LEASE = {"key": {"uuid": "u", "task": 0}, "job_id": 1, "display_id": "1", "node": "n"}
ASSIGNED = {
    "trainer": "t",
    "generation": 1,
    "members": [{**LEASE, "end_s": 1.0}],
    "created_s": 1.0,
    "author": "broker",
    "reason": "grow",
}
ENDING = {
    "generation": 1,
    "ended": "rescaled",
    "was_asked": True,
    "lost_lease": False,
    "exit_code": 0,
    "step": 1,
    "committed_step": 1,
    "message": "",
    "author": "u-0",
    "started_s": 1.0,
    "ended_s": 2.0,
}
OUTCOME = {
    "outcome": "finished",
    "generation": 1,
    "step": 3,
    "committed_step": 3,
    "message": "done",
    "t": 1.0,
}


def _file(
    name: str, read: Callable[[TrainerDir], object]
) -> Callable[[bytes, Path], object]:
    def read_file(content: bytes, folder: Path) -> object:
        trainer = TrainerDir(folder / "t")
        trainer.create()
        trainer.run.create()
        path = trainer.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return read(trainer)

    return read_file


def _names(content: bytes, folder: Path) -> object:
    """Give names of files: notices, generations, claims, checkpoints."""
    run = RunDir(folder / "run")
    run.create()
    for name in content.split(b"\n")[:20]:
        text = name.decode("utf-8", "replace").replace("/", "").replace("\0", "")[:60]
        if text.strip("."):
            (run.generations / text).touch()
            (run.checkpoints / text).touch()
    return run.newest_generation(), run.committed(), generations(run.generations)


def _checkpoints() -> tuple[bytes, ...]:
    file = io.BytesIO()
    state = {"weights": 1.5, "list": [1, "a", None, True], "nested": {"b": 2}}
    write_checkpoint(Checkpoint(1, Position(3, 96, 0, 32), {"seed": 1}, state), file)
    return (file.getvalue(),)


def _read_checkpoint(content: bytes, _: Path) -> object:
    if len(content) % 2:  # with a digest that fits, so that what is inside is read
        body, digits = content[:-64], 64 * b"0"
        content = body + hashlib.sha256(body + digits).hexdigest().encode()
    return read_checkpoint(content)


ENVIRONMENT = (
    b"FREETRAIN_RUN_DIR=/run\nFREETRAIN_GENERATION=2\nFREETRAIN_AFTER=1\n"
    b"FREETRAIN_WORLD_SIZE=4\nFREETRAIN_STOP_SIGNALS=TERM,USR2\n"
    b"FREETRAIN_COMMIT_EVERY_S=60\nFREETRAIN_PROGRESS_EVERY_S=0.5\n"
)


def _read_variables(content: bytes, _: Path) -> object:
    lines = content.decode("utf-8", "surrogateescape").split("\n")
    environment = dict(line.partition("=")[::2] for line in lines)
    return read_launch(environment), kept_environment(environment)


def _read_names(text: str) -> object:
    names = expand(text)
    return expand(collapse(names)) if names else None


def _toml(parse: Callable[..., object]) -> Callable[[bytes, Path], object]:
    return lambda content, _: parse(content, path="file.toml", places=PLACES)


def _readers() -> Iterator[Reader]:
    recorded: tuple[tuple[str, Callable[[str], object]], ...] = (
        ("jobs.txt", parse_squeue),
        ("nodes.txt", parse_nodes),
        ("partitions.txt", parse_partitions),
        ("reservations.txt", parse_reservations),
        ("config.txt", parse_config),
        ("sdiag-*.txt", parse_sdiag),
        ("version.txt", parse_version),
        ("topology*.txt", parse_topology),
        ("assoc_mgr*.txt", parse_assoc_mgr),
        ("associations.txt", partial(parse_associations, user="root")),
        ("qos.txt", parse_qos),
    )
    for name, parse in recorded:
        yield Reader(f"slurm {name}", _recorded(name), _text(parse), (SlurmError,))
    answers: tuple[tuple[str, object, Callable[[str], object]], ...] = (
        ("jobs", JOB, parse_jobs_json),
        ("nodes", NODE, parse_nodes_json),
        ("partitions", PARTITION, parse_partitions_json),
        ("reservations", RESERVATION, parse_reservations_json),
    )
    for key, value, parse in answers:
        samples = _json({key: [value, value], "errors": []})
        yield Reader(f"slurm {key} as JSON", samples, _text(parse), (SlurmError,))
    lists = (b"n[1-3,07],m05,r[1-2]c[01-04]-ib", b"n1", b"(null)")
    yield Reader("hostlists", lists, _text(_read_names), (SlurmError,))
    yield Reader("hostlists of logs", lists, _text(expand_hostlist), (ValueError,))
    yield Reader(
        "sbatch's answer",
        (b"1234;cluster\n", b"7\n"),
        _text(parse_sbatch),
        (SlurmError,),
    )
    constraints = (b"a100&ib", b"[a|b]", b"(a|b)&!c*2", b"a*2&b*3")
    yield Reader("constraints", constraints, _text(parse_constraint), ())
    comments = (b"freetrain u-1 state=1a2b3c4d pool=1 want=8 beat=1900000000",)
    yield Reader("lease comments", comments, _text(parse_comment), ())

    logs = {"sacct": SACCT, "swf": SWF, "jobs-csv": JOBS_CSV, "fragments": FRAGMENTS}
    logs["gpu-csv"] = GPU_CSV
    for name, text in logs.items():
        yield Reader(f"log {name}", (text.encode(),), _read_log, (LogError,))
    headless = SACCT.partition("\n")[2].replace("|", "|#")
    yield Reader("log sacct headless", (headless.encode(),), _read_log, (LogError,))
    packed = tuple(gzip.compress(text.encode(), mtime=0) for text in logs.values())
    yield Reader("log gzip", packed, _read_log, (LogError,))
    yield Reader("log parquet", tuple(_parquet()), _read_log, (LogError,))
    yield Reader(
        "recorded curves",
        _curves(),
        _text(partial(parse_curve, file="x.csv")),
        (FreeTrainError,),
    )

    yield Reader("job.toml", _job_files(), _toml(parse_job), (FreeTrainError,))
    yield Reader("freetrain.toml", (SITE,), _toml(parse_site), (FreeTrainError,))
    yield Reader(
        "site.toml",
        (RULES,),
        lambda content, _: parse_rules(content, path="site.toml"),
        (FreeTrainError,),
    )
    yield Reader("pack.toml", (PACK,), _read_pack, (FreeTrainError,))
    yield Reader(
        "trainers.toml",
        (TRAINERS,),
        lambda content, _: parse_trainers(content, path="trainers.toml"),
        (FreeTrainError,),
    )
    durations = (b"1.5h", b"30 min", b"2d")
    yield Reader("durations", durations, _text(parse_duration), (ValueError,))

    yield Reader("progress of elastic", ELASTIC, _progress(None), ())
    for form, sample in PROGRESS.items():
        samples = PATTERNS if form is ProgressFormat.PATTERN else (sample,)
        yield Reader(f"progress {form}", samples, _progress(form), ())

    beat = asdict(Heartbeat(beat=1, t=1.0, node="n", host="h", pid=1))
    sign = asdict(TickSign(tick=1, silence_s=180.0))
    a_file = "assignments/0000000001.json"
    files: tuple[tuple[str, str, object, Callable[[TrainerDir], object]], ...] = (
        ("assignment", a_file, ASSIGNED, lambda t: read_assigned(t, 1)),
        ("ending", "endings/0000000001.json", ENDING, lambda t: read_ending(t, 1)),
        ("heartbeat", a_file, beat, lambda t: read_heartbeat(t.assignment(1))),
        ("tick sign", a_file, sign, lambda t: read_tick_sign(t.assignment(1))),
        ("variables", "environment.json", {"A": "b"}, read_environment),
        (
            "status report",
            a_file,
            as_plain(a_page()),
            lambda t: read_status_report(t.assignment(1)),
        ),
        ("claim", a_file, {"world": "a", "committed_step": 3}, _read_claim),
        (
            "pack record",
            "run/pack.json",
            asdict(PackRecord(members={"a": MemberRecord(arrived_s=1.0)})),
            lambda t: read_record(t.run),
        ),
    )
    for name, place, value, read in files:
        yield Reader(name, _json(value), _file(place, read), (FreeTrainError,))
    yield Reader(
        "outcome", _json(OUTCOME), lambda content, _: parse_outcome(content, 1), ()
    )
    names = (b"0000000001.started\n0000000001-000000000000030.npz\n0000000002.json",)
    yield Reader("names of files", names, _names, (OSError,))
    yield Reader("checkpoint", _checkpoints(), _read_checkpoint, (ElasticError,))
    yield Reader(
        "launch variables",
        (ENVIRONMENT,),
        _read_variables,
        (ElasticError, FreeTrainError),
    )
    patience = (b"silent_s=3,stuck_s=3,poll_s=0.1",)
    yield Reader("agent patience", patience, _text(read_patience), (FreeTrainError,))


def _read_claim(trainer: TrainerDir) -> Any:  # noqa: ANN401 -- whatever it is
    return read_claim(trainer.assignment(1))


READERS = {reader.name: reader for reader in _readers()}
