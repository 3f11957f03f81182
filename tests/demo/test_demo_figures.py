"""The figures of a demo, worked out by hand, and the page that shows them."""

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from freetrain.broker.lease import LeaseKey
from freetrain.demo.fake_slurm.cluster import FakeCluster, FakeJob, FakeJobState
from freetrain.demo.live import DemoMoment, DemoSegment, History, read_history
from freetrain.demo.report import (
    HEADINGS,
    Figures,
    figures_of,
    is_same,
    most_difference,
    render_page,
    shortfalls,
    trainer_row,
)
from freetrain.state.files import BROKER, AssignmentFile, TrainerDir, create_assigned
from tests.state.endings import a_lease, an_assignment

BEGIN_S = 1_795_250_000.0
HOSTILE = "</title><script>alert(1)</script>&\"'"


def segment(
    generation: int, at_s: float, nodes: str, *, by: str = "broker"
) -> DemoSegment:
    """Ten seconds of training from *at_s* on, the first step being done at once."""
    return DemoSegment(
        generation=generation,
        nodes=tuple(nodes.split()),
        is_brokers=by == "broker",
        reason=HOSTILE,
        start_s=BEGIN_S + at_s,
        first_s=BEGIN_S + at_s + 0.5,
        last_s=BEGIN_S + at_s + 10,
    )


def history(name: str = "ada", *, is_finished: bool = True) -> History:
    """One node for ten seconds, then two, then one again."""
    segments = (
        segment(1, 2, "n1"),
        segment(2, 14, "n1 n2"),
        segment(4, 25, "n2", by="survivors"),
    )
    return History(
        name=name,
        losses={1: 2.0, 2: 1.0, 3: 0.5},
        repeated_steps=1,
        samples=240,
        accuracy=0.9,
        segments=segments,
        is_finished=is_finished,
    )


def jobs() -> list[FakeJob]:
    """Theirs, half a second late because of a lease; and that lease."""
    theirs = FakeJob(
        job_id=1,
        name=HOSTILE,
        user="others",
        partition="main",
        limit_s=600,
        submit_s=BEGIN_S,
        due_s=BEGIN_S + 10,
        wanted=["n3", "n4"],
        run_s=10,
        state=FakeJobState.COMPLETED,
        nodes=["n3", "n4"],
        start_s=BEGIN_S + 10.5,
        end_s=BEGIN_S + 20.5,
        has_preempted=True,
    )
    lease = FakeJob(
        job_id=2,
        name="freetrain-x",
        user="me",
        partition="freetrain",
        limit_s=600,
        submit_s=BEGIN_S,
        state=FakeJobState.RUNNING,
        nodes=["n1"],
        start_s=BEGIN_S + 1,
    )
    return [theirs, lease]


def played(*histories: History) -> Figures:
    alone = {history.name: history.losses for history in histories}
    return figures_of(histories, alone, jobs(), nodes=8, begin_s=BEGIN_S)


def page_of(*histories: History) -> str:
    cluster = FakeCluster(
        user="me", uid=1, since_s=BEGIN_S, planned_s=BEGIN_S, jobs=jobs()
    )
    last = DemoMoment(
        begin_s=BEGIN_S, now_s=BEGIN_S + 35, cluster=cluster, histories=histories
    )
    return render_page(
        played(*histories), last, command=HOSTILE, version="0", mpirun=HOSTILE
    )


def test_the_figures_of_a_small_demo_are_those_worked_out_by_hand() -> None:
    figures = played(history())
    (ada,) = figures.trainers

    assert figures.seconds == 35
    assert figures.idle_node_s == 8 * 35 - 2 * 10
    assert figures.trained_node_s == 10 + 20 + 10
    assert figures.coverage == pytest.approx(40 / 260)
    assert (ada.by_broker, ada.by_survivors, ada.sizes) == (1, 1, (1, 2, 1))
    assert ada.pauses_s == pytest.approx((2.5, 1.5))
    assert figures.median_pause_s == pytest.approx(2.0)
    others = figures.others
    assert (others.jobs, others.met_leases) == (1, 1)
    assert others.most_delay_s == pytest.approx(0.5)


def test_a_demo_is_good_only_if_all_finished_were_rescaled_and_lost_nothing() -> None:
    good = history()
    never = replace(good, segments=good.segments[:1])

    assert played(good, good).is_good
    assert shortfalls(played(good, good)) == ()
    late = played(good, history(is_finished=False))
    assert not late.is_good
    assert shortfalls(late) == ("ada was not done after 35 s",)
    assert not played(good, never).is_good
    assert shortfalls(played(never)) == ("ada was never rescaled",)
    off = {"ada": {1: 2.0, 2: 1.0, 3: 0.5 * (1 + 1e-8)}}
    figures = figures_of([good], off, jobs(), nodes=8, begin_s=BEGIN_S)
    assert not figures.is_good
    assert shortfalls(figures) == ("ada differs from an undisturbed run: 1e-08",)


def test_losses_differ_by_the_worst_step_and_are_unknown_where_one_is_missing() -> None:
    one = {1: 2.0, 2: 1.0}

    assert most_difference(one, dict(one)) == 0
    assert most_difference(one, {1: 2.0, 2: 1.1}) == pytest.approx(0.1 / 1.1)
    assert most_difference(one, {1: 2.0}) is None
    assert most_difference({}, {}) is None
    assert not is_same(None)


def test_a_history_is_read_from_progress_lines_but_for_a_last_half_line(
    tmp_path: Path,
) -> None:
    lines = [
        {"event": "start", "t": 1.0, "step": 0, "samples": 0, "generation": 1},
        {"t": 2.0, "step": 1, "samples": 80, "generation": 1, "loss": 2.0},
        {"t": 3.0, "step": 2, "samples": 160, "generation": 1, "loss": 1.0},
        {"event": "start", "t": 5.0, "step": 1, "samples": 80, "generation": 2},
        {"t": 6.0, "step": 2, "samples": 160, "generation": 2, "loss": 1.0}
        | {"accuracy": 0.5},
        {"event": "start", "t": 7.0, "step": 2, "samples": 160, "generation": 3},
    ]
    folder = TrainerDir(tmp_path)
    folder.create()
    folder.run.path.mkdir()
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    folder.run.progress.write_text(text + '{"t": 8.0, "step": 3')
    for generation in (1, 2, 3):
        create_assigned(folder, assigned(generation))

    history = read_history("ada", folder)

    assert history.losses == {1: 2.0, 2: 1.0}
    assert (history.steps, history.samples, history.repeated_steps) == (2, 160, 1)
    assert history.accuracy == 0.5
    assert [(s.generation, s.nodes, s.is_brokers) for s in history.segments] == [
        (1, ("n1",), True),
        (2, ("n1",), False),
    ]
    assert [(s.start_s, s.first_s, s.last_s) for s in history.segments] == [
        (1.0, 2.0, 3.0),
        (5.0, 6.0, 6.0),
    ]
    assert not history.is_finished


def test_a_trainer_that_never_began_has_an_empty_history(tmp_path: Path) -> None:
    history = read_history("ada", TrainerDir(tmp_path))

    assert (history.steps, history.losses, history.segments) == (0, {}, ())


def assigned(generation: int) -> AssignmentFile:
    author = BROKER if generation == 1 else "u-0"
    return an_assignment(
        generation, a_lease(LeaseKey("u", 0)), trainer="ada", author=author
    )


class Reader(HTMLParser):
    """Reads a page: its tags, and what it says."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.said = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in {"href", "src"}]

    def handle_data(self, data: str) -> None:
        self.said += data


def test_the_page_tells_every_figure_and_runs_nothing_it_was_told() -> None:
    page = Reader()
    page.feed(page_of(history(), history("ben")))

    assert "script" not in page.tags
    assert page.links == []
    assert HOSTILE in page.said
    assert page.tags.count("rect") == 2 * 4 + 2 + 1
    for cell in trainer_row(played(history()).trainers[0]):
        assert cell in page.said
    assert all(heading in page.said for heading in HEADINGS)
