"""What the cluster is made of, as text: slurm.conf and its companions."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

NODES = tuple(f"n{number}" for number in range(1, 9))
MORE_NODES = tuple(f"n{number}" for number in range(1, 41))
GPU_NODES = NODES[6:]
PART_GPUS = {
    **dict.fromkeys(NODES[:4], ("a100", 4)),
    **dict.fromkeys(NODES[4:6], ("v100", 2)),
    NODES[6]: ("a100_1g.5gb", 4),  # as Slurm names a MIG profile
}
"""Kind and number of the GPUs of nodes that jobs share; the last node has none."""

IB_NODES = NODES[1::2]
RACKS = {"rack1": NODES[:4], "rack2": NODES[4:]}
GRACE_S = 10
EPILOG_S = 8
CLUSTER_NAME = "freetrain-test"

TASK_PROLOG = "task-prolog"
PROGRAMS = "programs"
"""The file that names the folder of another release's programs, or nothing."""

# Daemons of MPI that start at one moment on what is one host get in each other's way
# in its temporary folder (Open MPI 5.0.11: "listener thread failed to start"). Nodes
# of a real cluster have a folder each, so these have, too.
_OWN_TMP = """\
#!/bin/sh
echo "export TMPDIR={tmp}/$SLURMD_NODENAME"
"""

_BACKFILL = "bf_resolution=30,bf_continue"
_CYCLE_S, _USUAL_CYCLE_S = 5, 30  # between two cycles; the second is Slurm's default


class Variant(StrEnum):
    """How a cluster may differ from the plain one; they can be combined."""

    MEMORY = "memory"
    GRES = "gres"
    SHARED = "shared"
    COMPLETE_WAIT = "complete-wait"
    FORCED_YIELDS = "forced-yields"
    PROMPT = "prompt"
    TREE = "tree"
    BLOCK = "block"
    LIMITS = "limits"
    FORTY = "forty"  # nodes, so that ten users can share them; backfill's usual cycle
    EXEMPT = "exempt"
    PARTS = "parts"  # jobs share nodes of eight CPUs, with GPUs of three kinds


_SCHEDULING = {
    Variant.FORCED_YIELDS: ",bf_yield_interval=1,bf_yield_sleep=300000",  # microseconds
    # The main scheduler looks at once where a job has ended, not up to 3 s later.
    Variant.PROMPT: ",batch_sched_delay=0",
}


_TOPOLOGY = {
    Variant.TREE: """\
SwitchName=rack1 Nodes=n[1-4]
SwitchName=rack2 Nodes=n[5-8]
SwitchName=spine Switches=rack[1-2]
""",
    Variant.BLOCK: """\
BlockName=rack1 Nodes=n[1-4]
BlockName=rack2 Nodes=n[5-8]
BlockSizes=4,8
""",
}


def nodes_of(variants: Collection[Variant]) -> tuple[str, ...]:
    """Return the names of the nodes of a cluster."""
    return MORE_NODES if Variant.FORTY in variants else NODES


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a cluster lives.

    Attributes:
        folder: All its files.
        controller_port: TCP port of slurmctld.
        node_ports: TCP ports of the slurmd, one for each node.
        accounting_ports: TCP ports of the accounting's database and of slurmdbd.
    """

    folder: Path
    controller_port: int
    node_ports: tuple[int, ...]
    accounting_ports: tuple[int, int] = (0, 0)

    @property
    def conf(self) -> Path:
        """What SLURM_CONF must name."""
        return self.folder / "slurm.conf"

    @property
    def socket(self) -> Path:
        """Where munged listens."""
        return self.folder / "munge" / "socket"


def device_names(variants: Collection[Variant]) -> tuple[str, ...]:
    """Return the names of the cluster's files that must be devices.

    Only of such GPUs does Slurm tell a job which it has (CUDA_VISIBLE_DEVICES).
    """
    if Variant.PARTS not in variants:
        return ()
    return tuple(f"gpu{n}" for n in range(max(n for _, n in PART_GPUS.values())))


def config_files(
    layout: Layout, variants: Collection[Variant], *, plugins: Path | None = None
) -> dict[str, str]:
    """Return the text of every configuration file, by its name in the folder.

    Args:
        layout: Where the cluster lives.
        variants: How it differs from the plain one.
        plugins: Slurm's plugins, of a release that is not the installed one: then
            it is a later one than Debian 12's, and must be told to do without cgroups.
    """
    slurm_conf = _slurm_conf(layout, variants)
    files = {"slurm.conf": slurm_conf, "cgroup.conf": ""}
    files[TASK_PROLOG] = _OWN_TMP.format(tmp=layout.folder / "tmp")
    if plugins is not None:
        # Slurm 24.11 starts prologs by a descriptor of its slurmstepd, which is closed
        # then: that is no way to start a script (execve(2)), as these programs are.
        lines = slurm_conf.splitlines(keepends=True)
        slurm_conf = "".join(x for x in lines if not x.startswith("TaskProlog="))
        files["slurm.conf"] = slurm_conf + f"PluginDir={plugins}\n"
        files["cgroup.conf"] = "CgroupPlugin=disabled\n"
    if Variant.PARTS in variants:
        files["gres.conf"] = "".join(
            f"NodeName={name} Name=gpu Type={kind} "
            f"File={layout.folder}/gpu[0-{count - 1}]\n"
            for name, (kind, count) in PART_GPUS.items()
        )
    if Variant.GRES in variants:
        devices = f"{layout.folder}/gpu[0-1]"
        files["gres.conf"] = "".join(
            f"NodeName={name} Name=gpu Type=a100 File={devices}\n" for name in GPU_NODES
        )
        files |= {"gpu0": "", "gpu1": ""}
    for variant in _TOPOLOGY.keys() & variants:
        files["topology.conf"] = _TOPOLOGY[variant]
    if Variant.COMPLETE_WAIT in variants:
        files["epilog"] = f"#!/bin/sh\nexec sleep {EPILOG_S}\n"
    return files


def _slurm_conf(layout: Layout, variants: Collection[Variant]) -> str:
    settings = {
        **_daemons(layout),
        **_plugins(),
        **_scheduling(variants),
        **_options(layout, variants),
    }
    lines = [f"{name}={value}" for name, value in settings.items()]
    lines += _nodes(layout, variants)
    lines += _partitions(variants)
    return "\n".join(lines) + "\n"


def _daemons(layout: Layout) -> dict[str, object]:
    folder = layout.folder
    return {
        "ClusterName": CLUSTER_NAME,
        "SlurmctldHost": "localhost",
        "SlurmctldPort": layout.controller_port,
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "AuthType": "auth/munge",
        "CredType": "cred/munge",
        "AuthInfo": f"socket={layout.socket}",
        "StateSaveLocation": folder / "state",
        "SlurmdSpoolDir": folder / "spool" / "%n",
        "SlurmctldPidFile": folder / "run" / "slurmctld.own-pid",
        "SlurmdPidFile": folder / "run" / "%n.own-pid",
        "SlurmctldLogFile": folder / "log" / "slurmctld.log",
        "SlurmdLogFile": folder / "log" / "%n.log",
        "SlurmdParameters": "config_overrides",  # whatever this machine really has
        "MessageTimeout": 30,  # a busy machine is no failure
        "ReturnToService": 2,
        "KillWait": 5,
        "InactiveLimit": 0,
        "MaxArraySize": 101,
    }


def _plugins() -> dict[str, object]:
    return {
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "MpiDefault": "none",
        "SwitchType": "switch/none",
        "JobCompType": "jobcomp/none",
        "AccountingStorageType": "accounting_storage/none",
    }


def _scheduling(variants: Collection[Variant]) -> dict[str, object]:
    scheduling = [_SCHEDULING[one] for one in sorted(variants) if one in _SCHEDULING]
    preempts = Variant.SHARED not in variants
    cycle_s = _USUAL_CYCLE_S if Variant.FORTY in variants else _CYCLE_S
    backfill = f"bf_interval={cycle_s},{_BACKFILL}"
    return {
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": backfill + "".join(scheduling),
        "PriorityType": "priority/basic",
        "PreemptType": "preempt/partition_prio" if preempts else "preempt/none",
        "PreemptMode": "CANCEL" if preempts else "OFF",
    }


def _options(layout: Layout, variants: Collection[Variant]) -> dict[str, object]:
    has_parts = Variant.PARTS in variants
    has_memory = has_parts or Variant.MEMORY in variants
    settings: dict[str, object] = {
        "TaskProlog": layout.folder / TASK_PROLOG,
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU_Memory" if has_memory else "CR_CPU",
        "JobAcctGatherType": f"jobacct_gather/{'linux' if has_memory else 'none'}",
    }
    if has_memory:
        settings |= {
            "DefMemPerNode": 600,
            "JobAcctGatherParams": "OverMemoryKill",
            "JobAcctGatherFrequency": "task=2",
        }
    if {Variant.GRES, Variant.PARTS} & set(variants):
        settings["GresTypes"] = "gpu"
    if Variant.EXEMPT in variants:
        settings["PreemptExemptTime"] = "00:10:00"
    if Variant.COMPLETE_WAIT in variants:
        settings |= {"CompleteWait": 20, "Epilog": layout.folder / "epilog"}
    if Variant.LIMITS in variants:
        settings |= {
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": "localhost",
            "AccountingStoragePort": layout.accounting_ports[1],
            "AccountingStoragePass": layout.socket,
            "AccountingStorageEnforce": "limits",
        }
    for variant in _TOPOLOGY.keys() & variants:
        settings["TopologyPlugin"] = f"topology/{variant}"
    return settings


def _nodes(layout: Layout, variants: Collection[Variant]) -> list[str]:
    has_parts = Variant.PARTS in variants
    gpus = dict.fromkeys(GPU_NODES, ("a100", 2)) if Variant.GRES in variants else {}
    gpus = PART_GPUS if has_parts else gpus
    size = "CPUs=8 RealMemory=8000" if has_parts else "CPUs=2 RealMemory=2000"
    return [
        f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} "
        f"{size} Feature={_features(name, gpus)}"
        + (" Gres=gpu:{}:{}".format(*gpus[name]) if name in gpus else "")
        for name, port in zip(nodes_of(variants), layout.node_ports, strict=True)
    ]


def _features(name: str, gpus: Collection[str]) -> str:
    features = ["gpu" if name in gpus else "cpu"]
    features += ["ib"] if name in IB_NODES else []
    features += (rack for rack, nodes in RACKS.items() if name in nodes)
    return ",".join(features)


def _partitions(variants: Collection[Variant]) -> list[str]:
    every = f"Nodes={','.join(nodes_of(variants))} State=UP"
    main = f"PartitionName=main {every} Default=YES MaxTime=1-00:00:00 "
    # Jobs share nodes unless the partition, or they, say otherwise.
    way = "NO" if Variant.PARTS in variants else "EXCLUSIVE"
    if Variant.SHARED in variants:
        return [main + f"OverSubscribe={way}"]
    freetrain = (
        f"PartitionName=freetrain {every} MaxTime=04:00:00 "
        f"PriorityTier=1 PreemptMode=CANCEL GraceTime={GRACE_S}"
    )
    return [main + f"OverSubscribe={way} PriorityTier=10", freetrain]
