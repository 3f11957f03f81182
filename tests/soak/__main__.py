"""The command: ``python -m tests.soak harm|coverage|meet|faults|quality``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.planning.settings import LIVE_POLICIES
from tests.cluster.holding import running_cluster
from tests.cluster.machine import ClusterRefusedError, prepare, this_machine
from tests.cluster.settings import Variant
from tests.soak.harm_runs import Measurement, measure_coverage, measure_harm
from tests.soak.kills import endure
from tests.soak.meetings import meet
from tests.soak.quality import compare

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.cluster.cluster import Cluster

_UNAVAILABLE = 69
_MEASURES = {"harm": measure_harm, "coverage": measure_coverage}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the measurement, print its report, and return the exit status."""
    asked = _parser().parse_args(argv)
    try:
        prepare(this_machine())
        with _folder() as folder, _cluster(asked) as cluster:
            if asked.what in _MEASURES:
                wanted = Measurement(
                    seed=asked.seed,
                    span_s=asked.span,
                    repeats=asked.repeats,
                    tick_every_s=asked.tick,
                    time_scale=asked.scale,
                    stubborn=asked.stubborn,
                    trainers=asked.trainers,
                    light=asked.light,
                    spare=asked.spare,
                    policy=asked.policy,
                )
                report = _MEASURES[asked.what](cluster, folder, wanted)
            elif asked.what == "meet":
                report = meet(
                    cluster, folder, repeats=asked.repeats, tick_every_s=asked.tick
                )
            elif asked.what == "quality":
                report = compare(
                    cluster, folder, asked.priority, tick_every_s=asked.tick
                )
            else:
                report = endure(cluster, folder, seed=asked.seed, kills=asked.kills)
            for line in report:
                sys.stdout.write(f"{line}\n")
                sys.stdout.flush()
    except ClusterRefusedError as error:
        sys.stderr.write(f"error: {error}\n")
        return _UNAVAILABLE
    return 0


@contextmanager
def _cluster(asked: argparse.Namespace) -> Iterator[Cluster]:
    variants = {Variant.SHARED} if asked.mode == "yield" else set()
    with running_cluster(variants | set(asked.variant)) as cluster:
        yield cluster


@contextmanager
def _folder() -> Iterator[Path]:
    """Make a folder that other users' jobs can reach; it goes at the end."""
    with tempfile.TemporaryDirectory(prefix="soak") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak",
        description="Measure FreeTrain on a real cluster of eight nodes.",
        epilog="Example: python -m tests.soak harm --mode yield --repeats 3",
    )
    parser.add_argument("what", choices=(*_MEASURES, "meet", "faults", "quality"))
    parser.add_argument("--mode", choices=("preempt", "yield"), default="preempt")
    parser.add_argument(
        "--variant", type=Variant, choices=list(Variant), action="append", default=[]
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=20, help="for faults")
    parser.add_argument("--repeats", type=int, default=3, help="for harm")
    parser.add_argument("--span", type=float, default=1_800, help="seconds, for harm")
    parser.add_argument("--tick", type=float, default=10, help="seconds, for harm")
    parser.add_argument("--scale", type=float, default=1, help="of times, for harm")
    parser.add_argument(
        "--stubborn", action="store_true", help="trainers ignore signals, for harm"
    )
    parser.add_argument(
        "--trainers", type=int, choices=(1, 2, 3), default=3, help="for harm"
    )
    parser.add_argument(
        "--light", action="store_true", help="trainers import little, for harm"
    )
    parser.add_argument(
        "--spare", action="store_true", help="trainers keep spares, for harm"
    )
    parser.add_argument(
        "--policy",
        choices=LIVE_POLICIES,
        default="freetrain",
        help="of the planner, for harm",
    )
    parser.add_argument(
        "--priority", nargs="+", default=["fair", "slaq"], help="for quality"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
