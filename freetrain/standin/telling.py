"""squeue, scontrol, sdiag and sinfo: the state as 22.05 writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.standin.complaint import ComplaintError
from freetrain.standin.queue_text import queue_text
from freetrain.standin.schedule import is_planned
from freetrain.standin.times import clock, iso, told

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from freetrain.standin.records import Cluster, Job, Part

RELEASE = "22.05.8"
CPUS = 2
MEMORY_MIB = 2_000
MAX_ARRAY_SIZE = 101
MIN_JOB_AGE_S = 300.0

_CONFIG = {
    "ClusterName": "standin",
    "CompleteWait": "0 sec",
    "Epilog": "(null)",
    "MaxArraySize": str(MAX_ARRAY_SIZE),
    "MinJobAge": f"{MIN_JOB_AGE_S:.0f} sec",
    "OverTimeLimit": "0 min",
    "PreemptMode": "CANCEL",
    "PreemptType": "preempt/partition_prio",
    "PriorityType": "priority/basic",
    "PrivateData": "none",
    "ProctrackType": "proctrack/linuxproc",
    "PrologEpilogTimeout": "65534",
    "SchedulerParameters": "bf_interval=1,bf_resolution=1,bf_window=1440",
    "SchedulerType": "sched/backfill",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_CPU_MEMORY",
    "SLURM_VERSION": RELEASE,
}


def squeue(cluster: Cluster, argv: Sequence[str], now_s: float) -> str:
    """Tell the jobs asked for, in the columns asked for.

    Raises:
        ComplaintError: No columns, or one that squeue does not know.
    """
    options = dict(word.split("=", 1) for word in argv if "=" in word)
    names = options.get("--name", "").split(",") if "--name" in options else None
    shows_all = options.get("--states", "").lower() == "all"
    jobs = [
        job
        for job in cluster.jobs
        if job.submit_s <= now_s
        and _is_remembered(job, now_s)
        and (shows_all or job.is_pending or job.holds_nodes)
        and (names is None or job.name in names)
    ]
    if "--Format" not in options:
        raise ComplaintError("squeue: error: this stand-in needs --Format=")
    together = "--array" not in argv
    return queue_text(jobs, options["--Format"], cluster, now_s, together=together)


def scontrol(cluster: Cluster, argv: Sequence[str], now_s: float) -> str:
    """Tell nodes, reservations, partitions, the configuration or the topology.

    Raises:
        ComplaintError: Something else was asked for.
    """
    tell: dict[str, Callable[[], str]] = {
        "nodes": lambda: "".join(_node(cluster, n, now_s) for n in cluster.nodes),
        "partitions": lambda: "".join(_part(cluster, part) for part in cluster.parts),
        "reservations": lambda: "No reservations in the system\n",
        "config": lambda: _config(cluster, now_s),
        "topology": lambda: _topology(cluster),
    }
    asked = [word for word in argv if not word.startswith("-")]
    if asked[:1] != ["show"] or len(asked) < 2 or asked[1] not in tell:  # noqa: PLR2004
        said = " ".join(asked)
        raise ComplaintError(f"scontrol: error: this stand-in cannot `{said[:80]}`")
    return tell[asked[1]]()


def sdiag(cluster: Cluster, now_s: float) -> str:
    """Tell the statistics, taken now."""
    waiting = sum(job.is_pending and job.submit_s <= now_s for job in cluster.jobs)
    rule = "*" * 55
    return (
        f"{rule}\nsdiag output at {told(now_s)}\nData since      "
        f"{told(cluster.since_s)}\n{rule}\nServer thread count:  3\n\n"
        f"Jobs pending:   {waiting}\n"
        f"Jobs running:   {sum(job.is_running for job in cluster.jobs)}\n\n"
        f"Main schedule statistics (microseconds):\n\tLast cycle:   91\n\n"
        f"Backfilling stats\n\tTotal cycles: {cluster.cycles}\n"
        f"\tLast cycle when: {told(cluster.planned_s)}\n\tLast cycle: 161\n"
        f"\tLast depth cycle: {waiting}\n\tLast queue length: {waiting}\n\n"
        f"Pending RPC statistics\n\tNo pending RPCs\n"
    )


def sinfo(argv: Sequence[str]) -> str:
    """Tell the release.

    Raises:
        ComplaintError: Something else was asked for.
    """
    if list(argv) != ["--version"]:
        raise ComplaintError("sinfo: error: this stand-in knows --version only")
    return f"slurm-standin {RELEASE}\n"


def _is_remembered(job: Job, now_s: float) -> bool:
    return job.end_s is None or now_s - job.end_s <= MIN_JOB_AGE_S


def _node(cluster: Cluster, name: str, now_s: float) -> str:
    holder = cluster.holder(name)
    cpus = 0 if holder is None else CPUS
    parts = ",".join(part.name for part in cluster.parts)
    return (
        f"NodeName={name} Arch=x86_64 CPUAlloc={cpus} CPUEfctv={CPUS} CPUTot={CPUS} "
        f"CPULoad=0.00 AvailableFeatures=(null) ActiveFeatures=(null) Gres=(null) "
        f"NodeAddr=127.0.0.1 NodeHostName=localhost Version={RELEASE} "
        f"RealMemory={MEMORY_MIB} AllocMem={cpus and MEMORY_MIB} "
        f"State={_node_state(cluster, name, holder, now_s)} Weight=1 "
        f"Partitions={parts}\n"
    )


def _node_state(cluster: Cluster, name: str, holder: Job | None, now_s: float) -> str:
    if holder is not None:
        return "ALLOCATED+COMPLETING" if holder.is_completing else "ALLOCATED"
    planned = (job for job in cluster.jobs if is_planned(job, now_s))
    return "IDLE+PLANNED" if any(name in job.wanted for job in planned) else "IDLE"


def _part(cluster: Cluster, part: Part) -> str:
    count = len(cluster.nodes)
    return (
        f"PartitionName={part.name} AllowGroups=ALL "
        f"Default={'YES' if part.is_default else 'NO'} GraceTime={part.grace_s} "
        f"Hidden=NO MaxTime={clock(part.max_time_s)} Nodes={','.join(cluster.nodes)} "
        f"PriorityTier={part.tier} OverSubscribe=NO OverTimeLimit=NONE "
        f"PreemptMode={'CANCEL' if part.is_preemptable else 'OFF'} State=UP "
        f"TotalCPUs={count * CPUS} TotalNodes={count}\n"
    )


def _topology(cluster: Cluster) -> str:
    """Tell leaf switches below one more; nothing at all where there are none."""
    if not cluster.leaves:
        return ""
    lines = [
        f"SwitchName={name} Level=0 LinkSpeed=1 Nodes={','.join(nodes)}\n"
        for name, nodes in cluster.leaves.items()
    ]
    return (
        f"{''.join(lines)}SwitchName=spine Level=1 LinkSpeed=1 "
        f"Nodes={','.join(cluster.nodes)} Switches={','.join(cluster.leaves)}\n"
    )


def _config(cluster: Cluster, now_s: float) -> str:
    settings = _CONFIG | {
        "KillWait": f"{cluster.kill_wait_s:.0f} sec",
        "TopologyPlugin": f"topology/{'tree' if cluster.leaves else 'none'}",
    }
    lines = (f"{key:<24}= {value}\n" for key, value in sorted(settings.items()))
    return f"Configuration data as of {iso(now_s)}\n{''.join(lines)}\n"
