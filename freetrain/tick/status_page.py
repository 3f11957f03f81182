"""The status report as a page for browsers: trainers, losses, nodes, holes, waits.

``past_of`` takes together what the report lacks, from the tick's own memory and the
database: no file is read. At most two loss curves are fitted anew in a tick, of
trainers whose work has grown by a tenth since the last fit. ``render_page`` needs
neither network nor template engine; the page reloads itself, and says by the browser's
clock when ticks have stopped.
"""

from __future__ import annotations

import math
from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from markupsafe import Markup

from freetrain.broker.lease import LeaseState
from freetrain.page.drawing import (
    COLOURS,
    FOLDER,
    OTHERS,
    Axis,
    Bar,
    Line,
    draw_lines,
    draw_rows,
    legend,
    table,
)
from freetrain.state.files import BROKER, USER, lease_name
from freetrain.state.tables import (
    Event,
    EventKind,
    LossForecastRow,
    TrainerState,
    latest_events,
    leases,
)
from freetrain.text import (
    DAY_S,
    HOUR_S,
    UNKNOWN,
    counted,
    one_line,
    render_duration,
    scaled,
    utc,
)
from freetrain.tick.status_report import TICKS_SILENT_S
from freetrain.tick.trainers import total_of, unit_of
from slurm.records import collapse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from freetrain.losscurve.fit import FittedForecast
    from freetrain.losscurve.forecast import Expected
    from freetrain.tick.environment import TickContext
    from freetrain.tick.observe import Observed
    from freetrain.tick.rate import LossForecaster
    from freetrain.tick.status_report import HoleLine, StatusReport, TrainerLine
    from freetrain.tick.trainers import TickTrainer

SHOWN_S = DAY_S
"""How far back events are shown, and trainers that have ended."""

HOURS_S = 6 * HOUR_S
"""How far back the nodes of leases are shown."""

MOST_EVENTS = 500
MOST_ROWS = 100
MOST_NODES = 40
MOST_CURVES = 24

MOST_FITS = 2
"""Loss curves fitted anew in a tick; each takes about 30 ms."""

MOST_CHARACTERS = 300

_AHEAD = (1.0, 1.1, 1.25, 1.5, 1.75, 2.0)
"""Work for which values are expected, over the work done."""

_RELOAD_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class PageCurve:
    """The progress of one trainer.

    Attributes:
        points: Work and value; all finite.
        unit: Of the work.
        work: Work done; None where none was reported.
        total: Work after which it is finished; None where that is unknown.
        expected: By work: the values that are expected.
    """

    name: str
    metric: str
    unit: str
    points: tuple[tuple[float, float], ...] = ()
    work: float | None = None
    total: float | None = None
    expected: tuple[tuple[float, Expected], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PastLease:
    """A lease that is over, and had a node from ``start_s`` to ``end_s``, Unix time."""

    node: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePast:
    """What the page shows beside the status report.

    Attributes:
        shown: Names of the trainers that are shown, in order of submission.
        curves: Their progress, where they reported any.
        rescales: Generations of trainers in the last day, the oldest first.
        given_up: Leases given up to others in the last day, likewise.
        spans: Leases that are over, of the last hours.
        fresh_fits: Loss forecasts that were fitted for the page, to be kept.
    """

    shown: tuple[str, ...] = ()
    curves: tuple[PageCurve, ...] = ()
    rescales: tuple[Event, ...] = ()
    given_up: tuple[Event, ...] = ()
    spans: tuple[PastLease, ...] = ()
    fresh_fits: tuple[LossForecastRow, ...] = ()


# From a tick.


def past_of(context: TickContext, observed: Observed) -> PagePast:
    """Return what the page of this tick shows beside the report.

    Raises:
        StoreError: The state cannot be read.
    """
    state, now_s = context.state, observed.now_s
    live = {TrainerState.WANTED, TrainerState.PAUSED}
    shown = [
        trainer
        for trainer in observed.trainers
        if trainer.row.state in live or now_s - trainer.row.changed_s < SHOWN_S
    ][-MOST_ROWS:]
    curves, fits = _curves(context, observed, shown)
    return PagePast(
        shown=tuple(trainer.row.name for trainer in shown),
        curves=curves,
        rescales=latest_events(
            state, [EventKind.ASSIGNED], since_s=now_s - SHOWN_S, most=MOST_EVENTS
        ),
        given_up=latest_events(
            state, [EventKind.YIELDED], since_s=now_s - SHOWN_S, most=MOST_EVENTS
        ),
        spans=tuple(_spans(context, now_s)),
        fresh_fits=fits,
    )


def _spans(context: TickContext, now_s: float) -> Iterator[PastLease]:
    since_s = now_s - HOURS_S
    ended = latest_events(
        context.state, [EventKind.ENDED], since_s=since_s, most=10 * MOST_EVENTS
    )
    ended_s = {event.subject: event.at_s for event in ended}
    for lease in leases(context.state, ending_after_s=since_s):
        end_s = ended_s.get(lease_name(lease.key))
        if lease.start_s is not None and end_s is not None and not lease.is_live:
            yield PastLease(node=lease.node, start_s=lease.start_s, end_s=end_s)


def _curves(
    context: TickContext, observed: Observed, shown: Sequence[TickTrainer]
) -> tuple[tuple[PageCurve, ...], tuple[LossForecastRow, ...]]:
    """Return the curves of *shown*, and forecasts that were fitted."""
    known = [
        trainer
        for trainer in shown
        if trainer.job is not None and trainer.row.name in observed.progress
    ]
    if not known:
        return (), ()
    # Imported here: a tick without trainers needs no rating.
    from freetrain.tick.rate import LossForecaster  # noqa: PLC0415

    past = [(trainer.row, trainer.job) for trainer in observed.trainers]
    forecaster = LossForecaster(context.state, past)
    forecasts = _forecasts(known, observed, forecaster)
    curves = [_curve(t, observed, forecasts.get(t.row.name)) for t in known]
    return tuple(curves), tuple(forecaster.fresh)


def _forecasts(
    known: Sequence[TickTrainer], observed: Observed, forecaster: LossForecaster
) -> dict[str, FittedForecast]:
    """Return forecasts by trainer: saved ones moved on, the most outdated fitted anew.

    So that a tick stays cheap, forecasts of others are shown as they were fitted.
    """
    # Imported here: a tick without trainers needs no fit.
    from freetrain.losscurve.fit import REFIT_SHARE, FittedForecast  # noqa: PLC0415

    # Those with nodes first: their curves change.
    ordered = sorted(known, key=lambda t: t.newest is None or not t.newest.members)
    jobs = {t.row.name: t.job for t in ordered[:MOST_CURVES] if t.job is not None}
    points = {n: observed.progress[n].history.metric_points() for n in jobs}
    recent = {n: forecaster.recent(n, job, points[n]) for n, job in jobs.items()}
    found = {n: saved for n, (saved, _) in recent.items() if saved is not None}
    due = [n for n, (_, grown) in recent.items() if grown >= REFIT_SHARE]
    due.sort(key=lambda n: recent[n][1], reverse=True)
    for name in due:
        if len(forecaster.fresh) == MOST_FITS:
            break
        fitted = forecaster.forecast(name, jobs[name], points[name])
        if isinstance(fitted, FittedForecast):
            found[name] = fitted
    return found


def _curve(
    trainer: TickTrainer, observed: Observed, forecast: FittedForecast | None
) -> PageCurve:
    name, job = trainer.row.name, trainer.job
    assert job is not None  # noqa: S101 - for mypy
    history = observed.progress[name].history
    return PageCurve(
        name=name,
        metric=job.measure.metric,
        unit=unit_of(job),
        points=tuple(
            (point.samples, point.value)
            for point in history.metric_points()
            if math.isfinite(point.value) and math.isfinite(point.samples)
        ),
        work=history.work,
        total=total_of(job, history),
        expected=() if forecast is None else _expected(forecast),
    )


def _expected(forecast: FittedForecast) -> tuple[tuple[float, Expected], ...]:
    done = forecast.points[-1].samples
    found = ((done * ahead, forecast.expected(done * ahead)) for ahead in _AHEAD)
    return tuple(
        (work, value)
        for work, value in found
        if all(map(math.isfinite, (value.value, value.low, value.high)))
    )


# As HTML.

_SCRIPT = """
const age = document.getElementById("age");
const atS = Number(age.dataset.at), silentS = Number(age.dataset.silent);
function words(s) {
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const [size, unit] = units.find(([size]) => s >= size) ?? [1, "s"];
  return `${Math.floor(s / size)} ${unit}`;
}
function show() {
  const s = Math.max(0, Date.now() / 1000 - atS);
  const isSilent = s > silentS;
  age.classList.toggle("bad", isSilent);
  age.textContent = isSilent
    ? `The broker has been silent for ${words(s)}: nothing changes without a tick. ` +
      "Does cron call it? `freetrain cron show` on the cluster says."
    : `Last tick ${words(s)} ago.`;
}
show();
setInterval(show, 1000);
"""

_SCRIPT_HASH = b64encode(sha256(_SCRIPT.encode()).digest()).decode()

POLICY = (
    f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_SCRIPT_HASH}'"
)
"""The page's Content-Security-Policy: nothing is fetched, and no other script runs."""

_PAGE = Markup("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta http-equiv="refresh" content="{reload_s}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>FreeTrain on {cluster}</title>
<style>
{style}
</style>
</head>
<body>
<h1>FreeTrain on {cluster}</h1>
<p id="age" role="status" data-at="{at_s}" data-silent="{silent_s}">Last tick at \
{at}.</p>
{body}
<script>{script}</script>
</body>
</html>
""")


def render_page(report: StatusReport, past: PagePast) -> str:
    """Return the page of *report* as one HTML document."""
    lines = {line.name: line for line in report.trainers}
    trainers = [lines[name] for name in past.shown if name in lines]
    colours = {line.name: COLOURS[k % len(COLOURS)] for k, line in enumerate(trainers)}
    parts = [
        _cards(report),
        _notes(report),
        *_trainers_part(trainers, past),
        *_curves_part(past, colours),
        *_sizes_part(report, trainers, past, colours),
        *_nodes_part(report, past, colours),
        *_harm_part(report, past),
    ]
    page = _PAGE.format(
        policy=POLICY,
        reload_s=_RELOAD_S,
        cluster=_cell(report.cluster),
        style=Markup((FOLDER / "page.css").read_text("utf-8")),  # noqa: S704 - ours
        at_s=f"{report.at_s:.0f}",
        silent_s=f"{TICKS_SILENT_S:.0f}",
        at=_clock(report.at_s),
        body=Markup("\n").join(parts),
        script=Markup(_SCRIPT),  # noqa: S704 - ours
    )
    return str(page)


def _cell(text: str) -> str:
    """Return *text* on one line, cut off where it is long."""
    line = one_line(text[: 2 * MOST_CHARACTERS])
    return line if len(line) <= MOST_CHARACTERS else f"{line[:MOST_CHARACTERS]}…"


def _clock(time_s: float) -> str:
    try:
        return utc(time_s).replace("T", " ")
    except (OverflowError, ValueError, OSError):
        return f"{time_s:g}"


def _cards(report: StatusReport) -> Markup:
    wanting = [t for t in report.trainers if t.state == TrainerState.WANTED]
    running = sum(t.nodes > 0 for t in wanting)
    training = sum(t.nodes for t in report.trainers)
    states = [lease.state for lease in report.leases]
    waits = len(report.waits_since_s)
    cards = (
        (f"{running} of {len(wanting)}", "trainers have nodes"),
        (f"{training} of {len(report.holes)}", "nodes, of those idle or ours, train"),
        (
            f"{states.count(LeaseState.RUNNING)}",
            f"leases run; {states.count(LeaseState.PENDING)} wait",
        ),
        (f"{waits}", "jobs of others wait for a lease to leave"),
    )
    return Markup('<div class="cards">{}</div>').format(
        Markup("").join(
            Markup('<div class="card"><b>{}</b><span>{}</span></div>').format(*card)
            for card in cards
        )
    )


def _notes(report: StatusReport) -> Markup:
    """Return what keeps leases from trainers, and what went wrong."""
    notes = [f"No more leases are asked for: {report.held_back}."] * bool(
        report.held_back
    )
    if report.paused_until_s is not None:
        notes.append(f"Paused until {_clock(report.paused_until_s)}.")
    notes += report.problems[:MOST_ROWS]
    return Markup("\n").join(
        Markup('<p class="bad">{}</p>').format(_cell(note)) for note in notes
    )


_HEADINGS = ("trainer", "state", "nodes", "work", "metric", "why")


def _trainers_part(trainers: Sequence[TrainerLine], past: PagePast) -> Iterator[Markup]:
    yield Markup("<h2>Trainers</h2>")
    if not trainers:
        yield _soft("None: `freetrain submit job.toml`.")
        return
    curves = {curve.name: curve for curve in past.curves}
    rows = [_trainer_row(line, curves.get(line.name)) for line in trainers]
    yield table(_HEADINGS, rows)


def _trainer_row(line: TrainerLine, curve: PageCurve | None) -> tuple[object, ...]:
    is_wanted = line.state == TrainerState.WANTED
    changes = is_wanted and line.planned_nodes != line.nodes
    diverging = "it is diverging" if line.is_diverging else ""
    why = (diverging, _cell(line.why), _cell(line.unseen))
    return (
        _cell(line.name),
        _state(line),
        f"{line.nodes} → {line.planned_nodes}" if changes else line.nodes,
        _work(curve),
        UNKNOWN
        if curve is None or not curve.points
        else f"{_cell(curve.metric)} {curve.points[-1][1]:.4g}",
        Markup('<span class="why">{}</span>').format("; ".join(filter(None, why))),
    )


def _state(line: TrainerLine) -> str:
    if line.state != TrainerState.WANTED:
        return _cell(line.state)
    if not line.nodes:
        return "waiting"
    return "stalled" if line.is_stalled else "training"


def _work(curve: PageCurve | None) -> str:
    if curve is None or curve.work is None:
        return UNKNOWN
    total = "" if curve.total is None else f" of {scaled(curve.total)}"
    unit = curve.unit if curve.unit.endswith("s") else f"{curve.unit}s"
    return f"{scaled(curve.work)}{total} {unit}"


_FEWEST_POINTS = 2
_MOST_POINTS = 200
_TABLE_POINTS = 8


def _curves_part(past: PagePast, colours: dict[str, str]) -> Iterator[Markup]:
    drawn = [c for c in past.curves if len(c.points) >= _FEWEST_POINTS][:MOST_CURVES]
    if not drawn:
        return
    yield Markup("<h2>Losses, and what is expected</h2>")
    yield _soft(
        "Dashed: what is expected up to twice the work done; shaded: its range."
    )
    yield Markup('<div class="pair">')
    for curve in drawn:
        yield _curve_figure(curve, colours.get(curve.name, OTHERS))
    yield Markup("</div>")


def _curve_figure(curve: PageCurve, colour: str) -> Markup:
    title = f"{_cell(curve.metric)} of {_cell(curve.name)}"
    reported = sorted(curve.points)
    every = math.ceil(len(reported) / _MOST_POINTS)
    # The newest always counts.
    reported = reported[::-1][::every][::-1]
    first = reported[0][0]
    last = max(reported[-1][0], *(work for work, _ in curve.expected), first + 1e-9)
    lines = [Line(points=reported, colour=colour, label="reported")]
    if curve.expected:
        lines.append(
            Line(
                points=[(work, value.value) for work, value in curve.expected],
                colour=colour,
                label="expected",
                is_dashed=True,
                band=[(work, v.low, v.high) for work, v in curve.expected],
            )
        )
    middle = (first + last) / 2
    marks = [(work, scaled(work)) for work in (first, middle, last)]
    drawing = draw_lines(
        lines,
        axis=Axis(first=first, last=last, marks=marks, now=reported[-1][0]),
        title=f"{title}, by {curve.unit}",
    )
    every = max(1, math.ceil(len(reported) / _TABLE_POINTS))
    rows = [(scaled(work), f"{value:.4g}", "") for work, value in reported[::-every]]
    rows[:0] = [
        (scaled(work), f"{v.value:.4g}", f"{v.low:.4g} to {v.high:.4g}")
        for work, v in reversed(curve.expected[1:])
    ]
    numbers = table((curve.unit, _cell(curve.metric), "expected range"), rows)
    return Markup("<figure><h3>{}</h3>{}{}</figure>").format(
        title, drawing, _folded("as a table", numbers)
    )


def _sizes_part(
    report: StatusReport,
    trainers: Sequence[TrainerLine],
    past: PagePast,
    colours: dict[str, str],
) -> Iterator[Markup]:
    yield Markup("<h2>Nodes of trainers, and rescales</h2>")
    if not past.rescales:
        yield _soft("No trainer was rescaled within a day.")
        return
    begin_s = min(event.at_s for event in past.rescales)
    lines = []
    for line in trainers:
        sizes = [
            (event.at_s, float(event.leases))
            for event in past.rescales
            if event.subject == line.name
        ]
        if not sizes and line.nodes:
            sizes = [(begin_s, float(line.nodes))]
        if sizes:
            sizes.append((report.at_s, float(line.nodes)))
            lines.append(
                Line(
                    points=sizes,
                    colour=colours[line.name],
                    label=_cell(line.name),
                    is_stepped=True,
                )
            )
    axis = _time_axis(begin_s, report.at_s, now_s=report.at_s)
    title = "Nodes of each trainer over time"
    yield Markup("<figure>{}<figcaption>{}</figcaption></figure>").format(
        draw_lines(lines, axis=axis, title=title, are_counts=True),
        legend((_cell(line.name), colours[line.name]) for line in trainers),
    )
    latest = past.rescales[: -MOST_ROWS - 1 : -1]
    rows = [
        (
            _clock(event.at_s),
            _cell(event.subject),
            event.leases,
            *_decision(event.detail),
        )
        for event in latest
    ]
    numbers = table(("when, UTC", "trainer", "nodes", "by", "why"), rows)
    yield _folded(f"{counted(len(latest), 'rescale')} as a table", numbers)


def _decision(detail: str) -> tuple[str, Markup]:
    """Return who made a generation, and why, from the detail of its event."""
    head, _, why = detail.partition(": ")
    author = head.rpartition(" by ")[2]
    by = author if author in {BROKER, USER} else "agents"
    return by, Markup('<span class="why">{}</span>').format(_cell(why))


def _nodes_part(
    report: StatusReport, past: PagePast, colours: dict[str, str]
) -> Iterator[Markup]:
    yield Markup("<h2>Leases and holes</h2>")
    now_s = report.at_s
    names = _row_names(report)
    if not names:
        yield _soft("No node is idle or ours.")
        return
    rows = [_cell(node) for node in names[:MOST_NODES]]
    bars = [*_node_bars(report, past, colours)]
    past_s = min((bar.start for bar in bars if bar.row in rows), default=now_s)
    begin_s = min(past_s, now_s - 60.0)
    end_s = _shown_until_s(report, now_s - begin_s)
    more = len(names) - len(rows)
    caption = legend(
        [
            *((_cell(n), colours[n]) for n in dict.fromkeys(_at_work(report, colours))),
            ("a lease that is over, or without a trainer", OTHERS),
            ("until the hole ends", _HOLE),
        ]
    )
    if more:
        caption = Markup("{}<br>{} more are in the table.").format(
            caption, counted(more, "node")
        )
    yield Markup("<figure>{}<figcaption>{}</figcaption></figure>").format(
        draw_rows(
            bars,
            rows=rows,
            axis=_time_axis(begin_s, end_s, now_s=now_s),
            title="Leases by node until now, and how long nodes stay idle",
        ),
        caption,
    )
    yield _folded("holes as a table", _holes_table(report))
    yield _folded("leases as a table", _leases_table(report))


_HOLE = "#8a8f9855"


def _row_names(report: StatusReport) -> list[str]:
    """Return nodes in order of their numbers, those with leases first."""
    held = {lease.node for lease in report.leases if lease.node}
    others = {hole.node for hole in report.holes} - held
    return [
        *sorted(held, key=lambda node: (len(node), node)),
        *sorted(others, key=lambda node: (len(node), node)),
    ]


def _at_work(report: StatusReport, colours: dict[str, str]) -> Iterator[str]:
    for lease in report.leases:
        if lease.trainer in colours:
            yield lease.trainer


def _node_bars(
    report: StatusReport, past: PagePast, colours: dict[str, str]
) -> Iterator[Bar]:
    now_s = report.at_s
    for hole in report.holes:
        yield Bar(
            row=_cell(hole.node),
            start=now_s,
            end=math.inf if hole.end_s is None else max(now_s, hole.end_s),
            colour=_HOLE,
            label=_cell(f"{hole.node}: {hole.used_for}; ends {_end(hole)}"),
            is_thin=True,
        )
    for span in past.spans:
        yield Bar(
            row=_cell(span.node),
            start=max(span.start_s, now_s - HOURS_S),
            end=span.end_s,
            colour=OTHERS,
            label=f"a lease until {_clock(span.end_s)}",
        )
    for lease in report.leases:
        if lease.node and lease.start_s is not None:
            yield Bar(
                row=_cell(lease.node),
                start=max(lease.start_s, now_s - HOURS_S),
                end=now_s,
                colour=colours.get(lease.trainer, OTHERS),
                label=_cell(f"{lease.trainer or 'no trainer'}, job {lease.job}"),
            )


def _shown_until_s(report: StatusReport, past_s: float) -> float:
    """Return where the time axis of nodes ends: as far ahead as back, or less."""
    ends_s = [hole.end_s for hole in report.holes if hole.end_s is not None]
    longest_s = max(ends_s, default=report.at_s) - report.at_s
    return report.at_s + min(max(longest_s, past_s / 4), past_s)


def _end(hole: HoleLine) -> str:
    by = f"{hole.ends_by} {hole.blocker}".strip()
    return by if hole.end_s is None else f"{_clock(hole.end_s)}, {by}"


def _holes_table(report: StatusReport) -> Markup:
    alike: dict[tuple[str, str], list[str]] = {}
    for hole in report.holes:
        alike.setdefault((hole.used_for, _end(hole)), []).append(hole.node)
    rows = [
        (_nodes(nodes), len(nodes), _cell(used_for), _cell(end))
        for (used_for, end), nodes in [*alike.items()][:MOST_ROWS]
    ]
    return table(("nodes", "number", "used for", "they end, UTC"), rows)


def _nodes(names: Sequence[str]) -> str:
    names = tuple(dict.fromkeys(names))
    try:
        return _cell(collapse(names))
    except ValueError:
        return _cell(", ".join(names))


def _leases_table(report: StatusReport) -> Markup:
    rows = [
        (
            _cell(lease.job),
            _cell(lease.node) or UNKNOWN,
            _cell(lease.state),
            _cell(lease.trainer) or UNKNOWN,
            "silent" if lease.is_silent else _cell(lease.agent) or UNKNOWN,
            UNKNOWN if lease.end_s is None else _clock(lease.end_s),
        )
        for lease in report.leases[:MOST_ROWS]
    ]
    headings = ("job", "node", "state", "trainer", "agent", "limit ends it, UTC")
    return table(headings, rows)


def _harm_part(report: StatusReport, past: PagePast) -> Iterator[Markup]:
    yield Markup("<h2>Room made for others</h2>")
    given_up = sum(event.leases for event in past.given_up)
    yield _soft(
        f"{counted(given_up, 'lease')} given up within a day, as jobs of others needed "
        f"their nodes."
    )
    if report.waits_since_s:
        yield table(
            ("job that waits for a lease to leave", "since, UTC", "for"),
            [
                (
                    _cell(job),
                    _clock(since_s),
                    render_duration(max(0.0, report.at_s - since_s)),
                )
                for job, since_s in [*report.waits_since_s.items()][:MOST_ROWS]
            ],
        )
    if past.given_up:
        latest = past.given_up[: -MOST_ROWS - 1 : -1]
        rows = [(_clock(e.at_s), e.leases, _cell(e.detail)) for e in latest]
        numbers = table(("when, UTC", "leases", "why"), rows)
        yield _folded("leases given up, as a table", numbers)


def _soft(text: str) -> Markup:
    return Markup('<p class="soft">{}</p>').format(text)


def _folded(summary: str, content: Markup) -> Markup:
    return Markup("<details><summary>{}</summary>{}</details>").format(summary, content)


_STEPS_S = (10, 30, 60, 300, 600, 1_800, 3_600, 7_200, 14_400, 43_200)
_MOST_MARKS = 5


def _time_axis(begin_s: float, end_s: float, *, now_s: float) -> Axis:
    """Return an axis of times, marked by how long before or after now they are."""
    end_s = max(end_s, begin_s + 1.0)
    span_s = end_s - begin_s
    step_s = next((s for s in _STEPS_S if span_s / s <= _MOST_MARKS), 86_400)
    first, last = math.ceil((begin_s - now_s) / step_s), (end_s - now_s) // step_s
    marks = [
        (now_s + k * step_s, _apart(k * step_s)) for k in range(first, int(last) + 1)
    ]
    return Axis(first=begin_s, last=end_s, marks=marks, now=now_s)


def _apart(seconds: float) -> str:
    if not seconds:
        return "now"
    return f"{'+' if seconds > 0 else '-'}{render_duration(abs(seconds))}"
