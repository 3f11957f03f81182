"""Clusters for tests, each held by a process, so that no death leaves one behind.

The holder starts the cluster, says so, and listens: on ``keep`` it goes and leaves the
cluster running; when its input ends, because its owner is done or was killed, it takes
the cluster down. ``cluster_of`` is the fixture.
"""

import os
import secrets
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster, bring_up, take_down
from tests.cluster.machine import RELEASE, ClusterRefusedError, prepare, this_machine
from tests.cluster.processes import adopt_orphans, kill_descendants, reap_orphans
from tests.cluster.settings import Variant

_READY = b"ready\n"
_KEEP = b"keep\n"
_TOP = Path(__file__).resolve().parent.parent.parent


@contextmanager
def running_cluster(
    variants: Collection[Variant], *, release: str | None = None
) -> Iterator[Cluster]:
    """Run a cluster of its own as long as the block lasts, or we live.

    Args:
        variants: How it differs from the plain one.
        release: Of Slurm; None for what FREETRAIN_SLURM_RELEASE says, if anything.

    Raises:
        ClusterRefusedError: It could not be started.
    """
    cluster = Cluster(f"held-{secrets.token_hex(4)}")
    chosen = os.environ.get(RELEASE, "") if release is None else release
    with _holder(cluster, variants, chosen):
        yield cluster


def start_to_stay(
    cluster: Cluster, variants: Collection[Variant], *, release: str
) -> None:
    """Start *cluster* and leave it running.

    Raises:
        ClusterRefusedError: It could not be started; nothing of it is left.
    """
    with _holder(cluster, variants, release) as holder:
        holder.communicate(_KEEP)


_REAP_EVERY_S = 1.0


def hold(
    cluster: Cluster, variants: Collection[Variant], *, programs: Path | None = None
) -> None:
    """Be the process that holds *cluster*."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(1))
    adopt_orphans()
    keep = False
    try:
        bring_up(cluster, variants, programs=programs)
        with suppress(BrokenPipeError):  # whoever asked is dead: the input has ended
            os.write(sys.stdout.fileno(), _READY)
        # A thousand jobs leave as many thousand: agents look through all processes.
        while not select.select([sys.stdin], [], [], _REAP_EVERY_S)[0]:
            reap_orphans()
        keep = sys.stdin.buffer.readline() == _KEEP
    finally:
        if not keep:
            take_down(cluster)
            kill_descendants()


@contextmanager
def _holder(
    cluster: Cluster, variants: Collection[Variant], release: str
) -> Iterator[subprocess.Popen[bytes]]:
    chosen = [f"--variant={variant}" for variant in sorted(variants)]
    with subprocess.Popen(  # noqa: S603 -- our own interpreter and words
        [
            sys.executable,
            "-m",
            "tests.cluster",
            "hold",
            "--name",
            cluster.name,
            f"--release={release}",
            *chosen,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=_TOP,
        start_new_session=True,  # an interrupt is for us; it sees its input end
    ) as holder:
        if holder.stdout is None or holder.stdout.readline() != _READY:
            raise ClusterRefusedError(
                f"the cluster {cluster.name} could not be started; nothing of it is "
                f"left. What went wrong stands above."
            )
        yield holder


SWITCH = "FREETRAIN_SLURM"


@pytest.fixture(scope="session")
def cluster_of() -> Iterator[Callable[..., Cluster]]:
    """Return a function from variants to a running cluster, started when first asked.

    Skips where there can be none, and where nobody asked for one: it installs
    packages and starts daemons.
    """
    if os.environ.get(SWITCH) != "1":
        pytest.skip(f"no real Slurm was asked for: `make test` does, or {SWITCH}=1")
    try:
        prepare(this_machine())
    except ClusterRefusedError as refusal:
        pytest.skip(str(refusal))
    running: dict[frozenset[Variant], Cluster] = {}
    with ExitStack() as held:

        def start(*variants: Variant) -> Cluster:
            key = frozenset(variants)
            if key not in running:
                running[key] = held.enter_context(running_cluster(key))
            return running[key]

        yield start
