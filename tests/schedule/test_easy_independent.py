"""EASY against an independent simulator, and against a published log's waits."""

import heapq
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from logs.generate import (
    ALL_JOBS,
    BATCH,
    INTERACTIVE,
    JobClass,
    WorkloadModel,
    generate,
)
from logs.read import read_trace
from logs.schedule import schedule
from logs.simulation import Method
from logs.trace import Job, JobTrace
from tests.schedule.instances import traces


class Profile:
    """Free units from now on, as slots: slot i lasts from edge i to edge i + 1."""

    def __init__(self, now_s: float, free: int) -> None:
        self.edges = [now_s]
        self.free = [free]

    def cut(self, at_s: float) -> None:
        """Make *at_s* an edge."""
        i = max(k for k, edge in enumerate(self.edges) if edge <= at_s)
        if self.edges[i] != at_s:
            self.edges.insert(i + 1, at_s)
            self.free.insert(i + 1, self.free[i])

    def take(self, units: int, start_s: float, end_s: float) -> None:
        """Take *units* from every slot between *start_s* and *end_s*."""
        self.cut(start_s)
        self.cut(end_s)
        for i, edge in enumerate(self.edges):
            if start_s <= edge < end_s:
                self.free[i] -= units

    def has(self, units: int, start_s: float, end_s: float) -> bool:
        """Tell whether *units* are free all the way."""
        return all(
            self.free[i] >= units
            for i, edge in enumerate(self.edges)
            if edge < end_s
            and (i + 1 == len(self.edges) or self.edges[i + 1] > start_s)
        )

    def earliest(self, units: int, length_s: float) -> float:
        """Return the first edge from which *units* stay free for *length_s*."""
        return next(
            edge for edge in self.edges if self.has(units, edge, edge + length_s)
        )


class TextbookEasy:
    """A machine under EASY."""

    def __init__(self, trace: JobTrace) -> None:
        self.jobs, self.units = trace.jobs, trace.units
        self.running: list[tuple[float, float, int]] = []
        self.queue: list[int] = []
        self.starts_s: dict[int, float] = {}

    def run(self) -> dict[int, float]:
        """Return when each job starts, by index."""
        arrivals = sorted(range(len(self.jobs)), key=lambda i: self.jobs[i].submit_s)
        times = [job.submit_s for job in self.jobs]
        heapq.heapify(times)
        arrived = 0
        while times:
            now_s = heapq.heappop(times)
            while times and times[0] == now_s:
                heapq.heappop(times)
            self.running = [r for r in self.running if r[0] > now_s]
            while (
                arrived < len(arrivals)
                and self.jobs[arrivals[arrived]].submit_s <= now_s
            ):
                self.queue.append(arrivals[arrived])
                arrived += 1
            for index in self.starters(now_s):
                heapq.heappush(times, self.start(index, now_s))
        return self.starts_s

    def start(self, index: int, now_s: float) -> float:
        job = self.jobs[index]
        end_s = now_s + job.run_s
        self.starts_s[index] = now_s
        self.running.append((end_s, now_s + request_s(job), job.units))
        return end_s

    def starters(self, now_s: float) -> list[int]:
        """Take the jobs that start now out of the queue."""
        profile = Profile(now_s, self.units)
        for _, expected_s, units in self.running:
            # A job past its request may end at any moment, but is still there.
            until_s = max(expected_s, math.nextafter(now_s, math.inf))
            profile.take(units, now_s, until_s)
        started: list[int] = []
        promised = False
        for index in tuple(self.queue):
            job, length_s = self.jobs[index], request_s(self.jobs[index])
            if profile.free[0] >= job.units and profile.has(
                job.units, now_s, now_s + length_s
            ):
                profile.take(job.units, now_s, now_s + length_s)
                started.append(index)
                self.queue.remove(index)
            elif not promised:
                shadow_s = profile.earliest(job.units, length_s)
                profile.take(job.units, shadow_s, shadow_s + length_s)
                promised = True
        return started


def request_s(job: Job) -> float:
    """Where the log tells no request, the scheduler knows the run time."""
    return job.run_s if job.requested_s is None else job.requested_s


def differences(trace: JobTrace) -> list[str]:
    """Say which jobs start at different times, the earliest first."""
    placed = schedule(trace, Method.EASY).placed
    ours, textbook = {job.job: job.start_s for job in placed}, TextbookEasy(trace).run()
    return [
        f"job {trace.jobs[i].job_id}: {ours.get(i)} s, textbook {textbook[i]} s"
        for i in sorted(textbook, key=textbook.__getitem__)
        if ours.get(i) != textbook[i]
    ]


@settings(deadline=None, max_examples=600)
@given(traces(least_run_s=1))
def test_small_logs_start_as_the_textbook_says(trace: JobTrace) -> None:
    assert differences(trace) == []


@pytest.mark.parametrize(("nodes", "load"), [(64, 0.8), (200, 1.0), (512, 1.1)])
@pytest.mark.parametrize("classes", [(ALL_JOBS,), (BATCH, INTERACTIVE)])
def test_generated_weeks_start_as_the_textbook_says(
    nodes: int, load: float, classes: tuple[JobClass, ...]
) -> None:
    model = WorkloadModel(nodes=nodes, load=load, seed=nodes, classes=classes)

    assert differences(generate(model)) == []


@pytest.mark.shared
def test_a_year_of_kth_starts_as_the_textbook_says_and_waits_less_than_it_did(
    shared: Path,
) -> None:
    trace = read_trace(shared / "logs" / "KTH-SP2-1996.swf.gz")
    assert isinstance(trace, JobTrace)
    assert len(trace.jobs) > 28_000
    assert differences(trace) == []

    results = [schedule(trace, method) for method in (Method.EASY, Method.RECORDED)]
    simulated, recorded = [
        np.array(
            [each.start_s - trace.jobs[each.job].submit_s for each in result.placed]
        )
        for result in results
    ]
    # The machine had rules that the log does not tell (its first job waited eleven
    # days on an empty machine; jobs were limited by day), so it waited longer, at
    # the mean and at the median; but a simulator that waited less than a quarter
    # of that would have to be cheating: both carry the same 70 % load.
    assert 0.25 < simulated.mean() / recorded.mean() < 1
    assert np.median(simulated) <= np.median(recorded)
    work_unit_s = [
        sum(j.units.bit_count() * (j.end_s - j.start_s) for j in result.placed)
        for result in results
    ]
    assert work_unit_s[0] == pytest.approx(work_unit_s[1], rel=1e-3)
