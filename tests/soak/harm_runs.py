"""The same workload without FreeTrain, again without, and with it; several times."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.cluster.cluster import Cluster
from tests.cluster.settings import NODES, Variant
from tests.cluster.waiting import wait_for
from tests.e2e.others import HOLE_S, Run, Span, Submission, live_through, make_workload
from tests.e2e.stage import TOP, Stage
from tests.soak.earlier import earlier_glances, remember, watched_s
from tests.soak.measures import (
    Delay,
    Direction,
    Pause,
    coverage,
    delays,
    pauses,
    read_worked,
    spread,
    trained,
)

TRAINERS = ("ada", "ben", "cleo")
_STUBBORN = TOP / "tests" / "soak" / "stubborn_program.py"
LEASE = {
    False: 'partition = "freetrain"\nmode = "preempt"',
    True: 'partition = "main"\nmode = "yield"',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The settings of a measurement.

    Attributes:
        seed: Of the workload.
        span_s: For how long jobs are submitted.
        time_scale: Factor of the lengths of jobs and holes.
        stubborn: Whether trainers ignore every signal and notice.
        spare: Whether trainers keep spares.
        policy: With ``lookahead``, ticks have watched another workload for two hours
            before (``earlier``).
    """

    seed: int
    span_s: float
    repeats: int
    tick_every_s: float
    time_scale: float = 1.0
    stubborn: bool = False
    spare: bool = False
    policy: str = "freetrain"


def measure_harm(cluster: Cluster, folder: Path, wanted: Measurement) -> Iterator[str]:
    """Yield lines of a report, each as soon as it is known."""
    span_s, scale = wanted.span_s, wanted.time_scale
    workload = make_workload(wanted.seed, span_s=span_s, time_scale=scale)
    yield f"{len(workload)} jobs of others in {span_s:g} s, seed {wanted.seed}"
    floor: list[Delay] = []
    harm: list[Delay] = []
    for repeat in range(wanted.repeats):
        mine = folder / str(repeat)
        mine.mkdir()
        first = _live(cluster, workload, mine / "first", span_s)
        second = _live(cluster, workload, mine / "second", span_s)
        floor += delays(first, second)
        stage = Stage(cluster, mine)
        with _freetrain(stage, wanted):
            run = _live(cluster, workload, mine / "with", span_s)
            harm += delays(first, run)
            yield from _work_lines(stage, run, hole_s=scale * HOLE_S)
        cluster.clear()
    rows = {
        "without FreeTrain, against without": floor,
        "with, met no lease": [d for d in harm if not d.met_lease],
        "with, met a lease": [d for d in harm if d.met_lease],
        "with, while a lease waited": [d for d in harm if d.met_request],
    }
    yield from delay_lines(rows)


def delay_lines(rows: Mapping[str, Sequence[Delay]]) -> Iterator[str]:
    """Yield two tables: later starts, and waits while only leases held the nodes."""
    yield from _table("start later by, s", rows, lambda delay: delay.delay_s)
    title = "wait while nobody but leases holds their nodes, s"
    yield from _table(title, rows, lambda delay: delay.kept_s)


def measure_coverage(
    cluster: Cluster, folder: Path, wanted: Measurement
) -> Iterator[str]:
    """Yield the lines of a single run with FreeTrain."""
    span_s, scale = wanted.span_s, wanted.time_scale
    workload = make_workload(wanted.seed, span_s=span_s, time_scale=scale)
    stage = Stage(cluster, folder)
    with _freetrain(stage, wanted):
        run = _live(cluster, workload, folder / "with", span_s)
        yield from _work_lines(stage, run, hole_s=scale * HOLE_S)


def _live(
    cluster: Cluster, workload: Sequence[Submission], folder: Path, span_s: float
) -> Run:
    folder.mkdir()
    return live_through(cluster, workload, folder, span_s=span_s)


@contextmanager
def _freetrain(stage: Stage, wanted: Measurement) -> Iterator[None]:
    """Run trainers that could use all nodes, as long as the block lasts."""
    planner = f'[planner]\nlearn = false\npolicy = "{wanted.policy}"'
    shared = Variant.SHARED in stage.cluster.variants
    stage.set_up(lease=LEASE[shared], more=planner)
    if wanted.policy == "lookahead":
        _look_back(stage, wanted)
    launch = "spare = true" if wanted.spare else ""
    for name in TRAINERS:
        if wanted.stubborn:
            stage.submit(name, most=8, program=_STUBBORN, top="elastic = false")
        else:
            stage.submit(
                name,
                most=8,
                launch=launch,
                DIGITS_EPOCHS="4000",
                DIGITS_COUNTED="0",  # 6 MB a second to disk, of each, stall everybody
                DIGITS_STEP_S="0.2",
            )
    with stage.ticking(wanted.tick_every_s):
        yield
        stage.freetrain("cancel", *TRAINERS)
        wait_for("leases to go", lambda: not stage.leases(), limit_s=600, pause_s=1)


def _look_back(stage: Stage, wanted: Measurement) -> None:
    """Let ticks have learned from an earlier workload."""
    first = stage.tick()
    assert first.exit_code == 0, first.said
    page = json.loads(stage.state.status_report.read_text(encoding="utf-8"))
    glances = earlier_glances(
        wanted.seed,
        until_s=page["at_s"],
        every_s=wanted.tick_every_s,
        time_scale=wanted.time_scale,
    )
    remember(stage.state.path, glances)


def _work_lines(stage: Stage, run: Run, *, hole_s: float) -> Iterator[str]:
    """Yield lines about coverage and the pauses of rescales."""
    spans: dict[str, list[Span]] = {}
    stops: list[Pause] = []
    for name in TRAINERS:
        trainer, run_dir = stage.trainer(name)
        if run_dir.progress.exists():
            worked = read_worked(trainer, run_dir)
            stops += pauses(trainer, worked)
            for node, times in trained(worked).items():
                spans.setdefault(node, []).extend(times)
    page = json.loads(stage.state.status_report.read_text(encoding="utf-8"))
    most = page["caps"]["churn_per_hour"]
    yield f"{len(run.leases)} leases; churn {page['churned']}, at most {most} an hour"
    looked_s = watched_s(stage.state.path)
    if looked_s is not None:
        yield f"looked ahead, by {looked_s:.0f} s of looks at the end"
    found = coverage(run, spans, nodes=NODES, shortest_s=hole_s)
    yield (
        f"coverage of holes of {hole_s:g} s and more: {found.share:.1%} of "
        f"{found.idle_s:.0f} node-seconds"
    )
    for direction in Direction:
        some = [p for p in stops if p.direction is direction and p.was_asked]
        if some:
            yield f"{direction}: {_medians(some)}"


def _medians(some: Sequence[Pause]) -> str:
    commit_s = median(p.commit_s for p in some if p.commit_s is not None)
    launch_s = median(p.launch_s for p in some if p.launch_s is not None)
    return (
        f"{len(some)} rescales, median pause {median(p.total_s for p in some):.2f} s "
        f"(commit {commit_s:.2f}, next world {launch_s:.2f}, "
        f"first step {median(p.step_s for p in some):.2f})"
    )


def _table(
    title: str, rows: Mapping[str, Sequence[Delay]], value: Callable[[Delay], float]
) -> Iterator[str]:
    yield ""
    yield f"| {title} | jobs | median | 95 % | most |"
    yield "|---|---|---|---|---|"
    for name, some in rows.items():
        count, median_s, high_s, most_s = spread(map(value, some))
        yield f"| {name} | {count} | {median_s:.2f} | {high_s:.2f} | {most_s:.2f} |"
