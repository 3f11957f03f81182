"""What a log says FreeTrain would do, in words: a page, and a short text.

Readers are administrators who have not heard of FreeTrain: every figure comes with what
it means. ``render_page`` makes the page, which needs no network and has no script; the
command shows ``summary_lines``.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from freetrain.api.assess import ELASTIC, LOOP_WORKLOAD, RIGID, SPEEDS
from freetrain.broker.limits import Mode
from freetrain.page.drawing import COLOURS, Axis, Line, draw_lines
from freetrain.report.drawings import render
from freetrain.text import counted, one_line, per_cent, render_duration
from logs.idleness import IdleReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markupsafe import Markup

    from freetrain.api.assess import Assessment, Gain, Loop

_MARKS = 5

REASONS = {
    IdleReason.OUTAGE: (
        "half of the machine or more was idle, though jobs waited",
        (
            "An outage, maintenance, a drain for a large job, or hours in which the "
            "site's rules let few jobs start."
        ),
    ),
    IdleReason.QUIET: (
        "half of the machine or more was idle, and no job waited",
        "Quiet days, and the begin and end of the log.",
    ),
    IdleReason.NO_JOB: (
        "less was idle, and no job waited",
        "There was no work for these.",
    ),
    IdleReason.TOO_LARGE: (
        "less was idle, and each job that waited was too large",
        "All waited for more than was idle: what was idle was being kept for them.",
    ),
    IdleReason.HELD: (
        "less was idle, and a job waited that was small enough",
        (
            "It might have run too long beside jobs before it, or was kept back by a "
            "limit, reservation, partition or dependency. The log does not tell which."
        ),
    ),
}
"""By reason: what was seen, and what it may mean."""

MODES = {
    Mode.PREEMPT: "where Slurm takes nodes back, by preempting a partition made for it",
    Mode.YIELD: "where FreeTrain gives nodes back itself, and nothing is set up",
}
"""How leases give way."""


def render_page(assessment: Assessment, *, command: str, version: str) -> str:
    """Return *assessment* as one HTML document; *command* makes it again."""
    loop = assessment.loop
    return render(
        "assess.html",
        log=one_line(assessment.log),
        about=about(assessment),
        cards=[*_cards(assessment)],
        unit=assessment.unit,
        drawing=_drawing(assessment),
        reasons=reason_rows(assessment),
        lengths=length_rows(assessment),
        pieces=pieces_words(assessment),
        gained=worth_words(assessment),
        are_normal=assessment.are_normal,
        gain_headings=GAIN_HEADINGS,
        gains=[gain_row(gain) for gain in assessment.gains],
        has_gpus=assessment.unit == "GPU",
        speeds=SPEEDS,
        loop=None if loop is None else loop_words(loop),
        modes=MODES.items(),
        harm_headings=HARM_HEADINGS,
        harms=[] if loop is None else harm_rows(loop),
        loads=load_lines(assessment),
        machine=assessment.machine,
        cautions=[one_line(line) for line in assessment.cautions],
        command=command,
        version=version,
    )


def summary_lines(assessment: Assessment) -> Iterator[str]:
    """Yield the page in short, without its tables."""
    yield about(assessment)
    yield ""
    yield "Idle: " + idle_words(assessment)
    reasons = [f"{share} {seen}" for seen, share, _ in reason_rows(assessment)]
    if reasons:
        yield f"Of all that stood idle: {'; '.join(reasons)}."
    yield ""
    yield "Gain: " + worth_words(assessment) + f" {pieces_words(assessment)}"
    for gain in assessment.gains:
        worth = f"{_rounded(gain.worth)} {assessment.unit}s"
        yield f"  {_named(gain)}: {worth}, {_share(gain)} of what is idle"
    loop = assessment.loop
    yield ""
    if loop is None:
        yield "Waits of others: unknown, as the log has no jobs."
    else:
        yield f"Waits of others: {loop_words(loop)}"
    for found in () if loop is None else loop.modes:
        harm = found.harm
        yield (
            f"  {found.mode}: {harm.met:,} met a lease and waited for it for "
            f"{_later(harm.waited_most_s)} at most; all start later by "
            f"{_later(harm.median_s)} in the median, {_later(harm.high_s)} at 95 %, "
            f"{_later(harm.most_s)} at worst, and {harm.sooner:,} of them sooner"
        )
    yield ""
    yield f"slurmctld: {load_lines(assessment)[0]}"


# What stands idle


def about(assessment: Assessment) -> str:
    """Return what the log is of."""
    size = counted(assessment.nodes, "node")
    if assessment.unit == "GPU":
        size += f" with {counted(assessment.machine, 'GPU')}"
    begins = assessment.unix_start_s
    when = "" if begins is None else f" from {_date(begins)} on"
    return (
        f"{one_line(assessment.log)}: {size}, "
        f"{render_duration(assessment.span_s)}{when}."
    )


def _date(unix_s: float) -> str:
    try:
        return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d}"
    except (ValueError, OverflowError, OSError):  # a log may claim any year
        return f"second {unix_s:.0f}"


def idle_words(assessment: Assessment) -> str:
    """Return how much stands idle, outages apart."""
    unit, machine = assessment.unit, assessment.machine
    mean, normal = assessment.idle_mean, assessment.normal_idle
    return (
        f"{_number(normal)} of {machine:,} {unit}s ({per_cent(normal / machine, '.1f')}"
        f") on average while less than half of the machine is, which is "
        f"{per_cent(assessment.normal_share)} of the time; {_number(mean)} "
        f"({per_cent(mean / machine, '.1f')}) over all of the time."
    )


def reason_rows(assessment: Assessment) -> list[tuple[str, str, str]]:
    """Return what was seen of idle nodes, its share, and what it may mean."""
    return [
        (REASONS[reason][0], per_cent(share), REASONS[reason][1])
        for reason, share in assessment.reasons.items()
    ]


def length_rows(assessment: Assessment) -> list[tuple[str, str, str]]:
    """Return, by length of holes, their share of all holes and of the idle time."""
    ends = [*(each.from_s for each in assessment.lengths[1:]), None]
    return [
        (
            f"{render_duration(each.from_s)} and more"
            if end_s is None
            else f"less than {render_duration(end_s)}"
            if not each.from_s
            else f"{render_duration(each.from_s)} to {render_duration(end_s)}",
            per_cent(each.count_share),
            per_cent(each.time_share),
        )
        for each, end_s in zip(assessment.lengths, ends, strict=True)
    ]


def _drawing(assessment: Assessment) -> Markup:
    """Draw what is idle over time, with the pieces that were replayed."""
    levels, span_s = assessment.levels, assessment.span_s
    lines = [
        Line(
            points=[*levels, (span_s, levels[-1][1])],
            colour=COLOURS[0],
            label=f"idle {assessment.unit}s",
            is_stepped=True,
        )
    ]
    for begin_s in assessment.pieces:
        end_s = begin_s + assessment.piece_s
        lines.append(
            Line(
                points=[],
                colour=COLOURS[1],
                label="replayed",
                band=[(begin_s, 0, assessment.machine), (end_s, 0, assessment.machine)],
            )
        )
    marks = [span_s * k / (_MARKS - 1) for k in range(_MARKS)]
    unix_s = assessment.unix_start_s
    return draw_lines(
        lines,
        axis=Axis(
            first=0.0,
            last=span_s,
            marks=[
                (
                    at_s,
                    f"day {at_s / 86_400:.0f}"
                    if unix_s is None
                    else _date(unix_s + at_s),
                )
                for at_s in marks
            ],
        ),
        title=f"Idle {assessment.unit}s over time",
        are_counts=True,
    )


# What would be gained

GAIN_HEADINGS = ("trainings", "worth", "of what is idle", "preempted a day")


def gain_row(gain: Gain) -> tuple[str, ...]:
    """Return the cells of ``GAIN_HEADINGS``."""
    return (
        _named(gain),
        _rounded(gain.worth),
        _share(gain),
        f"{gain.preemptions_per_day:,.0f}",
    )


def _named(gain: Gain) -> str:
    named = gain.about
    if gain.lease_gpus is not None and gain.lease_gpus > 1:
        named += f", on whole nodes of {gain.lease_gpus} GPUs"
    return f"{'FreeTrain' if gain.policy == ELASTIC else 'jobs'}: {named}"


def _share(gain: Gain) -> str:
    share = gain.share
    if share.low is None or share.high is None:
        return per_cent(share.mean)
    low, high = round(100 * share.low), round(100 * share.high)
    return f"{per_cent(share.mean)} ({low} to {high})"


def worth_range(assessment: Assessment, policy: str) -> str:
    """Return what trainings by *policy* are worth, over workloads.

    Of GPUs with leases of one, which are there wherever larger ones are.
    """
    own = [
        gain.worth
        for gain in assessment.gains
        if gain.policy == policy and gain.lease_gpus in {None, 1}
    ]
    return f"{_rounded(min(own))} to {_rounded(max(own))}"


def worth_words(assessment: Assessment) -> str:
    """Return what FreeTrain's training is worth, and that of jobs without it."""
    words = (
        f"FreeTrain would train as much as {worth_range(assessment, ELASTIC)} "
        f"{assessment.unit}s of one's own, by workload; preemptable jobs of the best "
        f"size, as many as fit, as much as {worth_range(assessment, RIGID)}."
    )
    cap = assessment.load.leases_cap
    if max(gain.worth for gain in assessment.gains if gain.policy == ELASTIC) > cap:
        words += (
            f" By default one user's FreeTrain holds {cap} leases at most, so that it "
            f"takes several users, or a higher [caps] leases."
        )
    return words


def pieces_words(assessment: Assessment) -> str:
    """Return which part of the log was replayed."""
    count, piece_s = len(assessment.pieces), assessment.piece_s
    pieces = counted(count, "piece")
    share = per_cent(count * piece_s / assessment.span_s, ".1f")
    if assessment.are_normal:
        which = "spread over the time when less than half of the machine was idle"
    else:
        which = "though half of the machine or more was idle in all of them"
    return (
        f"Replayed: {pieces} of {render_duration(piece_s)} ({share} of the log), "
        f"{which}."
    )


# What others would wait

HARM_HEADINGS = (
    "mode",
    "jobs that met a lease",
    "and waited for it: median, most",
    "all jobs later by: median",
    "95 %",
    "worst",
    "added up",
    "jobs that start sooner",
)


def loop_words(loop: Loop) -> str:
    """Return what was simulated."""
    jobs = counted(loop.modes[0].harm.jobs, "job")
    recorded_s = loop.recorded_wait_s
    recorded = "" if recorded_s is None else f" ({_later(recorded_s)} in the log)"
    words = (
        f"{jobs} of the busiest piece's first {render_duration(loop.span_s)}, placed "
        f"by a simulated Slurm with FreeTrain ({LOOP_WORKLOAD.about}) and without, "
        f"where they wait {_later(loop.wait_s)} in the mean{recorded}."
    )
    if all(found.mode is not Mode.YIELD for found in loop.modes):
        words += " Mode yield takes too long to simulate here."
    return words


def harm_rows(loop: Loop) -> list[tuple[str, ...]]:
    """Return the cells of ``HARM_HEADINGS`` for each mode."""
    return [
        (
            str(found.mode),
            f"{found.harm.met:,} of {found.harm.jobs:,}",
            f"{_later(found.harm.waited_median_s)}, {_later(found.harm.waited_most_s)}",
            _later(found.harm.median_s),
            _later(found.harm.high_s),
            _later(found.harm.most_s),
            f"{found.harm.total_s / 3_600:,.1f} h",
            f"{found.harm.sooner:,}",
        )
        for found in loop.modes
    ]


def _later(seconds: float) -> str:
    return render_duration(seconds) if seconds > 0 else f"{seconds:.0f} s"


# What slurmctld would be asked


def load_lines(assessment: Assessment) -> list[str]:
    """Return sentences on what slurmctld would be asked and given."""
    load = assessment.load
    lines = [
        (
            f"each user's FreeTrain asks it at most {load.reads_per_minute} reading "
            f"commands a minute (squeue, scontrol show, sdiag), and gives at most "
            f"{load.writes_per_minute} that ask for leases, many with one sbatch, or "
            f"give them up; more only to make room for others."
        )
    ]
    if load.listed_mean is not None and load.listed_most is not None:
        lines.append(
            f"Of this log such a squeue lists {_number(load.listed_mean)} jobs on "
            f"average and {load.listed_most:,} at most, and a lease is a job more."
        )
    jobs = load.jobs_per_day
    beside = "" if jobs is None else f", beside {_number(jobs)} jobs of the log"
    lines.append(
        f"Holes of two minutes and more are {_number(load.holes_per_day)} a day in the "
        f"replayed pieces: up to as many leases, that is short jobs, a day{beside}."
    )
    lines.append(
        f"By default one user's FreeTrain holds {load.leases_cap} leases at most at a "
        f"time. An administrator can set a limit for all users together "
        f"(/etc/freetrain/site.toml)."
    )
    return lines


def _cards(assessment: Assessment) -> Iterator[tuple[str, str]]:
    unit, machine = assessment.unit, assessment.machine
    normal = assessment.normal_idle
    share = per_cent(normal / machine, ".1f")
    when = per_cent(assessment.normal_share)
    while_normal = f"while less than half of the machine is, {when} of the time"
    yield (
        f"{_number(normal)} of {machine:,}",
        f"{unit}s idle on average ({share}) {while_normal}",
    )
    rigid = worth_range(assessment, RIGID)
    worth = f"{unit}s of one's own would train as much as FreeTrain, by workload"
    yield (
        worth_range(assessment, ELASTIC),
        f"{worth}; preemptable jobs of the best size, as many as fit: {rigid}",
    )
    for found in () if assessment.loop is None else assessment.loop.modes:
        harm, when = found.harm, MODES[found.mode]
        yield (
            f"{_later(harm.high_s)}, {_later(harm.most_s)}",
            f"later start of other jobs at 95 % and at worst, {when}",
        )
    yield (
        f"{assessment.load.reads_per_minute} a minute",
        "reading commands to slurmctld for each user of FreeTrain, at most",
    )


def _rounded(value: float) -> str:
    """Return *value*, which is known no better, with two digits."""
    return f"{float(f'{value:.2g}'):,.15g}"


def _number(value: float) -> str:
    """Return *value* with three digits, or as many as its whole part has."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004
