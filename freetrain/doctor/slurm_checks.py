"""Looking at Slurm: its programs, what it answers, what it lets us do."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.doctor import cluster
from freetrain.doctor.finding import UNAVAILABLE, bad, ok, skipped, warn
from freetrain.doctor.lease_request import lease_request
from freetrain.tick.real_outside import PYSLURM
from slurm.batch import sbatch_argv
from slurm.choose import choose
from slurm.dialects import JSON
from slurm.errors import SlurmError, SlurmRefusedError
from slurm.topology import leaf_by_node, may_have_leaves, must_have_leaves

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.doctor.finding import Finding
    from freetrain.doctor.subject import Subject
    from slurm.config import ClusterConfig
    from slurm.records import Partition
    from slurm.snapshot import Snapshot

NEEDED = ("sbatch", "scancel", "scontrol", "sdiag", "sinfo", "squeue", "srun")
_TIMEOUT_S = 60.0
_SKEW_S = 5.0
_ANSWER_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Seen:
    """What Slurm told.

    Attributes:
        config: Its settings.
        snapshot: One look.
        partition: Where leases go, None where there is no such one.
    """

    config: ClusterConfig
    snapshot: Snapshot
    partition: Partition | None


def look_at_programs(subject: Subject) -> Iterator[Finding]:
    """Find Slurm's programs, their release, and who asks them."""
    missing = [name for name in NEEDED if subject.programs.find(name) is None]
    if missing:
        yield bad(
            "Slurm programs",
            f"not on the PATH: {', '.join(missing)}",
            "Load Slurm's module, or work on a login node; `freetrain demo` needs "
            "none.",
            exit_code=UNAVAILABLE,
        )
        return
    release = subject.backend.release()
    found = subject.programs.find("sbatch")
    yield ok("Slurm programs", f"Slurm {release} in {found.parent if found else '?'}")
    choice = choose(release, is_allowed=subject.environ.get(PYSLURM) != "off")
    yield ok("back end", f"{choice.name}: {choice.reason}")


def has_slurm(subject: Subject) -> bool:
    """Tell whether there is a Slurm to ask."""
    return all(subject.programs.find(name) is not None for name in NEEDED)


def look(subject: Subject) -> Seen:
    """Return what Slurm tells; seven commands.

    Raises:
        SlurmError: It does not.
    """
    config = subject.backend.config()
    snapshot = subject.backend.snapshot()
    partition = cluster.partition_of(subject.site, snapshot.partitions)
    return Seen(config, snapshot, partition)


def look_at_cluster(subject: Subject, seen: Seen) -> Iterator[Finding]:
    """Find what Slurm's settings mean for us and for others."""
    site, config, partitions = subject.site, seen.config, seen.snapshot.partitions
    yield _look_at_release(subject, config)
    yield cluster.look_at_partition(site, seen.partition, partitions)
    yield from cluster.look_at_backfill(config)
    yield cluster.look_at_privacy(config)
    yield cluster.look_at_arrays(site, config)
    yield cluster.look_at_endings(site, config)
    yield cluster.look_at_nodes(site, config)
    if seen.partition is not None:
        yield from cluster.look_at_mode(site, config, seen.partition, partitions)
        yield cluster.look_at_overrun(config, seen.partition)
        yield cluster.look_at_priority(site, config, seen.partition)
    yield look_at_topology(subject, config)
    yield look_at_clock(seen.snapshot.time_s, subject.now_s())


def _look_at_release(subject: Subject, config: ClusterConfig) -> Finding:
    programs = subject.backend.release()
    if programs.series != config.release.series:
        return warn(
            "slurmctld",
            f"{config.release}, and the programs are {programs}",
            "Slurm allows two releases' difference; ask which the site means to use.",
        )
    return ok("slurmctld", f"{config.release}, cluster {config.cluster}")


def look_at_topology(subject: Subject, config: ClusterConfig) -> Finding:
    """Find whether Slurm tells which nodes are close; only lookahead goes by that."""
    name, none = "topology", "no leaf switches or blocks are told, none are needed"
    if not may_have_leaves(config):
        return ok(name, none)
    try:
        leaves = subject.backend.topology()
    except SlurmError as error:
        return warn(name, str(error)[:_ANSWER_CHARACTERS], "Nothing: try again.")
    if leaves:
        nodes = len(leaf_by_node(leaves))
        seen = f"{len(leaves)} leaf switches or blocks, of {nodes} nodes in all"
        return ok(name, f'{seen}; the policy "lookahead" goes by them')
    if must_have_leaves(config):
        seen = f"{config.topology_plugin} is configured, and no leaf of it is told"
        return warn(name, seen, "Ask the administrators; only forecasts miss it.")
    return ok(name, none)


def look_at_clock(slurm_s: float, here_s: float) -> Finding:
    """Find whether slurmctld's clock and this host's agree."""
    apart_s = here_s - slurm_s
    seen = f"this host and slurmctld are {abs(apart_s):.0f} s apart"
    if abs(apart_s) > _SKEW_S:
        advice = "Deadlines are counted by slurmctld's clock. Ask for NTP on both."
        return warn("clock of slurmctld", seen, advice)
    return ok("clock of slurmctld", seen)


def look_at_json(subject: Subject) -> Finding:
    """Find whether Slurm's JSON can be read too; the text is what is used."""
    question = JSON.partitions
    try:
        said = subject.runner.run(question.argv, timeout_s=_TIMEOUT_S)
        count = len(question.parse(said))
    except SlurmRefusedError:
        return ok("JSON", "scontrol knows no --json (before 23.02); text is used")
    except SlurmError as error:
        return warn(
            "JSON",
            f"cannot be read, and is not needed: {error}"[:_ANSWER_CHARACTERS],
            "Nothing: the text is used. `freetrain doctor --record DIR` helps us.",
        )
    return ok("JSON", f"can be read too ({count} partitions); text is used")


def look_at_rights(subject: Subject, seen: Seen) -> Iterator[Finding]:
    """Find whether we may submit, without doing so: ``sbatch --test-only``, once.

    It takes slurmctld's write locks while it searches for nodes, as a submission
    does.
    """
    name = "right to submit"
    if seen.partition is None:
        yield skipped(name, "there is no partition to submit to")
        return
    with _script() as script:
        request = lease_request(
            subject.site,
            seen.partition.name,
            name="freetrain-doctor",
            script=str(script),
        )
        program, *options = sbatch_argv(request)
        try:
            subject.runner.run([program, "--test-only", *options], timeout_s=_TIMEOUT_S)
        except SlurmRefusedError as error:
            said = " ".join(error.said.split())[:_ANSWER_CHARACTERS]
            advice = "Set [lease] partition, account and qos to what you may use."
            yield bad(name, f"Slurm refuses: {said or error}", advice)
            return
    yield ok(name, "sbatch --test-only accepts a lease (asked once)")


@contextmanager
def _script() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="freetrain-doctor-") as folder:
        script = Path(folder) / "lease"
        script.write_text("#!/bin/sh\nexit 0\n", encoding="ascii")
        yield script
