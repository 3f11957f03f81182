"""``python -m tests.soak WHAT``: measures on a real Slurm; ``-h`` lists them."""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from freetrain.planning.settings import LIVE_POLICIES
from tests.cluster.cluster import Cluster
from tests.cluster.holding import running_cluster
from tests.cluster.machine import ClusterRefusedError, prepare, this_machine
from tests.cluster.settings import Variant
from tests.e2e.stage import undisturbed
from tests.soak.gpus import measure_gpus
from tests.soak.harm_runs import Measurement, measure_coverage, measure_harm
from tests.soak.many_users import ManyUsers, measure_many
from tests.soak.meetings import meet
from tests.soak.pieces import measure_pieces
from tests.soak.quality import compare
from tests.soak.requeue import measure_requeue
from tests.soak.storm import epochs_for, set_up_stage, storm

_UNAVAILABLE = 69
_MEASURES = {
    "harm": measure_harm,
    "coverage": measure_coverage,
    "requeue": measure_requeue,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the measurement, print its report, and return the exit status."""
    asked = _parser().parse_args(argv)
    try:
        prepare(this_machine())
        mode = asked.mode or ("yield" if asked.what == "faults" else "preempt")
        variants = {Variant.SHARED} if mode == "yield" else set()
        variants |= {Variant.FORTY} if asked.what == "many" else set()
        if asked.what in {"pieces", "gpus"}:
            variants.add(Variant.PARTS)
        variants |= set(asked.variant)
        tick_every_s = asked.tick or (60.0 if asked.what == "many" else 10.0)
        count = 1 + 2 * (asked.what in {"many", "gpus"} and asked.repeats > 0)
        count += asked.what == "gpus" and mode == "preempt" and asked.repeats > 0
        with ExitStack() as held:
            name = held.enter_context(tempfile.TemporaryDirectory(prefix="soak"))
            clusters = [
                held.enter_context(running_cluster(variants)) for _ in range(count)
            ]
            cluster, folder = clusters[0], Path(name)
            folder.chmod(0o755)  # other users' jobs must reach it
            if asked.what in _MEASURES:
                wanted = Measurement(
                    seed=asked.seed,
                    span_s=asked.span,
                    repeats=asked.repeats,
                    tick_every_s=tick_every_s,
                    time_scale=asked.scale,
                    stubborn=asked.stubborn,
                    spare=asked.spare,
                    policy=asked.policy,
                )
                report = _MEASURES[asked.what](cluster, folder, wanted)
            elif asked.what == "many":
                users = ManyUsers(
                    seed=asked.seed,
                    span_s=asked.span,
                    tick_every_s=tick_every_s,
                    time_scale=asked.scale,
                    brokers=asked.brokers,
                    stopped=asked.stopped,
                    old=asked.old,
                )
                report = measure_many(clusters, folder, users)
            elif asked.what == "meet":
                report = meet(
                    cluster, folder, repeats=asked.repeats, tick_every_s=tick_every_s
                )
            elif asked.what == "pieces":
                report = measure_pieces(
                    cluster, folder, seed=asked.seed, states=asked.states
                )
            elif asked.what == "gpus":
                gpu_run = Measurement(
                    seed=asked.seed,
                    span_s=asked.span,
                    repeats=asked.repeats,
                    tick_every_s=tick_every_s,
                )
                report = measure_gpus(clusters, folder, gpu_run, mode=mode)
            elif asked.what == "quality":
                report = compare(cluster, folder, tick_every_s=tick_every_s)
            else:
                report = _faults(
                    cluster,
                    folder,
                    seed=asked.seed,
                    faults=asked.faults,
                    most_pause_s=asked.pause,
                )
            for line in report:
                sys.stdout.write(f"{line}\n")
                sys.stdout.flush()
    except ClusterRefusedError as error:
        sys.stderr.write(f"error: {error}\n")
        return _UNAVAILABLE
    return 0


def _faults(
    cluster: Cluster, folder: Path, *, seed: int, faults: int, most_pause_s: float
) -> Iterator[str]:
    """Yield each fault and the summary; raises where a promise was broken."""
    alone = folder / "alone"
    alone.mkdir()
    reference = undisturbed(alone, epochs=epochs_for(faults))
    yield from storm(
        set_up_stage(cluster, folder),
        reference,
        seed=seed,
        faults=faults,
        most_pause_s=most_pause_s,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak",
        description="Measure FreeTrain on a real cluster on this machine.",
        epilog="Example: python -m tests.soak harm --mode yield --repeats 3",
    )
    parser.add_argument(
        "what",
        choices=(*_MEASURES, "many", "meet", "faults", "quality", "pieces", "gpus"),
    )
    parser.add_argument(
        "--mode",
        choices=("preempt", "yield"),
        help="without it yield for faults, preempt for all else",
    )
    parser.add_argument(
        "--variant", type=Variant, choices=list(Variant), action="append", default=[]
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=1_000, help="for faults")
    parser.add_argument("--states", type=int, default=500, help="for pieces")
    parser.add_argument(
        "--pause", type=float, default=3, help="seconds between faults at most"
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=3,
        help="for harm; for many and gpus 0 leaves out the runs without FreeTrain",
    )
    parser.add_argument("--span", type=float, default=1_800, help="seconds")
    parser.add_argument(
        "--tick", type=float, help="seconds; without it 60 for many, 10 for all else"
    )
    parser.add_argument("--scale", type=float, default=1, help="of times")
    parser.add_argument(
        "--brokers", type=int, choices=range(1, 11), default=10, help="for many"
    )
    parser.add_argument(
        "--stopped", type=int, default=0, help="of them stop ticking, for many"
    )
    parser.add_argument(
        "--old", type=Path, help="working tree whose code one of them runs, for many"
    )
    parser.add_argument(
        "--stubborn", action="store_true", help="trainers ignore signals, for harm"
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
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
