"""A Slurm cluster on this machine: its nodes, each a slurmd, in one folder."""

import fcntl
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom

from slurm.runner import scrubbed
from tests.cluster.accounting import start_accounting
from tests.cluster.machine import ClusterRefusedError, plugin_folder
from tests.cluster.processes import is_running, kill_job_processes, start, stop
from tests.cluster.settings import (
    MORE_NODES,
    PROGRAMS,
    TASK_PROLOG,
    Layout,
    Variant,
    config_files,
    device_names,
    nodes_of,
)
from tests.cluster.waiting import wait_for

LAUNCH_FAILED = "launch failed requeued held"
_VARIANTS = "variants"
_KEY_BYTES = 128


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster's folder, whether it runs or not.

    The folder is not in XDG_RUNTIME_DIR: that is closed to other users, whose jobs
    must reach munge's socket.

    Attributes:
        name: What tells it from others on this machine.
    """

    name: str

    @property
    def folder(self) -> Path:
        """All its files."""
        return _base() / self.name

    @property
    def conf(self) -> Path:
        """What SLURM_CONF must name."""
        return self.folder / "slurm.conf"

    @property
    def environ(self) -> dict[str, str]:
        """Environment of commands that mean this cluster."""
        ours = {"SLURM_CONF": str(self.conf)}
        if self.programs is not None:
            ours["PATH"] = f"{self.programs}:{os.environ.get('PATH', os.defpath)}"
        return scrubbed(os.environ) | ours

    @property
    def exists(self) -> bool:
        """Whether there is anything of it, alive or not."""
        return self.folder.is_dir()

    @property
    def is_up(self) -> bool:
        """Whether every daemon lives."""
        daemons = ("munged", "slurmctld", *self.nodes)
        return all(is_running(_pid_file(self, d), folder=self.folder) for d in daemons)

    @property
    def variants(self) -> frozenset[Variant]:
        """How it differs from the plain one."""
        words = (self.folder / _VARIANTS).read_text(encoding="ascii").split()
        return frozenset(map(Variant, words))

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of its nodes."""
        return nodes_of(self.variants)

    @property
    def programs(self) -> Path | None:
        """Where its release's programs are; None for those on the PATH."""
        path = self.folder / PROGRAMS
        told = path.read_text(encoding="utf-8") if path.exists() else ""
        return Path(told) if told else None

    def run(self, *argv: str) -> str:
        """Run one of Slurm's commands here and return its standard output.

        Raises:
            subprocess.CalledProcessError: It failed.
        """
        return subprocess.run(  # noqa: S603 -- a test's own words, never a shell
            argv,
            check=True,
            capture_output=True,
            text=True,
            env=self.environ,
        ).stdout

    def clear(self) -> None:
        """End every job and wait until all nodes are idle again."""
        users = set(self.run("squeue", "--noheader", "--format=%u").split())
        for user in users:
            self.run("scancel", f"--user={user}")
        wait_for("all nodes idle again", lambda: _is_idle(self))


def bring_up(
    cluster: Cluster, variants: Collection[Variant], *, programs: Path | None = None
) -> None:
    """Start *cluster* and wait until all its nodes are idle.

    Whoever calls must call ``take_down`` if this raises or never returns.

    Args:
        cluster: Which.
        variants: How it differs from the plain one.
        programs: The folder of another release's programs (``releases.py``).

    Raises:
        ClusterRefusedError: Its folder cannot be had.
        TimeoutError: A daemon or a node did not come.
    """
    with _one_at_a_time():
        layout = _make_folder(cluster, variants, programs)
        _start_munge(cluster, layout)
        if Variant.LIMITS in variants:
            start_accounting(
                cluster.folder,
                layout.accounting_ports,
                lambda daemon, argv: _start(cluster, daemon, argv),
            )
        _start_controller(cluster)
        stepd = [] if programs is None else ["-d", str(programs / "slurmstepd")]
        for node in cluster.nodes:
            argv = ["slurmd", "-D", "-N", node, "-f", str(layout.conf), *stepd]
            _start(cluster, node, argv)
        wait_for(f"all nodes idle ({cluster.folder}/log)", lambda: _is_idle(cluster))


def take_down(cluster: Cluster) -> None:
    """End every daemon and job of *cluster* and remove its folder."""
    if not cluster.exists:
        return
    for daemon in ("slurmctld", *MORE_NODES, "slurmdbd", "mariadbd", "munged"):
        stop(_pid_file(cluster, daemon), folder=cluster.folder)
    kill_job_processes(cluster.folder)
    shutil.rmtree(cluster.folder)


def restart_controller(cluster: Cluster) -> None:
    """Stop slurmctld and start it again; it finds its jobs in its state."""
    with without_controller(cluster):
        pass


@contextmanager
def without_controller(cluster: Cluster) -> Iterator[None]:
    """Stop slurmctld for as long as the block lasts."""
    stop(_pid_file(cluster, "slurmctld"), folder=cluster.folder)
    try:
        yield
    finally:
        _start_controller(cluster)


def node_states(cluster: Cluster) -> list[str]:
    """Return each node's state as sinfo says it, empty where nobody answers."""
    done = subprocess.run(
        ["sinfo", "--noheader", "--Node", "--partition=main", "--format=%T"],  # noqa: S607
        check=False,
        capture_output=True,
        text=True,
        env=cluster.environ,
    )
    return done.stdout.split()


def resume_drained(cluster: Cluster) -> list[tuple[str, str]]:
    """Resume nodes that are drained and release jobs that failed to start.

    Returns:
        Each such node or job, with slurmctld's reason.

    Raises:
        subprocess.CalledProcessError: slurmctld did not answer.
    """
    drained = _pairs(
        cluster.run(
            *("sinfo", "--noheader", "--Node", "--partition=main"),
            *("--states=drain", "--format=%N|%E"),
        )
    )
    for node, _ in drained:
        cluster.run("scontrol", "update", f"nodename={node}", "state=resume")
    pending = cluster.run("squeue", "--noheader", "--states=PD", "--format=%i|%r")
    held = [(job, why) for job, why in _pairs(pending) if why == LAUNCH_FAILED]
    for job, _ in held:
        cluster.run("scontrol", "release", job)
    return [*drained, *((f"job {job}", why) for job, why in held)]


def _pairs(text: str) -> list[tuple[str, str]]:
    return [
        (name.strip(), why.strip())
        for name, _, why in (line.partition("|") for line in text.splitlines())
    ]


def _is_idle(cluster: Cluster) -> bool:
    if not cluster.is_up:
        raise ClusterRefusedError(f"a daemon ended: {_last_words(cluster)}")
    return node_states(cluster) == ["idle"] * len(cluster.nodes)


def _last_words(cluster: Cluster) -> str:
    """Return the end of the log of each daemon that is not alive."""
    words = []
    for pid_file in sorted((cluster.folder / "run").glob("*.pid")):
        if not is_running(pid_file, folder=cluster.folder):
            log = cluster.folder / "log" / f"{pid_file.stem}.out"
            said = log.read_text(encoding="utf-8", errors="replace")
            words.append(f"{pid_file.stem}: {said.strip()[-300:]}")
    return "; ".join(words)


def _base() -> Path:
    return Path(tempfile.gettempdir()) / "freetrain-cluster"


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Keep two clusters from choosing the same free ports."""
    base = _base()
    base.mkdir(mode=0o755, exist_ok=True)
    status = base.lstat()
    if status.st_uid != os.geteuid() or base.is_symlink():
        raise ClusterRefusedError(
            f"{base} belongs to somebody else. Nothing was started. Remove it, or set "
            f"TMPDIR to a folder of your own that all users may pass."
        )
    with (base / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make_folder(
    cluster: Cluster, variants: Collection[Variant], programs: Path | None
) -> Layout:
    nodes = nodes_of(variants)
    ports = free_ports(3 + len(nodes), rng=SystemRandom())
    layout = Layout(cluster.folder, ports[0], ports[3:], (ports[1], ports[2]))
    for name in ("", "run", "log", "state", "munge", "spool", "tmp"):
        (layout.folder / name).mkdir(mode=0o755)
    for name in nodes:
        (layout.folder / "spool" / name).mkdir(mode=0o755)
        own_tmp = layout.folder / "tmp" / name
        own_tmp.mkdir()
        own_tmp.chmod(0o1777)
    ours = {_VARIANTS: " ".join(sorted(variants)), PROGRAMS: str(programs or "")}
    files = config_files(layout, variants, plugins=plugin_folder(programs))
    for name, text in (files | ours).items():
        path = layout.folder / name
        path.write_text(text, encoding="ascii")
        path.chmod(0o755 if name in {"epilog", TASK_PROLOG} else 0o644)
    for name in device_names(variants):
        (layout.folder / name).symlink_to("/dev/null")
    return layout


def _start_munge(cluster: Cluster, layout: Layout) -> None:
    """Start munged as its own user, with a key that nobody else has."""
    folder = layout.socket.parent
    key = folder / "key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(_KEY_BYTES))
    user = pwd.getpwnam("munge")
    for path in (folder, key):
        os.chown(path, user.pw_uid, user.pw_gid)
    folder.chmod(0o711)
    as_munge = ["setpriv", "--reuid=munge", "--regid=munge", "--clear-groups"]
    files = {"key-file": key, "socket": layout.socket}
    files |= {f"{kind}-file": folder / kind for kind in ("pid", "log", "seed")}
    options = [f"--{option}={path}" for option, path in files.items()]
    _start(cluster, "munged", [*as_munge, "munged", "--foreground", *options])
    wait_for("munge's socket", layout.socket.exists)


def _start_controller(cluster: Cluster) -> None:
    _start(cluster, "slurmctld", ["slurmctld", "-D", "-f", str(cluster.conf)])


def _start(cluster: Cluster, daemon: str, argv: list[str]) -> None:
    log = cluster.folder / "log" / f"{daemon}.out"
    pid_file = _pid_file(cluster, daemon)
    start(argv, pid_file=pid_file, log=log, first=cluster.programs)


def _pid_file(cluster: Cluster, daemon: str) -> Path:
    return cluster.folder / "run" / f"{daemon}.pid"


# Below the ports that Linux hands out to connections (32768 to 60999), so that none
# of those can take one between our look and the daemon's start.
_FIRST, _LAST = 15_000, 32_000
_TRIES = 1_000


def free_ports(count: int, *, rng: Random) -> tuple[int, ...]:
    """Return *count* different ports that were free on every address just now.

    Raises:
        OSError: Hardly any port is free.
    """
    ports: list[int] = []
    with ExitStack() as held:
        for _ in range(_TRIES):
            port = rng.randint(_FIRST, _LAST)
            listener = held.enter_context(socket.socket())
            try:
                listener.bind(("", port))
            except OSError:
                continue
            ports.append(port)
            if len(ports) == count:
                return tuple(ports)
    raise OSError(f"no {count} free ports between {_FIRST} and {_LAST}")
