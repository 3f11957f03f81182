"""The workloads of a scheduler that also chooses batch sizes, by ours, which does not.

The authors (OSDI 2021) publish eight workloads of 160 jobs on 16 nodes of four GPUs,
and what they measured of six networks: step times by placement and batch, and
iterations of each epoch by batch size. Each job keeps the batch size here that a user
had tuned, as with their two rivals; their own scheduler changes it as it goes.
"""

import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.interpolate import LinearNDInterpolator

import freetrain as ft

GPUS = 64
PER_NODE = 4
RESCALE_S = 30
"""What every change costs a job in their simulator."""

EPOCHS = {
    "bert": 2,
    "cifar10": 100,
    "ncf": 10,
    "imagenet": 90,
    "deepspeech2": 80,
    "yolov3": 50,
}
MOST_LOCAL = {"yolov3": 8}
"""The largest batch of one GPU, where it is not the largest that was measured."""

ONE_GPU = ("ncf",)
"""Networks that their simulator keeps on one GPU under every policy."""

THEIRS = ("pollux", "optimus", "tiresias")


class Network:
    """What was measured of a network, from its folder of traces."""

    def __init__(self, folder: Path) -> None:
        """Read the folder."""
        self.name = folder.name
        self._runs = {
            int(path.stem.split("-")[1]): pd.read_csv(path)
            for path in folder.glob("validation-*.csv")
        }
        placed = pd.read_csv(folder / "placements.csv", dtype={"placement": str})
        self._placed = dict(iter(placed.groupby("placement")))
        digits = placed["placement"].map(lambda name: [int(digit) for digit in name])
        placed["num_nodes"] = digits.map(len)
        placed["num_replicas"] = digits.map(sum)
        self._least = int(placed["local_bsz"].min())
        self._most = MOST_LOCAL.get(self.name, int(placed["local_bsz"].max()))
        at, took = (
            ["num_nodes", "num_replicas", "local_bsz"],
            ["step_time", "sync_time"],
        )
        means = placed.groupby(at, as_index=False)[took].mean()
        rows = pd.concat([means, pd.read_csv(folder / "scalability.csv")])
        self._between = LinearNDInterpolator(rows[at].to_numpy(), rows[took].to_numpy())

    def samples(self, batch: int) -> float:
        """Return the samples that a training with *batch* takes."""
        last = EPOCHS[self.name] - 1
        return float(self._runs[batch]["iteration"][last]) * batch

    def speeds(self, batch: int) -> dict[int, float]:
        """Return samples a second by GPUs, which lie on as few nodes as hold them."""
        most = 1 if self.name in ONE_GPU else min(GPUS, batch // self._least)
        speeds = {gpus: self._speed(batch, gpus) for gpus in range(1, most + 1)}
        return {gpus: speed for gpus, speed in speeds.items() if speed > 0}

    def _speed(self, batch: int, gpus: int) -> float:
        each = math.ceil(batch / gpus)
        passes = math.ceil(each / self._most)
        local = math.ceil(each / passes)
        step_s, sync_s = self._times(gpus, local)
        took_s = step_s + (passes - 1) * (step_s - sync_s)
        return local * passes * gpus / took_s if took_s > 0 else 0.0

    def _times(self, gpus: int, local: int) -> tuple[float, float]:
        """Return seconds of a step and of its synchronisation; 0 where not measured."""
        full, rest = divmod(gpus, PER_NODE)
        nodes = [rest] * bool(rest) + [PER_NODE] * full
        rows = self._placed.get("".join(map(str, nodes)))
        if rows is not None and (
            rows["local_bsz"].min() <= local <= rows["local_bsz"].max()
        ):
            known = rows.sort_values("local_bsz")
            return (
                float(np.interp(local, known["local_bsz"], known["step_time"])),
                float(np.interp(local, known["local_bsz"], known["sync_time"])),
            )
        step_s, sync_s = self._between([len(nodes), gpus, local])[0]
        return (float(step_s), float(sync_s)) if step_s > 0 else (0.0, 0.0)


@cache
def network(folder: Path) -> Network:
    """Return what was measured of the network in *folder*."""
    return Network(folder)


def trainers_file(simulator: Path, workload: int) -> str:
    """Return a workload as a trainers file."""
    jobs = pd.read_csv(simulator / "workloads" / f"workload-{workload}.csv")
    tables = []
    for job in jobs.itertuples():
        known = network(simulator / "traces" / str(job.application))
        speeds = known.speeds(int(job.batch_size))
        table = ", ".join(f'"{gpus}" = {speed:.6g}' for gpus, speed in speeds.items())
        tables.append(
            "[[trainer]]\n"
            f'name = "{job.name}"\n'
            f'arrival = "{job.time}s"\n'
            f"samples = {known.samples(int(job.batch_size)):.6g}\n"
            f"scaling = {{ {table} }}\n"
            f'grow = "{RESCALE_S}s"\nshrink = "{RESCALE_S}s"\n'
            f"fixed_nodes = {min(int(job.num_replicas), max(speeds))}\n"
        )
    return "\n".join(tables)


def mean_completion_s(simulator: Path, workload: int, how: str) -> float:
    """Return the mean time from submission to end, by *how*: a priority, or `fixed`.

    `fixed` gives each job, first come first served, the GPUs its user asked for.
    """
    with tempfile.TemporaryDirectory() as folder:
        trainers = Path(folder, "trainers.toml")
        trainers.write_text(trainers_file(simulator, workload))
        result = ft.replay(
            pool=GPUS,
            days=5,
            trainers=trainers,
            parallel=160,
            policies="scavenger" if how == "fixed" else "freetrain",
            priorities="throughput" if how == "fixed" else how,
        )
    took = result.trainers["finished_s"] - result.trainers["arrival_s"]
    if took.isna().any():
        raise RuntimeError(f"workload {workload}: not all jobs end within five days")
    return float(took.mean())


def theirs(simulator: Path, workload: int) -> list[float]:
    """Return their means for one workload: their own, and its two rivals'."""
    return [
        json.loads(
            (simulator / "results-jobload" / f"{name}-1.0" / "summary.json").read_text()
        )["avgs"][f"workload-{workload}"]
        for name in THEIRS
    ]


def table(
    simulator: Path, workloads: Sequence[int], priorities: Sequence[str]
) -> Iterator[str]:
    """Yield rows: mean seconds from submission to end."""
    columns = ["workload", *THEIRS, "fixed sizes", *priorities]
    yield f"| {' | '.join(columns)} |"
    yield "|" + "---|" * len(columns)
    rows = []
    for workload in workloads:
        ways = ["fixed", *priorities]
        own = [mean_completion_s(simulator, workload, way) for way in ways]
        rows.append([*theirs(simulator, workload), *own])
        yield _row(str(workload), rows[-1])
    if len(rows) > 1:
        yield _row("mean", [float(each) for each in np.mean(rows, axis=0)])


def _row(name: str, seconds: Sequence[float]) -> str:
    return f"| {name} | " + " | ".join(f"{each:,.0f}" for each in seconds) + " |"
