"""Leases at one site: how many and how long they may be, and the Slurm job of each.

Limits and mode come from the site's settings and from Slurm's own configuration. A
*shape* is what leases ask of their nodes, under a name that never changes.
``request_for`` is what sbatch is asked, ``lease_script`` the batch script that it runs.
"""

from __future__ import annotations

import math
import os
import shlex
from typing import TYPE_CHECKING

from msgspec import structs

from freetrain.agent.observation import LAUNCH_AGENT, LISTENER_MARK
from freetrain.agent.observation import PATIENCE_VARIABLE as PATIENCE
from freetrain.broker.lease import LeaseComment, job_name, render_comment, state_tag
from freetrain.broker.limits import CLAIM_PATIENCE_S, Limits, Mode
from freetrain.config.site import LeaseMode
from freetrain.elastic.files import replaced
from freetrain.errors import BadConfigurationError
from freetrain.state.files import SILENCE_NOTICE_S
from freetrain.text import HOUR_S, MINUTE_S, render_duration
from slurm.batch import LeaseRequest, gres_argument
from slurm.pieces import GPU
from slurm.records import expand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from freetrain.broker.lease import Intent
    from freetrain.config.job import NodeSettings
    from freetrain.config.site import Site
    from freetrain.state.files import StateDir
    from freetrain.tick.environment import TickEnvironment
    from slurm.backend import SlurmBackend
    from slurm.records import ClusterConfig, JobRecord, Partition, Requirement


def limits_of(
    site: Site,
    config: ClusterConfig,
    partition: Partition,
    *,
    partitions: Iterable[Partition],
    takes_arrays: bool = True,
) -> Limits:
    """Return the broker's caps and time-outs at this site.

    Args:
        site: The site's or user's settings.
        config: How the cluster is set up.
        partition: Where leases are submitted.
        partitions: All of the cluster's.
        takes_arrays: False once Slurm has refused a job array.
    """
    longest_s = min(site.lease.longest_s, partition.max_time_s)
    most_tasks = max(1, min(site.caps.leases_per_tick, config.max_array_size))
    return Limits(
        mode=mode_of(site, config, partition, partitions=partitions),
        most_leases=site.caps.leases,
        most_new_leases=site.caps.leases_per_tick,
        most_array_tasks=most_tasks if takes_arrays else 1,
        most_calls=site.caps.rpcs_per_tick,
        most_churn=site.caps.churn_per_hour,
        churn_window_s=HOUR_S,
        least_limit_min=math.ceil(site.lease.shortest_s / MINUTE_S),
        most_limit_min=max(1, math.floor(longest_s / MINUTE_S)),
        most_failed_starts=site.starts.pause_after,
        pause_s=site.starts.pause_s,
        most_pause_s=max(HOUR_S, site.starts.pause_s),
    )


YIELD_SILENCE_S = 180.0
"""Two ticks of cron, and a minute for cron and the caches of NFS."""


def silence_s(site: Site, mode: Mode) -> float | None:
    """Return for how long leases go on without a sign of a tick; None for ever.

    Slurm itself takes leases that it preempts, whether or not ticks are at work.
    """
    if site.lease.silence_s is not None:
        return site.lease.silence_s
    return YIELD_SILENCE_S if mode is Mode.YIELD else None


_A_TICK_S = 30.0
"""By how much later than planned the sign of a tick may be seen."""


def interval_problem(site: Site, mode: Mode, *, every_s: float) -> tuple[str, str]:
    """Return what is wrong with ticks every *every_s* seconds, and what to do.

    Both are empty where no lease ends itself between two ticks. The silence is not
    worked out from the interval: after a broker's death, rare ticks would make others
    wait longer.
    """
    silence = silence_s(site, mode)
    most_s = math.inf if silence is None else silence - SILENCE_NOTICE_S - _A_TICK_S
    if silence is None or every_s <= most_s:
        return "", ""
    seen = (
        f"ticks come every {render_duration(every_s)}, and leases end themselves "
        f"{render_duration(silence)} after the last sign of a tick: between two ticks"
    )
    less = f"Tick every {render_duration(most_s)}, or set" if most_s > 0 else "Set"
    enough_min = math.ceil((2 * every_s + MINUTE_S) / MINUTE_S)
    return seen, (
        f'{less} [lease] silence = "{enough_min}min" (two intervals and a minute); '
        f"others wait for so long where ticks stop for good."
    )


_FREES_NODE = {"CANCEL", "REQUEUE"}
"""Modes of preemption that free the node. A suspended lease keeps its memory."""


def mode_of(
    site: Site,
    config: ClusterConfig,
    partition: Partition,
    *,
    partitions: Iterable[Partition],
) -> Mode:
    """Return whether Slurm preempts leases for all other jobs, or the broker yields.

    Slurm does so with preemption by partition, which frees the nodes, and a lower tier
    than every other partition over the same nodes. What preemption by QOS does cannot
    be seen from here: there the site sets the mode itself.
    """
    if site.lease.mode is not LeaseMode.AUTO:
        return Mode(site.lease.mode)
    by_partition = config.preempt_type == "preempt/partition_prio"
    preempt_mode = partition.preempt_mode or config.preempt_mode
    if not by_partition or not _FREES_NODE & set(preempt_mode.split(",")):
        return Mode.YIELD
    ours = frozenset(expand(partition.nodes))
    is_last = all(
        other.priority_tier > partition.priority_tier
        for other in partitions
        if other.name != partition.name and not ours.isdisjoint(expand(other.nodes))
    )
    return Mode.PREEMPT if is_last else Mode.YIELD


def sees_all_jobs(
    config: ClusterConfig, backend: SlurmBackend, *, uid: int, user: str
) -> bool:
    """Tell whether Slurm shows a user the jobs of all others.

    PrivateData=jobs hides them from all but root, SlurmUser, operators and
    administrators (``validate_operator`` in slurmctld, 21.08 to 26.05). Coordinators
    see those of their accounts besides, and not the others, for which leases must give
    way just as well. Where jobs are hidden it costs a request, but for the first two.
    """
    if "jobs" not in config.private_data or uid in {0, config.slurm_uid}:
        return True
    return backend.sees_all_jobs(user)


def hidden_queue(mode: Mode, *, sees_all: Callable[[], bool]) -> str:
    """Return why leases cannot yield here, as others' jobs are hidden; empty if not.

    Args:
        mode: How leases give way.
        sees_all: Tells whether Slurm shows us all jobs; only asked where leases yield.
    """
    if mode is not Mode.YIELD or sees_all():
        return ""
    return (
        "PrivateData=jobs hides other users' jobs from us, and in yield mode leases "
        "give way to the jobs that they see waiting: hidden ones would wait for hours. "
        "Ask an administrator to take jobs out of PrivateData, to make you an operator "
        "(`sacctmgr modify user NAME set adminlevel=operator`; a coordinator does not "
        "see all), or for a partition that Slurm preempts (`freetrain docs operating`) "
        'and set mode = "preempt" under [lease] in freetrain.toml.'
    )


def margin_s(site: Site, config: ClusterConfig, partition: Partition) -> float:
    """Return how long before its end a hole is left."""
    if site.holes.margin_s is None:
        own_s = config.overrun_s(partition, epilog_s=0.0)
    else:
        own_s = site.holes.margin_s
    return own_s + site.holes.epilog_s


def grace_s(config: ClusterConfig, partition: Partition, mode: Mode) -> float:
    """Return how long a lease that must go has, from the first signal it gets."""
    if mode is Mode.PREEMPT:
        return partition.grace_time_s + config.kill_wait_s
    return min(config.kill_wait_s, CLAIM_PATIENCE_S)


# Shapes.


def kind_of_lease(nodes: NodeSettings) -> NodeSettings:
    """Return what *nodes* ask of each node, equal for trainers with equal leases."""
    return structs.replace(nodes, min_nodes=1, max_nodes=1, only=())


def shape_name(requirement: Requirement) -> str:
    """Return the name of this requirement: always the same, and of no other.

    Features, resources and partitions are checked words without these signs.
    """
    parts = [
        *_shape_parts(
            requirement.partition,
            requirement.features,
            map(gres_argument, requirement.gres),
        ),
        *_size_parts(memory_mib=requirement.memory_mib, cpus=requirement.cpus),
    ]
    if not requirement.exclusive:
        parts.append(_PIECE)
    return " ".join(parts)


_PIECE = "piece"
"""Ends the name of a shape that takes a piece of its node."""


def may_stand_for(shape: str, wanted: str) -> bool:
    """Tell whether leases of one shape may be used for another, both of pieces.

    They may where only CPUs and memory differ, and they have no less of either. The
    part that goes with GPUs changes where nodes come or go; leases that have more than
    is asked for now need not end.
    """
    rest, sizes = _rest_and_sizes(shape)
    rest_wanted, sizes_wanted = _rest_and_sizes(wanted)
    return rest == rest_wanted and all(
        sizes.get(name, 0) >= least for name, least in sizes_wanted.items()
    )


def _rest_and_sizes(shape: str) -> tuple[list[str], dict[str, int]]:
    """Return the name of a shape without memory and CPUs, and these by their names."""
    rest, sizes = [], {}
    for word in shape.split(" "):
        name, is_set, count = word.partition("=")
        if is_set and name in {"memory", "cpus"}:
            sizes[name] = int(count.removesuffix("MiB"))
        else:
            rest.append(word)
    return rest, sizes


def shape_of(job: JobRecord) -> str:
    """Return the shape that the lease *job* was submitted with, as Slurm shows it.

    Whole nodes are asked for with ``--mem=0`` and one CPU, so that a lease of GPUs with
    more is a piece. Memory and CPUs that a site or trainer names for whole nodes are
    not shown: such a lease fits no trainer, and goes.
    """
    gres = (
        part.removeprefix("gres/").removeprefix("gres:")
        for part in job.gres_per_node.split(",")
        if part
    )
    features = filter(None, job.features.split("&"))
    parts = _shape_parts("".join(job.partitions[:1]), features, gres)
    is_sized = job.least_memory_mib > 0 or job.least_cpus > 1
    if is_sized and any(part.startswith(_GPUS) for part in parts):
        sizes = _size_parts(memory_mib=job.least_memory_mib, cpus=job.least_cpus)
        parts += [*sizes, _PIECE]
    return " ".join(parts)


_GPUS = f"gres={GPU}:"


def _shape_parts(
    partition: str, features: Iterable[str], gres: Iterable[str]
) -> list[str]:
    return [
        partition,
        *(f"feature={name}" for name in sorted(features)),
        *(f"gres={name}" for name in sorted(gres)),
    ]


def _size_parts(*, memory_mib: int, cpus: int) -> Iterator[str]:
    if memory_mib:
        yield f"memory={memory_mib}MiB"
    if cpus:
        yield f"cpus={cpus}"


# The Slurm job of a lease.

NOTICE = "TERM"
"""The signal on which an agent commits and leaves; Slurm itself sends it."""

OUTPUT = "lease-%j.out"
"""Name of the batch script's output, with sbatch's pattern of the job's number."""

MODE = 0o700
"""Of the batch script."""


def request_for(
    site: Site,
    folder: StateDir,
    intent: Intent,
    requirement: Requirement,
    *,
    grace_s: float,
) -> LeaseRequest:
    """Return what sbatch is asked for *intent* at *site*.

    Args:
        site: How leases are submitted there.
        folder: The state directory.
        intent: How many leases, how long, until when.
        requirement: What they require of their nodes.
        grace_s: How long a lease that must go has, from the first signal it gets.
    """
    lease = site.lease
    return LeaseRequest(
        name=job_name(intent.uuid),
        comment=lease_comment(folder, intent.uuid, beat_s=intent.created_s),
        partition=requirement.partition,
        limit_min=intent.limit_min,
        nice=lease.nice,
        script=str(folder.lease_script),
        arguments=(intent.uuid, str(intent.limit_min), str(math.ceil(grace_s))),
        tasks=intent.tasks,
        deadline_s=intent.deadline_s,
        output=_output_pattern(str(folder.outputs)),
        exclusive=lease.exclusive and requirement.exclusive,
        memory_mib=requirement.memory_mib,
        cpus=requirement.cpus,
        qos=lease.qos,
        account=lease.account,
        features="&".join(sorted(requirement.features)),
        gres=",".join(map(gres_argument, requirement.gres)),
    )


def lease_comment(
    folder: StateDir,
    uuid: str,
    *,
    want: int | None = None,
    beat_s: float,
    recent_node_s: float | None = None,
) -> str:
    """Return the comment of a lease's job, which every broker reads.

    Args:
        folder: The state directory.
        uuid: The intent's.
        want: Nodes that the trainers could use; other users' FreeTrain goes by it.
        beat_s: When this tick took its snapshot, Unix time.
        recent_node_s: The recent use of our leases, node-seconds.
    """
    said = LeaseComment(
        uuid=uuid,
        state=tag_of(folder),
        is_pooled=True,
        want=want,
        beat_s=beat_s,
        recent_node_s=recent_node_s,
    )
    return render_comment(said)


def tag_of(folder: StateDir) -> str:
    """Return the tag of the state directory, by which its leases are found again."""
    return state_tag(os.path.realpath(folder.path))


def output_of(folder: StateDir, job_id: int) -> Path:
    """Return the file with the output of a job's batch script."""
    return folder.outputs / OUTPUT.replace("%j", str(job_id))


def _output_pattern(folder: str) -> str:
    """Return ``sbatch --output``, which gives ``%`` and backslashes a meaning."""
    if "\\" in folder:
        return "/dev/null"
    return f"{folder.replace('%', '%%')}/{OUTPUT}"


# Is no descendant of the script, which is what Slurm looks for without cgroups.
_GUARD = """\
(
    {mark}="$1-$task" setsid /bin/sh -c '
        while kill -0 "$0"; do sleep 5; done
        exec "$@"
    ' $$ {sweep} </dev/null >/dev/null 2>&1 &
)"""


def lease_script(environment: TickEnvironment, site: Site) -> str:
    """Return the text of the batch script; its arguments are uuid, minutes, grace.

    The agent runs under the script, not as a step: at preemption every process of every
    step gets TERM, and its mpirun would end the world before it has committed. It
    starts a step that listens. The script itself must outlive the signals at the end,
    so it catches TERM: a caught signal has its default effect in what the script
    starts, an ignored one would not. If the agent died early, the processes that it
    left are killed, and the job did not fail. Where Slurm kills script, agent and
    sweep, a guard sweeps, as without cgroups what detached itself would be left. Python
    must not take a module from the folder in which the tick was called (``-P``).

    Raises:
        BadConfigurationError: A path that no script can name.
    """
    values = {"PATH": environment.path, "HOME": environment.home or "/"}
    if environment.libraries:
        values["LD_LIBRARY_PATH"] = environment.libraries
    if environment.agent_patience:
        values[PATIENCE] = environment.agent_patience
    if site.launch_agent is not None:
        values[LAUNCH_AGENT] = str(site.launch_agent)
    exports = [f"export {name}={_quoted(value)}" for name, value in values.items()]
    python, state = _quoted(environment.python), _quoted(str(site.state_directory))
    agent = f"{python} -P -m freetrain.agent"
    lease = f'{state} "$1" "$task" "$2" "$3"'
    sweep = f'{agent} sweep {state} "$1" "$task"'
    lines = [
        "#!/bin/sh",
        "# Written by freetrain tick; changes are overwritten.",
        *exports,
        f"cd {state} || exit 0",
        "trap : TERM",
        "task=${SLURM_ARRAY_TASK_ID:-0}",
        _GUARD.format(mark=LISTENER_MARK, sweep=sweep),
        f"{agent} {lease} && exit 0",
        sweep,
        "exit 0",
    ]
    return "".join(f"{line}\n" for line in lines)


def write_lease_script(path: Path, text: str) -> bool:
    """Write *text* to *path*, whole, unless it is there already; tell whether.

    sbatch copies the script it is given, so leases keep the one they had.

    Raises:
        OSError: It could not be written.
    """
    if _content(path) == text:
        return False
    temporary = path.with_name(f".{path.name}.new")
    with replaced(path, temporary=temporary) as file:
        temporary.chmod(MODE)
        file.write(text.encode("utf-8", "surrogateescape"))
    return True


def _content(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return None


def _quoted(value: str) -> str:
    if "\0" in value or "\n" in value:
        raise BadConfigurationError(
            f"no script can name {value!r}. No lease was asked for; change PATH, HOME "
            f"or the state directory."
        )
    return shlex.quote(value)
