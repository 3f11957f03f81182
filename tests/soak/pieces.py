"""Holes of pieces against Slurm's own answer: leases start where there is one, only.

Random jobs of others share the nodes of a real cluster. In each state leases of a
random shape and time limit are submitted to every node, one more than its hole has
room for; those that start are compared with what the hole said. A state is thrown away
where a job of others began or ended meanwhile.
"""

import math
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from subprocess import CalledProcessError

from slurm.batch import gres_argument, sbatch_argv
from slurm.holes import Snapshot
from slurm.pieces import in_proportion
from slurm.records import ClusterConfig, Gres, Requirement
from tests.cluster.cluster import Cluster
from tests.cluster.settings import NODES, PART_GPUS
from tests.cluster.site import LEASES, Site, is_ours, whole_look
from tests.cluster.waiting import wait_for

PARTITION = "freetrain"
MOST_OTHERS = 14
MOST_ROOM = 3
"""Leases that are tried on one node, less one."""

SETTLED_S = 12.0
"""In this time backfill looks twice at what waits; without a change it looks never."""

SLACK_S = 60.0
"""Leases that fit into a hole with less to spare are not tried: they start some seconds
after the look, and backfill rounds planned starts. Ticks leave as much room."""

KINDS = sorted({kind for kind, _ in PART_GPUS.values()})


@dataclass(frozen=True, slots=True)
class Trial:
    """One shape in one state: by node, the leases that should have started, and did."""

    asked: Requirement
    limit_min: int
    foretold: dict[str, int]
    started: dict[str, int]
    why: dict[str, str]

    def differences(self) -> Iterator[str]:
        for node, expected in self.foretold.items():
            if self.started[node] != expected:
                yield (
                    f"{node}: {expected} foretold, {self.started[node]} started "
                    f"({self.why.get(node, '')}); {_words(self.asked)}, "
                    f"{self.limit_min} min"
                )


def measure_pieces(
    cluster: Cluster, folder: Path, *, seed: int, states: int
) -> Iterator[str]:
    """Yield the differences of each state, and in the end how many there were."""
    site = Site(cluster, folder, PARTITION)
    rng = Random(seed)  # noqa: S311 -- a test's choices
    config = site.backend().config()
    script = site.script("exec sleep 3600")
    counts = Counter[str]()
    while counts["states"] < states:
        _change_jobs(site, rng)
        trial = _try(site, config, rng, script)
        if trial is None:
            counts["thrown away"] += 1
            continue
        found = list(trial.differences())
        counts.update(
            {
                "states": 1,
                "holes": sum(map(bool, trial.foretold.values())),
                "no holes": sum(not count for count in trial.foretold.values()),
                "leases started": sum(trial.started.values()),
                "differences": len(found),
            }
        )
        yield from (f"state {counts['states']}: {line}" for line in found)
        if counts["states"] % 25 == 0:
            yield f"so far: {dict(counts)}"
    cluster.clear()
    yield f"in all: {dict(counts)}"


def _change_jobs(site: Site, rng: Random) -> None:
    """Let some jobs of others end and submit some."""
    jobs = [job for job in site.backend().snapshot().jobs if not is_ours(job)]
    ending = [job for job in jobs if rng.random() < 0.25]
    if ending:
        site.cluster.run("scancel", *(job.display_id for job in ending))
    for _ in range(rng.randint(1, max(1, min(4, MOST_OTHERS - len(jobs))))):
        nodes, options = _random_job(rng)
        site.others_job(nodes, rng.choice((2, 5, 10, 30, 60)), *options)


def _random_job(rng: Random) -> tuple[int, list[str]]:
    """Return the number of nodes of a job that can run, and its other options."""
    options = [f"--mem={rng.choice((200, 1000, 3000))}"]
    if rng.random() < 0.15:
        return rng.randint(1, 3), ["--exclusive", "--mem=0"]
    options.append(f"--cpus-per-task={rng.randint(1, 6)}")
    if rng.random() < 0.7:
        kind = rng.choice(KINDS)
        nodes = [count for have, count in PART_GPUS.values() if have == kind]
        options.append(f"--gres=gpu:{kind}:{rng.randint(1, nodes[0])}")
        return rng.choice((1, 1, 1, min(2, len(nodes)))), options
    return rng.choice((1, 1, 2, 4)), options


def _try(site: Site, config: ClusterConfig, rng: Random, script: str) -> Trial | None:
    before = _settled(site)
    asked, limit_min = _random_shape(rng, before, config), rng.choice((1, 3, 8, 20))
    end_s = before.time_s + 60.0 * limit_min
    holes = site.holes(before, asked)
    ends_s = {
        hole.node: -math.inf if hole.end_s is None else hole.end_s for hole in holes
    }
    rooms = {hole.node: hole.room for hole in holes if ends_s[hole.node] >= end_s}
    names = [
        node
        for node in NODES
        if rng.random() < 0.7 and not 0.0 <= ends_s.get(node, 0.0) - end_s < SLACK_S
    ]
    node_of = {
        job_id: node
        for node in names
        for job_id in _submit(site, asked, limit_min, script, node, rooms.get(node, 0))
    }
    after = _settled(site)
    ours = [job for job in after.jobs if job.job_id in node_of]
    started = Counter(node_of[job.job_id] for job in ours if job.holds_nodes)
    why = {node_of[job.job_id]: job.reason for job in ours if job.is_pending}
    site.cluster.run("scancel", f"--jobname={LEASES}")
    _wait_until_gone(site)
    if _others(before) != _others(after):
        return None
    return Trial(
        asked=asked,
        limit_min=limit_min,
        foretold={node: min(rooms.get(node, 0), MOST_ROOM + 1) for node in names},
        started={node: started[node] for node in names},
        why=why,
    )


def _random_shape(rng: Random, look: Snapshot, config: ClusterConfig) -> Requirement:
    gres: tuple[Gres, ...] = ()
    if rng.random() < 0.8:
        gres = (Gres("gpu", rng.choice([*KINDS, ""]), rng.choice((1, 1, 2))),)
    asked = Requirement(
        partition=PARTITION,
        gres=gres,
        cpus=0 if gres else rng.choice((1, 2, 4)),
        exclusive=rng.random() < 0.1,
    )
    return (
        asked if asked.exclusive else in_proportion(asked, look.nodes, config.sharing)
    )


def _submit(  # noqa: PLR0913, PLR0917 -- only _try calls it
    site: Site, asked: Requirement, limit_min: int, script: str, node: str, room: int
) -> Iterator[int]:
    """Submit one lease more than *node* has room for; yield their numbers.

    Slurm refuses at once what the node could never run.
    """
    request = replace(
        site.lease(script, minutes=limit_min),
        exclusive=asked.exclusive,
        memory_mib=asked.memory_mib,
        cpus=asked.cpus,
        gres=",".join(map(gres_argument, asked.gres)),
    )
    program, *options = sbatch_argv(request)
    for _ in range(min(room, MOST_ROOM) + 1):
        with suppress(CalledProcessError):
            told = site.cluster.run(program, f"--nodelist={node}", *options)
            yield int(told.strip().partition(";")[0])


def _settled(site: Site) -> Snapshot:
    """Return a look that no cycle overlapped, once all that could start has."""
    time.sleep(SETTLED_S)
    return whole_look(site.backend())


def _others(look: Snapshot) -> set[tuple[int, bool]]:
    return {(job.job_id, job.holds_nodes) for job in look.jobs if not is_ours(job)}


def _wait_until_gone(site: Site) -> None:
    def gone() -> bool:
        jobs = site.backend().snapshot().jobs
        return not any(is_ours(job) and not job.has_ended for job in jobs)

    wait_for("the leases to be gone", gone)


def _words(asked: Requirement) -> str:
    if asked.exclusive:
        return f"a whole node with {asked.gres}"
    gres = ",".join(map(gres_argument, asked.gres)) or "no GPU"
    return f"{gres}, {asked.cpus} CPUs, {asked.memory_mib} MiB"
