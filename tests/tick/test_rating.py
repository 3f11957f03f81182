"""What trainers are worth to the planner, by whatever priority the site has chosen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from freetrain.config.job import (
    Deadline,
    Nodes,
    Order,
    RescaleCosts,
    Target,
    TrainerJob,
    Work,
)
from freetrain.config.site import PlannerSettings
from freetrain.errors import BadConfigurationError
from freetrain.priority.base import Basis, Rated, Rating
from freetrain.progress import BEGINNING, Record
from freetrain.state.tables import TrainerRow, TrainerState
from freetrain.tick.history import TrainerHistory
from freetrain.tick.rate import Asking, Candidate, priority_of, rate
from freetrain.tick.speeds import StatedSpeeds
from freetrain.tick.trainers import ObservedTrainer, TrainerProgress
from milp.problem import throughput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from freetrain.losscurve.outlook import Better, Outlook, Point
    from freetrain.priority.base import Contender, Look, Memory
    from freetrain.tick.rate import Ratings


class Scripted:
    """A priority that says what it is told to, and keeps what it saw."""

    name = "scripted"

    def __init__(
        self, ratings: Mapping[str, Rating] | None = None, basis: Basis = Basis.MOMENT
    ) -> None:
        self.basis = basis
        self.looks: list[tuple[Look, Memory]] = []
        self._ratings = ratings or {}

    def rate(self, look: Look, memory: Memory, /) -> Rated:
        self.looks.append((look, memory))
        ratings = [self._ratings.get(c.name) or plain(c) for c in look.contenders]
        return Rated(tuple(ratings), {"looks": len(self.looks)})

    def seen(self) -> Contender:
        ((look, _),) = self.looks
        (contender,) = look.contenders
        return contender


def plain(contender: Contender) -> Rating:
    curve = throughput(contender.samples_per_s, contender.sizes)
    return Rating(curve=curve, reason="so it is")


def job(**changes: object) -> TrainerJob:
    made = TrainerJob(
        name="a", command=("x",), directory=Path("/"), nodes=Nodes(max_nodes=4)
    )
    return structs.replace(made, **changes)


def candidate(
    one: TrainerJob,
    *,
    name: str = "a",
    told: Sequence[Record] = (),
) -> Candidate:
    row = TrainerRow(name, "", "/r", TrainerState.WANTED, 100.0, 100.0)
    past = TrainerHistory()
    past.add(told, one)
    progress = TrainerProgress(
        history=past,
        scaling={},
        bookmark=BEGINNING,
        submitted_s=100.0,
    )
    trainer = ObservedTrainer(row=row, job=one)
    return Candidate(trainer=trainer, job=one, progress=progress)


def nobody_fits(name: str, points: Sequence[Point], better: Better) -> Outlook | None:
    pytest.fail(f"{name}: {len(points)} points were fitted, {better}, for nobody")


def asked(*candidates: Candidate, priority: Scripted) -> Ratings:
    asking = Asking(
        settings=PlannerSettings(),
        priority=priority,
        memory={"was": 1},
        fit=nobody_fits,
        speeds=StatedSpeeds(),
        nodes=8,
        now_s=500.0,
    )
    return rate(candidates, asking)


def step(n: int, loss: float) -> Record:
    return Record(t=200.0 + n, step=n, samples=10.0 * n, metrics={"loss": loss})


def test_a_priority_sees_what_job_file_and_past_say() -> None:
    one = job(
        weight=3.0,
        deadline=Deadline(after_s=50.0),
        target=Target(deliver=0.5, final=0.1),
        work=Work(samples=1_000.0),
        costs=RescaleCosts(shrink_s=7.0),
    )
    scripted = Scripted()

    ratings = asked(
        candidate(one, told=[step(1, 0.9), step(2, 0.4)]), priority=scripted
    )

    ((look, memory),) = scripted.looks
    found = scripted.seen()
    assert (look.now_s, look.nodes, look.t_fwd_s) == (500.0, 8, 120.0)
    assert memory == {"was": 1}
    assert (found.name, found.weight, found.sizes) == ("a", 3.0, (1, 2, 3, 4))
    assert found.deadline_s == 150.0
    assert (found.done_samples, found.total_samples) == (20.0, 1_000.0)
    assert found.target is not None
    assert (found.target.final, found.target.is_delivered) == (0.1, True)
    assert (found.grow_s, found.shrink_s, found.start_s) == (3.0, 7.0, 5.0)
    assert found.outlook is None, "it does not look at losses"
    assert ratings.memory == {"looks": 1}
    assert ratings.reasons == {"a": "so it is"}


def test_losses_are_fitted_only_for_a_priority_that_looks_at_them() -> None:
    fitted: list[tuple[str, list[float], Better]] = []

    def fit(name: str, points: Sequence[Point], better: Better) -> Outlook | None:
        fitted.append((name, [point.value for point in points], better))
        return None

    one = candidate(job(), told=[step(1, 0.9), step(2, 0.4)])
    asking = Asking(
        settings=PlannerSettings(),
        priority=Scripted(basis=Basis.LOSSES),
        memory={},
        fit=fit,
        speeds=StatedSpeeds(),
        nodes=1,
        now_s=0.0,
    )

    rate([one], asking)

    assert fitted == [("a", [0.9, 0.4], job().measure.better)]


def test_the_background_is_that_of_job_files_and_of_ratings() -> None:
    curve = throughput([0.0, 5.0, 8.0])
    scripted = {
        "rated": Rating(curve=curve, is_background=True, reason="it diverges"),
        "floored": Rating(curve=curve, floor=1),
    }
    names = ("normal", "asked", "rated", "floored")
    orders = (Order.NORMAL, Order.BACKGROUND, Order.NORMAL, Order.NORMAL)
    candidates = [
        candidate(job(order=order), name=name)
        for name, order in zip(names, orders, strict=True)
    ]

    ratings = asked(*candidates, priority=Scripted(scripted))

    assert ratings.background == {"asked", "rated"}
    assert ratings.curves["rated"] is curve, "being last is enough"
    assert ratings.curves["floored"].value_per_s[1] > 4 * curve.value_per_s[1]


def test_nobody_asks_for_nothing() -> None:
    ratings = asked(priority=Scripted())

    assert ratings.curves == {}
    assert ratings.background == frozenset()


def test_a_priority_that_does_not_exist_is_a_matter_of_configuration() -> None:
    with pytest.raises(BadConfigurationError, match=r"\[planner\]: no priority 'x'"):
        priority_of(PlannerSettings(priority="x"))
