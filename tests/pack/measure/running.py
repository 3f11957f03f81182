"""One run of one schedule: a real pack with real trainings, watched to its end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.pack.measure.schedules import Arrival

TOP = Path(__file__).resolve().parents[3]
_LOOK_S = 0.1
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class RunFailedError(Exception):
    """A run did not come to its end, so that it cannot be counted."""


@dataclass(frozen=True)
class Wanted:
    """One run.

    Attributes:
        schedule: Its name.
        seed: Of the trainings, and of random arrivals.
        sharing: ``fair`` or ``flowcon``.
        means: By what shares are set.
        cpus: CPUs of all trainers.
        interval_s: FlowCon's.
        arrivals: Who comes when.
    """

    schedule: str
    seed: int
    sharing: str
    means: str
    cpus: int
    interval_s: float
    arrivals: tuple[Arrival, ...]

    @property
    def key(self) -> tuple[str, int, str]:
        return self.schedule, self.seed, self.sharing


def run(wanted: Wanted, folder: Path) -> dict[str, Any]:
    """Run it in *folder*, and return what is kept of it."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "inbox").mkdir(parents=True)
    (folder / "pack.toml").write_text(_pack_file(wanted))
    load = os.getloadavg()[0]
    with (folder / "pack.log").open("wb") as log:
        pack = subprocess.Popen(  # noqa: S603 -- our own program
            [sys.executable, "-m", "freetrain.pack", str(folder / "pack.toml")],
            cwd=TOP,
            env={**os.environ, "FREETRAIN_RUN_DIR": str(folder / "run")},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            record = _watch(pack, wanted, folder)
        finally:
            pack.terminate()
            pack.wait()
    return {**_result(wanted, record), "load": load, "means": record["means"]}


def _watch(
    pack: subprocess.Popen[bytes], wanted: Wanted, folder: Path
) -> dict[str, Any]:
    """Let trainers arrive in time; return the pack's record when all are over."""
    begun_s = time.monotonic()
    coming = sorted(wanted.arrivals, key=lambda arrival: arrival.at_s)
    while True:
        while coming and time.monotonic() - begun_s >= coming[0].at_s:
            _put(coming.pop(0), wanted.seed, folder)
        record = _read(folder / "run" / "pack.json")
        lines = record.get("members", {}).values()
        if len(lines) == len(wanted.arrivals) and all(line["end"] for line in lines):
            return record
        if pack.poll() is not None:
            raise RunFailedError(f"{wanted.key}: the pack ended; see {folder}/pack.log")
        time.sleep(_LOOK_S)


def _put(arrival: Arrival, seed: int, folder: Path) -> None:
    path = folder / "inbox" / f"{arrival.name}.toml"
    path.with_suffix(".part").write_text(_job_file(arrival, seed))
    path.with_suffix(".part").rename(path)


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found


def _result(wanted: Wanted, record: dict[str, Any]) -> dict[str, Any]:
    lines = record["members"]
    bad = [name for name, line in lines.items() if line["end"] != "finished"]
    if bad:
        raise RunFailedError(f"{wanted.key}: {', '.join(bad)} failed; see its log")
    first_s = min(line["arrived_s"] for line in lines.values())
    makespan_s = max(line["ended_s"] for line in lines.values()) - first_s
    return {
        "schedule": wanted.schedule,
        "seed": wanted.seed,
        "sharing": wanted.sharing,
        "completion_s": {
            name: round(line["ended_s"] - line["arrived_s"], 3)
            for name, line in lines.items()
        },
        "makespan_s": round(makespan_s, 3),
        "cpus_got": round(record["used_s"] / makespan_s, 3),
    }


def _pack_file(wanted: Wanted) -> str:
    return (
        f'inbox = "inbox"\nstay = "600s"\nsharing = "{wanted.sharing}"\n'
        f'interval = "{wanted.interval_s}s"\nmeans = "{wanted.means}"\n'
        f"cpus = {wanted.cpus}\n"
    )


def _job_file(arrival: Arrival, seed: int) -> str:
    command: Sequence[str] = (
        sys.executable,
        "-m",
        "tests.pack.measure.train",
        *(arrival.kind, str(arrival.steps), str(seed)),
    )
    variables = ", ".join(f'{name} = "1"' for name in _ONE_THREAD)
    return (
        f'name = "{arrival.name}"\ncommand = {json.dumps(list(command))}\n'
        f"directory = {json.dumps(str(TOP))}\nelastic = false\n"
        f"environment = {{ {variables} }}\n[nodes]\nmax = 1\n"
        '[progress]\nformat = "pattern"\n'
        "pattern = 'step (?P<step>\\d+) loss (?P<loss>\\S+)'\n"
    )
