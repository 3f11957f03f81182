"""The Lublin-Feitelson workload model: seeded traces for machines of any size."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logs.generate.arrivals import Cycle, working_times_s
from logs.generate.draws import Draws
from logs.generate.shapes import (
    draw_index,
    draw_limit_s,
    draw_nodes,
    draw_run_s,
    user_weights,
)
from logs.trace import Job, JobTrace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from logs.generate.model import JobClass, WorkloadModel

MONDAY_UNIX_S = 1_704_067_200.0
"""Unix time of t = 0: Monday 2024-01-01 00:00 UTC, a fiction with a weekday."""

GENERATOR_VERSION = 1
"""Grows by one whenever a model and a seed no longer give the jobs they gave."""

_COMPLETED = "1"
"""The status of the Standard Workload Format for a job that ran to its end."""

# Keys of the random streams, after the number of the class. Never renumber them:
# every trace ever generated would change.
_GAPS, _SIZES, _RUNS, _LIMITS, _USERS = range(5)


@dataclass(frozen=True, slots=True)
class _Draft:
    """A job before calibration.

    Attributes:
        at: When it is submitted, as a share of the span, before calibration.
        class_number: Index into the model's classes.
    """

    at: float
    class_number: int
    nodes: int
    run_s: int
    limit_s: int
    user: int


def generate(model: WorkloadModel) -> JobTrace:
    """Return a trace of the jobs that *model* submits, without start times.

    Jobs are drawn until they hold ``load`` times the machine's node-seconds; all
    gaps are then stretched by one factor, so that the first job left out falls on
    the end of the span. So the offered load is met to within the last job, and
    the shapes of the jobs do not depend on it.

    Source:
        See ``WorkloadModel``; the calibration is ours.
    """
    drafts, first_left_out = _draft_enough(model)
    cycles = [Cycle.of(jobs, model) for jobs in model.classes]
    submitted = sorted(
        (_submit_s(draft, cycles, model, 1 / first_left_out), i, draft)
        for i, draft in enumerate(drafts)
    )
    return JobTrace(
        source=f"lublin-{model.nodes}-nodes-seed-{model.seed}",
        log_format="generated",
        jobs=tuple(
            _job(number, submit_s, draft, model)
            for number, (submit_s, _, draft) in enumerate(submitted, start=1)
        ),
        units=model.nodes,
        unix_start_s=MONDAY_UNIX_S,
        comments=_comments(model),
    )


def _draft_enough(model: WorkloadModel) -> tuple[list[_Draft], float]:
    wanted_node_s = model.load * model.nodes * model.span_s
    streams = [_drafts(model, number) for number in range(len(model.classes))]
    drafts: list[_Draft] = []
    endless = heapq.merge(*streams, key=lambda draft: draft.at)
    while wanted_node_s > 0:
        draft = next(endless)
        wanted_node_s -= draft.nodes * draft.run_s
        drafts.append(draft)
    return drafts, next(endless).at


def _drafts(model: WorkloadModel, class_number: int) -> Iterator[_Draft]:
    jobs = model.classes[class_number]
    gaps, sizes, runs, limits, users = (
        Draws(model.seed, class_number, aspect)
        for aspect in (_GAPS, _SIZES, _RUNS, _LIMITS, _USERS)
    )
    span_s = Cycle.of(jobs, model).working_s(model.span_s)
    by_user = user_weights(model.users)
    for working_s in working_times_s(gaps, jobs, model.longest_log_gap):
        nodes = draw_nodes(sizes, jobs, model.nodes)
        run_s = draw_run_s(runs, jobs, nodes, longest_log_run=model.longest_log_run)
        yield _Draft(
            at=working_s / span_s,
            class_number=class_number,
            nodes=nodes,
            run_s=run_s,
            limit_s=draw_limit_s(limits, model, run_s),
            user=draw_index(users, by_user) + 1,
        )


def _submit_s(
    draft: _Draft, cycles: list[Cycle], model: WorkloadModel, stretch: float
) -> int:
    cycle = cycles[draft.class_number]
    working_s = draft.at * stretch * cycle.working_s(model.span_s)
    return int(min(cycle.clock_s(working_s), model.span_s - 1))


def _job(number: int, submit_s: int, draft: _Draft, model: WorkloadModel) -> Job:
    jobs: JobClass = model.classes[draft.class_number]
    return Job(
        job_id=str(number),
        submit_s=float(submit_s),
        start_s=None,
        run_s=float(draft.run_s),
        units=draft.nodes,
        requested_s=float(draft.limit_s),
        user=str(draft.user),
        state=_COMPLETED,
        swf=(("queue", float(jobs.queue)),),
    )


def _comments(model: WorkloadModel) -> tuple[str, ...]:
    return (
        "Synthetic: no machine and no person is in this log.",
        "Model: Lublin and Feitelson 2003; limits and users as docs/generator.md says",
        f"Generator: FreeTrain logs.generate, version {GENERATOR_VERSION}",
        f"Seed: {model.seed}",
        f"Offered load: {model.load:g} of {model.nodes} nodes, {model.days:g} days",
        f"Weekend weight: {model.weekend_weight:g}",
        *(f"Queue: {jobs.queue} {jobs.name}" for jobs in model.classes),
    )
