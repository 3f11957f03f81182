import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logs.generate import (
    ALL_JOBS,
    BATCH,
    INTERACTIVE,
    JobClass,
    WorkloadModel,
    day_shares,
    generate,
)
from logs.trace import JobTrace

TYPED = (BATCH, INTERACTIVE)
models = st.builds(
    WorkloadModel,
    nodes=st.integers(1, 5000),
    days=st.floats(0.05, 10),
    load=st.floats(0.05, 1.5),
    seed=st.integers(0, 2**64),
    classes=st.sampled_from([(ALL_JOBS,), TYPED]),
    weekend_weight=st.sampled_from([1.0, 0.3]),
)


@settings(deadline=None, max_examples=40)
@given(models)
def test_every_job_fits_the_machine_the_span_and_its_own_limit(
    model: WorkloadModel,
) -> None:
    trace = generate(model)

    assert trace.jobs
    for job in trace.jobs:
        assert 1 <= job.units <= model.nodes == trace.units
        assert 0 <= job.submit_s < model.span_s
        assert job.requested_s is not None
        assert 1 <= job.run_s <= job.requested_s
        assert job.start_s is None
        assert 1 <= int(job.user) <= model.users
        assert job.submit_s == int(job.submit_s)
    submits_s = [job.submit_s for job in trace.jobs]
    assert submits_s == sorted(submits_s)
    assert [job.job_id for job in trace.jobs] == [
        str(n) for n in range(1, len(trace.jobs) + 1)
    ]


def offered_load(trace: JobTrace, span_s: float) -> float:
    """Return the node-seconds that *trace* submits over those of the machine."""
    return sum(job.run_s * job.units for job in trace.jobs) / (trace.units * span_s)


@settings(deadline=None, max_examples=40)
@given(models)
def test_the_offered_load_is_met_to_within_one_job(model: WorkloadModel) -> None:
    trace = generate(model)

    most = max(job.run_s * job.units for job in trace.jobs)
    one_job = most / (model.nodes * model.span_s)
    load = offered_load(trace, model.span_s)
    assert model.load * (1 - 1e-9) <= load <= model.load + one_job * (1 + 1e-9)


@pytest.mark.parametrize("nodes", [64, 500, 4360])
@pytest.mark.parametrize("classes", [(ALL_JOBS,), TYPED])
def test_eight_weeks_offer_the_load_asked_for_within_two_percent(
    nodes: int, classes: tuple[JobClass, ...]
) -> None:
    model = WorkloadModel(nodes=nodes, days=56, load=0.9, seed=3, classes=classes)

    trace = generate(model)

    assert offered_load(trace, model.span_s) == pytest.approx(0.9, rel=0.02)
    # The last job left out would fall on the end: submissions fill the span.
    assert trace.jobs[-1].submit_s > 0.8 * model.span_s


def test_the_same_seed_gives_the_same_trace_and_another_another() -> None:
    model = WorkloadModel(nodes=64, seed=1)

    assert generate(model) == generate(WorkloadModel(nodes=64, seed=1))
    assert generate(model).jobs != generate(WorkloadModel(nodes=64, seed=2)).jobs


def test_the_trace_of_a_seed_never_changes() -> None:
    trace = generate(WorkloadModel(nodes=64, seed=1))

    first = [(j.submit_s, j.run_s, j.units, j.requested_s, j.user) for j in trace.jobs]
    assert first[:3] == [
        (32.0, 17193.0, 8, 86400.0, "16"),
        (112.0, 1023.0, 4, 1200.0, "22"),
        (127.0, 654.0, 32, 900.0, "5"),
    ]
    assert len(trace.jobs) == 995


def test_the_load_changes_when_jobs_come_and_not_what_they_are() -> None:
    low = generate(WorkloadModel(nodes=64, load=0.4)).jobs
    high = generate(WorkloadModel(nodes=64, load=0.8)).jobs

    assert len(low) < len(high)
    for calm, busy in zip(low, high, strict=False):
        assert (calm.run_s, calm.units, calm.user) == (
            busy.run_s,
            busy.units,
            busy.user,
        )
        assert calm.submit_s >= busy.submit_s


def five_sigma_of_a_share(share: float, jobs: int) -> float:
    """Five standard errors of a share of bursty submissions.

    Gaps have a coefficient of variation of 7, so that counts vary like those of
    7**2 times fewer independent jobs.
    """
    return 5 * math.sqrt(share * (1 - share) * 49 / jobs)


def test_submissions_follow_the_daily_cycle() -> None:
    model = WorkloadModel(nodes=512, days=364, seed=5)

    jobs = generate(model).jobs

    seen = Counter(int(job.submit_s % 86_400 // 21_600) for job in jobs)
    shares = day_shares(ALL_JOBS)
    for quarter in range(4):
        expected = math.fsum(shares[quarter * 12 : quarter * 12 + 12])
        bound = five_sigma_of_a_share(expected, len(jobs))
        assert seen[quarter] / len(jobs) == pytest.approx(expected, abs=bound)
    assert seen[2] / seen[0] > 4


def test_weekends_are_as_quiet_as_asked() -> None:
    model = WorkloadModel(nodes=512, days=364, seed=5, weekend_weight=0.4)

    jobs = generate(model).jobs

    weekend = sum(job.submit_s // 86_400 % 7 >= 5 for job in jobs)
    bound = five_sigma_of_a_share(0.8 / 5.8, len(jobs))
    assert weekend / len(jobs) == pytest.approx(0.8 / 5.8, abs=bound)


def test_both_classes_of_jobs_appear_each_with_its_queue() -> None:
    trace = generate(WorkloadModel(nodes=128, classes=TYPED))

    queues = Counter(dict(job.swf)["queue"] for job in trace.jobs)
    assert set(queues) == {1.0, 0.0}
    assert queues[0.0] > queues[1.0]
    assert trace.comments[-2:] == ("Queue: 1 batch", "Queue: 0 interactive")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nodes", 0),
        ("days", 0.0),
        ("days", math.inf),
        ("load", -1.0),
        ("load", math.nan),
        ("seed", -1),
        ("users", 0),
        ("classes", ()),
        ("weekend_weight", 0.0),
        ("closeness", -1.0),
        ("longest_log_run", 1.0),
        ("longest_log_run", 1e6),
        ("longest_log_gap", 1.0),
        ("limits", ((3600, 1.0),)),
        ("limits", ((172_800, 1.0), (172_800, 1.0))),
        ("limits", ()),
    ],
)
def test_an_impossible_model_is_refused_and_its_field_named(
    name: str, value: object
) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be .* No job was generated"):
        WorkloadModel(**{"nodes": 8, name: value})  # type: ignore[arg-type]
