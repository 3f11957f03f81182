"""A spot-training study's four hours of 32 instances, and its own plans for them.

The study (NSDI '24) publishes measured speeds of five networks by (data-parallel,
pipeline) degree, and which degree three planners chose in each minute: for throughput,
and for throughput expected under preemption ("liveput") with the true and the foretold
instances of the next minutes. A change costs every row the same stop here, so that
plans are compared; their cheaper migrations between pipelines are not.
"""

import ast
import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import freetrain as ft

TRACES = ("hh_55_65", "hl_15_25", "lh_80_90", "ll_10_11")
"""High or low availability, then many or few changes; hours of their trace."""

MODELS = {
    "bert": ("bert", 8, 1024),
    "gpt-1.5b": ("gpt-1.5b", 1, 128),
    "gpt-6.7b": ("gpt-6.7b", 1, 64),
    "resnet152": ("resnet152", 32, 2048),
    "vgg19": ("vgg19", 32, 2048),
}
"""Name, micro batch and batch of the speeds, by folder of traces."""

THEIRS = {
    "throughput_opt_strategy": "for throughput",
    "liveput_predict_strategy": "liveput, foretold",
    "liveput_truth_strategy": "liveput, true",
}
T_FWD_S = (120.0, 600.0)
"""Look-ahead of our plans: the published one, and the best of 120, 300, 600, 1,200 and
3,600 s on the two traces of few changes (hl, ll), at a stop of 40 s."""

MINUTE_S = 60.0

Degree = tuple[int, int]


@dataclass(frozen=True)
class Minute:
    """What one minute of a trace has.

    Attributes:
        there: The instances, those first that have been there longest.
        degrees: What each planner of the study chose, by its key.
    """

    there: tuple[str, ...]
    degrees: dict[str, Degree]


def read_minutes(path: Path) -> list[Minute]:
    """Read a trace of the study: a list in JSON for each minute."""
    there: tuple[str, ...] = ()
    minutes: list[Minute] = []
    for line in path.read_text().splitlines():
        at_ms, kind, what = json.loads(line)
        if at_ms != 60_000 * len(minutes) or what["duration"] != 60_000:
            raise ValueError(f"{path}: not a line for each minute: {line}")
        named = what["nodes"]
        if kind == "add":
            there = (*there, *(node for node in named if node not in there))
        elif kind == "remove":
            there = tuple(node for node in there if node not in named)
        elif named:
            raise ValueError(f"{path}: {kind} names instances: {line}")
        degrees = {key: (what[key][0], what[key][1]) for key in THEIRS}
        minutes.append(Minute(there, degrees))
    return minutes


def read_speeds(
    path: Path, model: str, micro_batch: int, batch: int
) -> dict[Degree, float]:
    """Return measured samples a second by degree, from the study's cost.py."""
    head = (
        rf"self\.model == '{re.escape(model)}' and "
        rf"model_info\['micro_batch_size'\] == {micro_batch} and "
        rf"model_info\['train_batch_size'\] == {batch}:\s+"
        r"self\.strategy_speed_throughput = (\{.*?\})"
    )
    found = re.search(head, path.read_text(), re.DOTALL)
    if found is None:
        raise ValueError(f"{path} has no speeds of {model}")
    table = ast.literal_eval(found[1])
    return {degree: speed for degree, (_, speed) in table.items()}


def by_count(speeds: dict[Degree, float], most: int) -> dict[int, float]:
    """Return the best speed on up to each number of instances that any degree fits."""
    counts = range(min(d * p for d, p in speeds), most + 1)
    return {n: max(v for (d, p), v in speeds.items() if d * p <= n) for n in counts}


def samples_of(
    minutes: list[Minute], key: str, speeds: dict[Degree, float], stop_s: float
) -> float:
    """Return the samples that a planner of the study trains.

    It runs on those instances that have been there longest, and stops where its degree
    changes or one of them leaves. A degree for more instances than are there trains
    with fewer pipelines.
    """
    samples = stopped_s = 0.0
    world: tuple[Degree, frozenset[str]] | None = None
    for minute in minutes:
        data, pipeline = minute.degrees[key]
        degree = (min(data, len(minute.there) // pipeline), pipeline)
        begun = (degree, frozenset(minute.there[: degree[0] * pipeline]))
        if world is None or degree != world[0] or world[1] - set(minute.there):
            world, stopped_s = begun, stop_s
        trained_s = max(0.0, MINUTE_S - stopped_s)
        stopped_s = max(0.0, stopped_s - MINUTE_S)
        samples += trained_s * speeds.get(degree, 0.0)
    return samples


def write_holes(minutes: list[Minute], path: Path) -> None:
    """Write when each instance was there, as idle intervals of a log."""
    end_s = MINUTE_S * len(minutes)
    rows = [f"# ends_s={end_s:g}", "node,idle_start_s,idle_end_s"]
    for node in sorted({node for each in minutes for node in each.there}):
        came_s: float | None = None
        for at, minute in enumerate([*minutes, None]):
            there = minute is not None and node in minute.there
            if there and came_s is None:
                came_s = MINUTE_S * at
            elif not there and came_s is not None:
                rows.append(f"{node},{came_s:g},{MINUTE_S * at:g}")
                came_s = None
    path.write_text("\n".join(rows) + "\n")


def ours(minutes: list[Minute], speeds: dict[int, float], stop_s: float) -> list[float]:
    """Return the samples of one trainer by each of our policies.

    The speed at a count is of the best degree that fits, as `for throughput` chooses.
    """
    with tempfile.TemporaryDirectory() as folder:
        holes, trainers = Path(folder, "holes.csv"), Path(folder, "trainers.toml")
        write_holes(minutes, holes)
        table = ", ".join(f'"{n}" = {speed}' for n, speed in speeds.items())
        trainers.write_text(
            "[[trainer]]\n"
            'name = "theirs"\n'
            "samples = 1e12\n"
            f"scaling = {{ {table} }}\n"
            f"min_nodes = {min(speeds)}\n"
            f'grow = "{stop_s}s"\nshrink = "{stop_s}s"\n'
            'checkpoint_every = "1s"\n'  # instances are told before they leave
        )
        return [
            _samples(holes, trainers, "freetrain", t_fwd_s) for t_fwd_s in T_FWD_S
        ] + [_samples(holes, trainers, "equal", T_FWD_S[0])]


def _samples(holes: Path, trainers: Path, policy: str, t_fwd_s: float) -> float:
    result = ft.replay(holes, trainers=trainers, policies=policy, t_fwd=t_fwd_s)
    return float(result.summary["samples"].iloc[0])


def table(folder: Path, stop_s: float) -> Iterator[str]:
    """Yield rows: samples as a share of training without any stop."""
    own = [f"freetrain, {t_fwd_s:g} s" for t_fwd_s in T_FWD_S]
    columns = ["network", "trace", *THEIRS.values(), *own, "equal"]
    yield f"| {' | '.join(columns)} |"
    yield "|" + "---|" * len(columns)
    found: dict[str, list[list[float]]] = {}
    for model, named in MODELS.items():
        speeds = read_speeds(folder / "liveput" / "cost.py", *named)
        for trace in TRACES:
            path = folder / "aws" / "traces" / model / f"trace_{trace}.txt"
            minutes = read_minutes(path)
            counts = by_count(speeds, max(len(each.there) for each in minutes))
            ideal = sum(MINUTE_S * counts.get(len(m.there), 0.0) for m in minutes)
            rows = [samples_of(minutes, key, speeds, stop_s) for key in THEIRS]
            shares = [each / ideal for each in [*rows, *ours(minutes, counts, stop_s)]]
            found.setdefault(trace[:2], []).append(shares)
            yield _row(model, trace[:2], shares)
    for trace, shares_of in found.items():
        yield _row(
            "mean", trace, [sum(e) / len(e) for e in zip(*shares_of, strict=True)]
        )


def _row(model: str, trace: str, shares: list[float]) -> str:
    return f"| {model} | {trace} | " + " | ".join(f"{s:.1%}" for s in shares) + " |"
