"""The command: ``python -m tests.cluster up|down|status|prepare``."""

import argparse
import os
import re
import sys
from collections.abc import Sequence

from tests.cluster.cluster import Cluster, node_states, take_down
from tests.cluster.holding import hold, start_to_stay
from tests.cluster.machine import (
    RELEASE,
    ClusterRefusedError,
    prepare,
    programs_of,
    this_machine,
)
from tests.cluster.settings import Variant

VERBS = ("up", "down", "status", "prepare", "hold")
_UNAVAILABLE = 69
_NAME = re.compile(r"[a-z0-9-]{1,30}", re.ASCII)

MPI = (
    ("OMPI_MCA_coll", "^han"),  # 5.0.11 hangs where several "nodes" are one host
    ("OMPI_MCA_btl", "self,tcp"),  # its shared memory mixes such nodes up
    ("OMPI_MCA_mpi_yield_when_idle", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
)
"""What whoever tries MPI programs on the cluster by hand needs."""


def main(argv: Sequence[str] | None = None) -> int:
    """Do what *argv* says and return the exit status."""
    asked = _parser().parse_args(argv)
    cluster = Cluster(asked.name)
    try:
        _do(asked.verb, cluster, frozenset(asked.variant), asked.release)
    except (ClusterRefusedError, TimeoutError) as error:
        sys.stderr.write(f"error: {error}\n")
        return _UNAVAILABLE
    return 0


def _do(
    verb: str, cluster: Cluster, variants: frozenset[Variant], release: str
) -> None:
    match verb:
        case "down":
            take_down(cluster)
            _say(f"no cluster {cluster.name} is running")
        case "status":
            _say(_status(cluster))
        case "hold":
            hold(cluster, variants, programs=programs_of(release, os.environ))
        case "prepare":
            prepare(this_machine())
            programs_of(release, os.environ)
        case _:
            prepare(this_machine())
            _say(_up(cluster, variants, release))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster",
        description="A real Slurm cluster of eight nodes on this machine, for tests.",
        epilog="Example: python -m tests.cluster up --variant gres --name two",
    )
    parser.add_argument("verb", choices=VERBS)
    parser.add_argument("--name", type=_name, default="main")
    parser.add_argument(
        "--variant", type=Variant, choices=list(Variant), action="append", default=[]
    )
    parser.add_argument(
        "--release", default=os.environ.get(RELEASE, ""), help="another than installed"
    )
    return parser


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError("letters a-z, digits and -, at most 30")
    return text


def _up(cluster: Cluster, variants: frozenset[Variant], release: str) -> str:
    if cluster.exists and cluster.is_up:
        if cluster.variants != variants:
            raise ClusterRefusedError(
                f"a cluster {cluster.name} with other variants is running "
                f"({_words(cluster.variants)}). Nothing was changed. Take it down "
                f"first, or give this one another --name."
            )
        return _status(cluster)
    take_down(cluster)
    start_to_stay(cluster, variants, release=release)
    return _status(cluster)


def _status(cluster: Cluster) -> str:
    if not cluster.exists:
        return f"no cluster {cluster.name} is running"
    if not cluster.is_up:
        return f"the cluster {cluster.name} is broken; see {cluster.folder}/log"
    states = node_states(cluster)
    told = ", ".join(f"{states.count(s)} {s}" for s in sorted(set(states)))
    other = cluster.programs
    path = f'\nexport PATH="{other}:$PATH"' if other is not None else ""
    return (
        f"the cluster {cluster.name} is up ({_words(cluster.variants)}): {told}\n"
        f"export SLURM_CONF={cluster.conf}{path}\n"
        f"export {' '.join(f'{name}={value}' for name, value in MPI)}"
    )


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _words(variants: frozenset[Variant]) -> str:
    return ", ".join(sorted(variants)) or "plain"


if __name__ == "__main__":
    raise SystemExit(main())
