"""What rescales cost, by the program's own step times and the agents' logs.

Run as ``python -m tests.agent_live.rescales``. A trainer on three leases loses one, and
then gets another (``grown``). It loses it by the notice to leave, as Slurm and ticks
send it where a job waits for the node (``noticed``); by a tick's plan, where the notice
comes after the old world's end (``planned``); or by a kill (``lost``). Each pause is
the time from the last step before to the first step after. The summary says how long
a lease takes to be gone after its notice or kill, and how busy the machine was.

With ``--local`` leases are processes of this machine, and srun is a script that starts
its command here: what is then missing is Slurm's own time.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from msgspec import structs

from freetrain.agent.environment import unix_s
from freetrain.agent.observation import PATIENCE_VARIABLE
from freetrain.broker.lease import LeaseKey
from freetrain.elastic.contract import read_outcome
from freetrain.launch.base import LEASE_MARK, WORLD_MARK
from freetrain.processes import status_of
from freetrain.state.files import AssignedLease, StateDir, lease_name
from tests.cluster.cluster import Cluster
from tests.cluster.holding import running_cluster
from tests.cluster.leases import GRACE_S, PATIENCE, TOP, LiveLeases, a_live_job
from tests.cluster.processes import proc_words, processes
from tests.cluster.site import Site
from tests.cluster.waiting import wait_for
from tests.state.endings import a_lease

NODES = 3


class LeaseSource(Protocol):
    """Where leases are: on a cluster, or processes of this machine."""

    live: LiveLeases

    def take(self, count: int) -> tuple[AssignedLease, ...]: ...
    def notify(self, member: AssignedLease) -> None: ...
    def kill(self, member: AssignedLease) -> None: ...
    def is_over(self, member: AssignedLease) -> bool: ...


@dataclass
class OnCluster:
    live: LiveLeases

    def take(self, count: int) -> tuple[AssignedLease, ...]:
        return self.live.leases(count)

    def notify(self, member: AssignedLease) -> None:
        self.live.tell(member)

    def kill(self, member: AssignedLease) -> None:
        """Kill its script, then all others, at once: scancel would give a notice."""
        marks = (
            f"SLURM_JOB_ID={member.job_id}",
            f"{LEASE_MARK}={lease_name(member.key)}",
        )
        found = [
            (pid, argv)
            for pid, argv, environ in processes()
            if any(mark in environ for mark in marks)
            and not argv[0].startswith("slurmstepd")
            and not argv[0].endswith("srun")
        ]
        for pid, _ in sorted(found, key=lambda one: "slurm_script" not in str(one[1])):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def is_over(self, member: AssignedLease) -> bool:
        return self.live.is_over(member)


_SRUN = """\
#!/bin/sh
while :; do
    case $1 in
    --nodelist=*) node=${1#*=}; shift ;;
    --*) shift ;;
    *) break ;;
    esac
done
sleep 0.1
exec "$@"
"""


@dataclass
class OnThisMachine:
    """Agents as processes of this machine; node names are made up."""

    live: LiveLeases
    folder: Path
    processes: dict[LeaseKey, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        srun = self.folder / "bin" / "srun"
        srun.parent.mkdir()
        srun.write_text(_SRUN)
        srun.chmod(0o755)

    def take(self, count: int) -> tuple[AssignedLease, ...]:
        return tuple(self._take() for _ in range(count))

    def _take(self) -> AssignedLease:
        number = len(self.processes) + 1
        key = LeaseKey(str(uuid4()), 0)
        environment = {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "HOME": str(Path.home()),
            "PYTHONPATH": str(TOP),
            "SLURMD_NODENAME": f"n{number}",
            "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
            PATIENCE_VARIABLE: PATIENCE,
        }
        words = (str(self.live.state.path), key.uuid, "0", "60", str(GRACE_S))
        self.processes[key] = subprocess.Popen(  # noqa: S603 -- our own
            (sys.executable, "-P", "-m", "freetrain.agent", *words),
            env=environment,
            start_new_session=True,
        )
        beat = self.live.state.lease(key).heartbeat
        wait_for("a beat", beat.exists)
        return a_lease(key, f"n{number}", number)

    def notify(self, member: AssignedLease) -> None:
        self.processes[member.key].send_signal(signal.SIGTERM)

    def kill(self, member: AssignedLease) -> None:
        self.processes[member.key].kill()
        name = f"{member.key.uuid}-{member.key.task}"
        for pid in self.live.marked():
            environ = " ".join(proc_words(pid, "environ"))
            if f"FREETRAIN_LEASE={name}" in environ:
                os.kill(pid, signal.SIGKILL)

    def is_over(self, member: AssignedLease) -> bool:
        return self.processes[member.key].poll() is not None

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            process.wait()


@dataclass(frozen=True)
class Rescale:
    """One rescale; times in seconds, counted from the last step before it."""

    kind: str
    pause_s: float
    left_s: float | None
    phases: dict[str, float]


def steps(live: LiveLeases) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for line in live.progress().splitlines():
        entry = json.loads(line)
        if "event" not in entry:
            found.setdefault(entry["generation"], []).append(entry["t"])
    return found


def boot_s() -> float:
    uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    return unix_s() - uptime_s


def rescale(source: LeaseSource, kind: str, who: int) -> Rescale:
    live = source.live
    before = live.newest()
    number = before.generation
    leaver = before.members[who % len(before.members)]
    others = [m for m in before.members if m != leaver]
    more = source.take(1) if kind == "grown" else ()
    live.wait_for_training(number, steps=20)
    began_s = unix_s()
    if kind == "grown":
        live.assign(*before.members, *more)
    elif kind == "planned":
        live.assign(*others)
        live.wait_for_ending(number)
    left_s = None
    if kind != "grown":
        left_s = _end(source, leaver, by_notice=kind != "lost")
    now = live.wait_for_training(number + 1, steps=5)
    by_generation = steps(live)
    last = by_generation[number][-1]
    first = by_generation[now][0]
    phases = {"begun": began_s - last, "first step": first - last}
    phases |= _from_files(live, number, now, last)
    phases |= _from_logs(live, began_s, last)
    phases |= _from_processes(live, now, last)
    return Rescale(kind, first - last, left_s, phases)


def _end(source: LeaseSource, leaver: AssignedLease, *, by_notice: bool) -> float:
    """End a lease, and return after how many seconds it was gone."""
    since_s = time.monotonic()
    (source.notify if by_notice else source.kill)(leaver)
    wait_for("the lease to go", lambda: source.is_over(leaver), pause_s=0.02)
    return time.monotonic() - since_s


def _from_files(
    live: LiveLeases, number: int, now: int, last: float
) -> dict[str, float]:
    outcome = read_outcome(live.trainer.run, number)
    found = {} if outcome is None else {"outcome": outcome.t - last}
    for entry in map(json.loads, live.progress().splitlines()):
        if entry.get("event") == "start" and entry["generation"] == now:
            found["restored"] = entry["t"] - last
    return found


def _from_logs(live: LiveLeases, since_s: float, last: float) -> dict[str, float]:
    found: dict[str, float] = {}
    for path in live.state.path.glob("leases/*/agent.log"):
        for line in path.read_text().splitlines():
            stamp, _, text = line.partition(" ")
            at_s = datetime.fromisoformat(stamp).timestamp()
            if at_s >= since_s - 0.05:
                found.setdefault(text.removeprefix("live/")[:60], at_s - last)
    return found


def _from_processes(live: LiveLeases, now: int, last: float) -> dict[str, float]:
    """When each process of the next world began, as far as it still runs."""
    found = {}
    for pid, argv in live.marked().items():
        status = status_of(pid)
        marks = [w for w in proc_words(pid, "environ") if w.startswith(WORLD_MARK)]
        if status is not None and any(mark.endswith(f"/{now}") for mark in marks):
            began_s = boot_s() + status.started / os.sysconf("SC_CLK_TCK")
            words = " ".join(Path(word).name for word in argv[:4])
            found[f"began {words[:40]} ({pid})"] = began_s - last
    return found


@contextmanager
def lease_source(
    *, local: bool, folder: Path, **launch: object
) -> Iterator[LeaseSource]:
    with ExitStack() as stack:
        cluster = Cluster("none") if local else stack.enter_context(running_cluster(()))
        live = LiveLeases(Site(cluster, folder, "freetrain"), StateDir(folder))
        job = a_live_job(folder)
        program = (sys.executable, "-m", "tests.agent_live.rescale_program")
        live.prepare(
            structs.replace(
                job, command=program, launch=structs.replace(job.launch, **launch)
            )
        )
        if not local:
            yield OnCluster(live)
            cluster.clear()
            return
        here = OnThisMachine(live, folder)
        try:
            yield here
        finally:
            here.close()


def summary(found: Sequence[Rescale]) -> Iterator[str]:
    for kind in dict.fromkeys(one.kind for one in found):
        some = [one for one in found if one.kind == kind]
        pauses = [one.pause_s for one in some]
        line = (
            f"{kind:8} {len(some):3}: pause median {statistics.median(pauses):.2f} s, "
            f"most {max(pauses):.2f} s"
        )
        left = [one.left_s for one in some if one.left_s is not None]
        if left:
            line += (
                f"; lease gone after {statistics.median(left):.2f} s, "
                f"most {max(left):.2f} s"
            )
        yield line


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.agent_live.rescales")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--local", action="store_true")
    parser.add_argument("--spare", action="store_true", default=None)
    parser.add_argument("--load", type=int, default=0, help="busy processes beside it")
    parser.add_argument("--phases", action="store_true")
    parser.add_argument("--kinds", default="noticed,planned,lost")
    asked = parser.parse_args()
    found: list[Rescale] = []
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o700)
        on = stack.enter_context(
            lease_source(local=asked.local, folder=folder, spare=asked.spare)
        )
        for _ in range(asked.load):
            busy = (sys.executable, "-S", "-c", "while True: pass")
            stack.callback(subprocess.Popen(busy).kill)  # noqa: S603 -- our own
        on.live.assign(*on.take(NODES))
        on.live.wait_for_training(1, steps=20)
        kinds = asked.kinds.split(",")
        for turn in range(asked.repeats):
            for kind in kinds:
                for one in (kind, "grown"):
                    found.append(rescale(on, one, turn))
                    sys.stdout.write(f"{one}: {found[-1].pause_s:.2f}\n")
                    sys.stdout.flush()
                    if asked.phases:
                        for words, at_s in sorted(
                            found[-1].phases.items(), key=lambda p: p[1]
                        ):
                            sys.stdout.write(f"   {at_s:7.3f} {words}\n")
        loads = " ".join(f"{load:.1f}" for load in os.getloadavg())
        sys.stdout.write(f"load averages {loads}, {os.cpu_count()} processors\n")
        sys.stdout.write("\n".join(summary(found)) + "\n")


if __name__ == "__main__":
    main()
