"""The Lublin-Feitelson model: random numbers, one job, arrivals, whole traces."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import accumulate, islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logs.generate import (
    ALL_JOBS,
    BATCH,
    INTERACTIVE,
    POPULAR_LIMITS,
    SAMPLE_MODEL,
    Cycle,
    Draws,
    JobClass,
    WorkloadModel,
    day_shares,
    draw_index,
    draw_limit_s,
    draw_nodes,
    draw_run_s,
    draw_two_stage,
    gamma_cdf,
    generate,
    sample_trace,
    shipped_sample,
    short_share,
    two_stage_middle,
    user_weights,
    working_times_s,
)
from logs.read import read_trace
from logs.trace import JobTrace

MANY = 20_000
# Dvoretzky, Kiefer, Wolfowitz and Massart: P(distance > e) <= 2 exp(-2 n e^2), which
# is 0.0001 here.
MOST_DISTANCE = 2.23 / math.sqrt(MANY)


def largest_distance(below: list[float]) -> float:
    """Kolmogorov's distance between a sorted sample and a distribution's values."""
    n = len(below)
    return max(max(i / n - f, f - (i - 1) / n) for i, f in enumerate(below, start=1))


def test_the_stream_of_a_seed_never_changes_and_others_differ() -> None:
    draws = Draws(7, 0, 1)

    assert [draws.uniform() for _ in range(3)] == [
        0.872908525547428,
        0.3242371290640921,
        0.10916288915244698,
    ]
    streams = [Draws(7, 0, 1), Draws(7, 1, 0), Draws(8, 0, 1)]
    assert len({stream.uniform() for stream in streams}) == 3


def test_uniform_numbers_are_at_least_0_and_below_1_beyond_one_block() -> None:
    draws = Draws(1)

    sample = [draws.uniform() for _ in range(5000)]

    assert all(0 <= x < 1 for x in sample)
    assert len(set(sample)) == len(sample)
    # Five standard errors of the mean of a uniform number: 5 / sqrt(12 n).
    assert abs(math.fsum(sample) / 5000 - 0.5) < 5 / math.sqrt(12 * 5000)


@pytest.mark.parametrize("shape", [1.0, 4.2, 10.46, 639.1])
def test_gamma_numbers_have_the_gamma_distribution_times_their_scale(
    shape: float,
) -> None:
    draws = Draws(11)

    sample = sorted(draws.gamma(shape, 1.0) for _ in range(MANY))

    assert largest_distance([gamma_cdf(shape, x) for x in sample]) < MOST_DISTANCE
    assert Draws(5).gamma(shape, 3.0) == pytest.approx(3 * Draws(5).gamma(shape, 1.0))


@pytest.mark.parametrize("shape", [1, 2, 5, 30])
def test_the_gamma_distribution_of_a_whole_shape_is_erlangs(shape: int) -> None:
    for x in (0.1, 1.0, 4.0, 30.0, 60.0):
        tail = math.fsum(x**i / math.factorial(i) for i in range(shape)) * math.exp(-x)
        assert gamma_cdf(shape, x) == pytest.approx(1 - tail, abs=1e-12)


CLASSES = pytest.mark.parametrize(
    "jobs", [ALL_JOBS, BATCH, INTERACTIVE], ids=lambda jobs: jobs.name
)


def five_sigma(share: float, n: float) -> float:
    """Five standard errors of a share observed in *n* draws."""
    return 5 * math.sqrt(share * (1 - share) / n)


def two_stage_cdf(jobs: JobClass, high: float, x: float) -> float:
    low, middle = jobs.low_log2_nodes, two_stage_middle(jobs, high)
    if x < middle:
        return jobs.low_stage_share * max(0.0, x - low) / (middle - low)
    part = (min(x, high) - middle) / (high - middle)
    return jobs.low_stage_share + (1 - jobs.low_stage_share) * part


def power_of_two_share(jobs: JobClass, nodes: int) -> float:
    """Share of powers of two among parallel sizes: rounded ones and chance hits."""
    high = math.log2(nodes) - jobs.high_below_machine_log2
    by_chance = math.fsum(
        two_stage_cdf(jobs, high, math.log2(2**k + 0.5))
        - two_stage_cdf(jobs, high, math.log2(2**k - 0.5))
        for k in range(1, 20)
    )
    return jobs.power_share + (1 - jobs.power_share) * by_chance


@CLASSES
def test_the_mean_log2_size_is_the_two_stage_distributions(jobs: JobClass) -> None:
    draws = Draws(1)
    low, high = jobs.low_log2_nodes, 9.0 - jobs.high_below_machine_log2
    middle, share = two_stage_middle(jobs, high), jobs.low_stage_share

    sample = [draw_two_stage(draws, jobs, high) for _ in range(MANY)]

    mean = share * (low + middle) / 2 + (1 - share) * (middle + high) / 2
    # No variance exceeds a quarter of the range squared; five standard errors.
    bound = 5 * (high - low) / 2 / math.sqrt(MANY)
    assert math.fsum(sample) / MANY == pytest.approx(mean, abs=bound)
    assert low <= min(sample)
    assert max(sample) <= high


@CLASSES
def test_serial_jobs_and_powers_of_two_have_their_shares(jobs: JobClass) -> None:
    draws = Draws(2)

    sizes = [draw_nodes(draws, jobs, 512) for _ in range(MANY)]

    serial = sizes.count(1) / MANY
    assert abs(serial - jobs.serial_share) < five_sigma(jobs.serial_share, MANY)
    parallel = [n for n in sizes if n > 1]
    powers = sum(n.bit_count() == 1 for n in parallel) / len(parallel)
    expected = power_of_two_share(jobs, 512)
    assert abs(powers - expected) < five_sigma(expected, len(parallel))


@pytest.mark.parametrize("machine_nodes", [1, 2, 3, 7, 100, 512, 513, 9408])
def test_sizes_stay_within_a_machine_of_any_size_and_come_near_it(
    machine_nodes: int,
) -> None:
    draws = Draws(3)

    for jobs in (ALL_JOBS, BATCH, INTERACTIVE):
        sizes = Counter(draw_nodes(draws, jobs, machine_nodes) for _ in range(5000))

        assert min(sizes) == 1
        assert max(sizes) <= machine_nodes
        assert len(sizes) > 1 or machine_nodes < 7
        if jobs is ALL_JOBS and machine_nodes >= 100:
            assert max(sizes) > 0.87 * machine_nodes


@CLASSES
@pytest.mark.parametrize("nodes", [1, 32, 400])
def test_the_log_run_time_has_the_bounded_hyper_gamma_distribution(
    jobs: JobClass, nodes: int
) -> None:
    draws, share = Draws(5), short_share(jobs, nodes)

    runs_s = [draw_run_s(draws, jobs, nodes, longest_log_run=12.0) for _ in range(MANY)]

    def below(log_s: float) -> float:
        short = gamma_cdf(jobs.short_shape, log_s / jobs.short_scale)
        long = gamma_cdf(jobs.long_shape, log_s / jobs.long_scale)
        return share * short + (1 - share) * long

    assert 1 <= min(runs_s) <= max(runs_s) <= math.exp(12) + 0.5
    for cut in (2.0, 5.0, 8.0, 9.4, 9.8, 11.0):
        expected = below(cut) / below(12.0)
        # Rounding to whole seconds moves a cut at e^2 s by up to half a second.
        seen = sum(run_s <= math.exp(cut) for run_s in runs_s) / MANY
        assert abs(seen - expected) < five_sigma(expected, MANY) + 0.02 * (cut < 3)


def test_larger_jobs_are_seldom_short_and_the_share_stays_a_share() -> None:
    shares = [short_share(ALL_JOBS, n) for n in (1, 50, 144, 145, 5000)]

    assert shares[0] == pytest.approx(0.7746)
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == 0.0


def test_a_time_limit_is_popular_and_never_below_the_run_time() -> None:
    draws = Draws(7)
    model = WorkloadModel(nodes=8)
    popular = [limit_s for limit_s, _ in POPULAR_LIMITS]

    for run_s in (1, 299, 300, 301, 7200, 100_000, 172_800):
        limits_s = {draw_limit_s(draws, model, run_s) for _ in range(500)}

        assert limits_s <= {limit_s for limit_s in popular if limit_s >= run_s}
        assert len(limits_s) > 5 or run_s > 7200


def test_closeness_moves_limits_towards_the_run_time() -> None:
    means_s = []
    for closeness in (0.0, 1.0, 2.0):
        draws = Draws(8)
        model = WorkloadModel(nodes=8, closeness=closeness)
        means_s.append(sum(draw_limit_s(draws, model, 600) for _ in range(2000)))

    assert means_s == sorted(means_s, reverse=True)


def test_the_first_user_submits_twice_as_much_as_the_second() -> None:
    draws = Draws(9)
    cumulative = user_weights(10)
    total = math.fsum(1 / k for k in range(1, 11))

    seen = Counter(draw_index(draws, cumulative) for _ in range(MANY))

    for user in range(10):
        share = 1 / (user + 1) / total
        assert abs(seen[user] / MANY - share) < five_sigma(share, MANY)


WEEK_S = 7 * 86_400


@CLASSES
def test_the_day_is_quiet_before_dawn_busy_after_noon_and_without_a_step(
    jobs: JobClass,
) -> None:
    shares = day_shares(jobs)

    assert math.fsum(shares) == pytest.approx(1)
    assert 8 <= shares.index(min(shares)) <= 11
    assert 24 <= shares.index(max(shares)) <= 29
    steps = [later / earlier for earlier, later in pairwise([*shares, shares[0]])]
    assert max(steps) < 1.6
    assert min(steps) > 1 / 1.6


@given(st.floats(0, 5 * WEEK_S), st.sampled_from([1.0, 0.3, 2.0]))
def test_the_clock_and_working_time_are_inverse(clock_s: float, weight: float) -> None:
    cycle = Cycle(ALL_JOBS, WorkloadModel(nodes=8, weekend_weight=weight))

    assert cycle.clock_s(cycle.working_s(clock_s)) == pytest.approx(clock_s, abs=1e-5)


@CLASSES
def test_a_week_has_its_length_in_working_time_and_weekends_their_weight(
    jobs: JobClass,
) -> None:
    cycle = Cycle(jobs, WorkloadModel(nodes=8, weekend_weight=0.25))

    assert cycle.working_s(3 * WEEK_S) == pytest.approx(3 * WEEK_S)
    monday = cycle.working_s(86_400)
    saturday = cycle.working_s(6 * 86_400) - cycle.working_s(5 * 86_400)
    assert saturday / monday == pytest.approx(0.25)


@CLASSES
def test_log_gaps_have_the_bounded_gamma_distribution(jobs: JobClass) -> None:
    times_s = islice(working_times_s(Draws(1), jobs, 13.0), MANY)

    gaps = sorted(math.log(b - a) for a, b in pairwise([0.0, *times_s]))

    whole = gamma_cdf(jobs.gap_shape, 13.0 / jobs.gap_scale)
    below = [gamma_cdf(jobs.gap_shape, g / jobs.gap_scale) / whole for g in gaps]
    assert largest_distance(below) < MOST_DISTANCE + 1 / MANY
    assert gaps[-1] <= 13.0 + 1e-6


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


def offered_load(trace: JobTrace, span_s: float) -> float:
    """Return the node-seconds that *trace* submits over those of the machine."""
    return sum(job.run_s * job.units for job in trace.jobs) / (trace.units * span_s)


@settings(deadline=None, max_examples=50)
@given(models)
def test_every_job_fits_and_the_load_is_met_to_within_one_job(
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
    numbers = range(1, len(trace.jobs) + 1)
    assert [job.job_id for job in trace.jobs] == list(map(str, numbers))
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


def test_the_trace_of_a_seed_never_changes_and_others_differ() -> None:
    trace = generate(WorkloadModel(nodes=64, seed=1))

    first = [(j.submit_s, j.run_s, j.units, j.requested_s, j.user) for j in trace.jobs]
    assert first[:3] == [
        (32.0, 17193.0, 8, 86400.0, "16"),
        (112.0, 1023.0, 4, 1200.0, "22"),
        (127.0, 654.0, 32, 900.0, "5"),
    ]
    assert len(trace.jobs) == 995
    assert trace == generate(WorkloadModel(nodes=64, seed=1))
    assert trace.jobs != generate(WorkloadModel(nodes=64, seed=2)).jobs


def test_the_load_changes_when_jobs_come_and_not_what_they_are() -> None:
    low = generate(WorkloadModel(nodes=64, load=0.4)).jobs
    high = generate(WorkloadModel(nodes=64, load=0.8)).jobs

    assert len(low) < len(high)
    for calm, busy in zip(low, high, strict=False):
        assert calm.submit_s >= busy.submit_s
        assert calm == replace(busy, submit_s=calm.submit_s)


# Gaps between submissions have a coefficient of variation of 7, so that counts vary
# like those of 7**2 times fewer independent jobs.
BURSTS = 49


def test_submissions_follow_the_daily_cycle() -> None:
    model = WorkloadModel(nodes=512, days=364, seed=5)

    jobs = generate(model).jobs

    seen = Counter(int(job.submit_s % 86_400 // 21_600) for job in jobs)
    shares = day_shares(ALL_JOBS)
    for quarter in range(4):
        expected = math.fsum(shares[quarter * 12 : quarter * 12 + 12])
        bound = five_sigma(expected, len(jobs) / BURSTS)
        assert seen[quarter] / len(jobs) == pytest.approx(expected, abs=bound)
    assert seen[2] / seen[0] > 4


def test_weekends_are_as_quiet_as_asked() -> None:
    model = WorkloadModel(nodes=512, days=364, seed=5, weekend_weight=0.4)

    jobs = generate(model).jobs

    weekend = sum(job.submit_s // 86_400 % 7 >= 5 for job in jobs)
    bound = five_sigma(0.8 / 5.8, len(jobs) / BURSTS)
    assert weekend / len(jobs) == pytest.approx(0.8 / 5.8, abs=bound)


def test_both_classes_of_jobs_appear_each_with_its_queue() -> None:
    trace = generate(WorkloadModel(nodes=128, classes=TYPED))

    queues = Counter(dict(job.swf)["queue"] for job in trace.jobs)
    assert set(queues) == {1.0, 0.0}
    assert queues[0.0] > queues[1.0]
    assert trace.comments[-2:] == ("Queue: 1 batch", "Queue: 0 interactive")


IMPOSSIBLE: dict[str, list[object]] = {
    "nodes": [0],
    "days": [0.0, math.inf],
    "load": [-1.0, math.nan],
    "seed": [-1],
    "users": [0],
    "classes": [()],
    "weekend_weight": [0.0],
    "closeness": [-1.0],
    "longest_log_run": [1.0, 1e6],
    "longest_log_gap": [1.0],
    "limits": [((3600, 1.0),), ((172_800, 1.0), (172_800, 1.0)), ()],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, own) for name in IMPOSSIBLE for own in IMPOSSIBLE[name]]
)
def test_an_impossible_model_is_refused_and_its_field_named(
    name: str, value: object
) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be .* No job was generated"):
        WorkloadModel(**{"nodes": 8, name: value})  # type: ignore[arg-type]


def test_the_sample_is_a_busy_week_that_never_overfills_the_machine() -> None:
    sample = read_trace(shipped_sample())

    assert isinstance(sample, JobTrace)
    assert sample.jobs == sample_trace().jobs
    assert sample.units == SAMPLE_MODEL.nodes
    assert sample.unix_start_s == sample_trace().unix_start_s
    header = "\n".join(sample.comments)
    made_by = "freetrain trace generate --sample --out logs/samples"
    for words in ("Synthetic", "Lublin", "Seed: 2", "version 1", "EASY", made_by):
        assert words in header
    span_s = SAMPLE_MODEL.span_s
    changes: list[tuple[float, int]] = []
    used_node_s = 0.0
    for job in sample.jobs:
        assert job.start_s is not None
        assert job.start_s >= job.submit_s
        end_s = job.start_s + job.run_s
        changes += [(job.start_s, job.units), (end_s, -job.units)]
        used_node_s += job.units * max(0.0, min(end_s, span_s) - job.start_s)
    # At equal times the negative changes sort first: ends before starts.
    held = accumulate(units for _, units in sorted(changes))

    assert max(held) <= 512
    assert 0.85 < used_node_s / (512 * span_s) < 0.92
