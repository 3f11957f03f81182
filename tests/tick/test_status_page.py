"""The status page: what it shows, that nothing on it runs, and what it costs a tick."""

import os
import re
import stat
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from freetrain.losscurve.forecast import Expected
from freetrain.page.drawing import (
    Axis,
    Bar,
    Line,
    draw_lines,
    draw_rows,
    round_values,
    table,
)
from freetrain.state.files import AgentState
from freetrain.state.tables import Event, EventKind
from freetrain.tick.status_page import (
    MOST_FITS,
    PageCurve,
    PagePast,
    PastLease,
    render_page,
)
from freetrain.tick.status_report import HoleLine, LeaseLine, StatusReport, TrainerLine
from tests.client.client_states import NOW_S, a_page
from tests.losscurve.reported import noisy, steps
from tests.tick.tick_worlds import PRINTS, TickWorld, printed, running, tell

GOLDEN = Path(__file__).parents[1] / "data" / "status-page" / "status.html"
HOSTILE = "</title></style><script>alert(1)</script><img src=x onerror=y>&\"'\x1b[2J"


def everything(text: str = "") -> tuple[StatusReport, PagePast]:
    """Return a report and the rest of a page, each text followed by *text*."""
    name = f"ada{text}"
    report = a_page(
        cluster=f"c{text}",
        problems=(f"problem{text}",),
        limit="",
        brake=f"brake{text}",
        waits_since_s={f"77{text}": NOW_S - 90.0},
        trainers=(
            TrainerLine(
                name=name,
                state="wanted",
                reason=f"reason{text}",
                brake=f"brake{text}",
                nodes=2,
                planned_nodes=3,
            ),
            TrainerLine(name=f"ben{text}", state="failed", message=f"message{text}"),
            TrainerLine(name="cem", state="wanted", nodes=1, is_stalled=True),
        ),
        holes=(
            HoleLine(
                node=f"n1{text}",
                reason="training",
                trainer=name,
                end_s=NOW_S + 600.0,
                ends_by=f"job{text}",
                blocker=f"12{text}",
            ),
            HoleLine(node="n10", reason=f"idle{text}", refusal=f"refusal{text}"),
        ),
        leases=(
            LeaseLine(
                name="u-0",
                job=f"4{text}",
                state="running",
                node=f"n1{text}",
                start_s=NOW_S - 300.0,
                end_s=NOW_S + 900.0,
                limit_min=20,
                shape=f"shape{text}",
                agent=f"training{text}",
                is_silent=False,
                trainer=name,
            ),
        ),
    )
    curve = PageCurve(
        name=name,
        metric=f"loss{text}",
        unit="samples",
        points=tuple((100.0 * k, 1.0 / k) for k in range(1, 21)),
        work=2_000.0,
        total=4_000.0,
        expected=(
            (2_000.0, Expected(0.05, 0.05, 0.05)),
            (4_000.0, Expected(0.03, 0.01, 0.06)),
        ),
    )
    past = PagePast(
        shown=(name, f"ben{text}", "cem"),
        curves=(curve,),
        rescales=(
            Event(NOW_S - 200.0, EventKind.ASSIGNED, name, 1, "generation 1 by broker"),
            Event(NOW_S - 60.0, EventKind.ASSIGNED, name, 2, f"g 2 by {text}: w{text}"),
        ),
        given_up=(Event(NOW_S - 30.0, EventKind.YIELDED, "u", 2, f"others{text}"),),
        spans=(PastLease(node=f"n1{text}", start_s=NOW_S - 900, end_s=NOW_S - 600),),
    )
    return report, past


class Reader(HTMLParser):
    """Reads a page: its tags with their attributes, what it says, and its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.said = ""
        self.script = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] and self.tags[-1][0] == "script":
            self.script += data
        self.said += data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def test_the_page_of_one_state_is_what_it_was() -> None:
    page = render_page(*everything())

    if "FREETRAIN_RENEW" in os.environ:
        GOLDEN.write_text(page, encoding="utf-8")
    assert page == GOLDEN.read_text(encoding="utf-8")


def test_no_text_from_outside_becomes_a_tag_or_a_script() -> None:
    plain = Reader(render_page(*everything()))
    hostile = Reader(render_page(*everything(HOSTILE)))

    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in plain.tags]
    assert [attrs.keys() for _, attrs in hostile.tags] == [
        attrs.keys() for _, attrs in plain.tags
    ]
    assert hostile.script == plain.script
    assert "<script>alert(1)" in hostile.said
    assert "\x1b" not in hostile.said


def test_the_page_fetches_nothing_and_runs_its_own_script_only() -> None:
    page = render_page(*everything())
    reader = Reader(page)

    policy = next(
        attrs["content"] or ""
        for tag, attrs in reader.tags
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; ")
    assert "script-src 'sha256-" in policy
    assert not {"href", "src", "onclick"} & {k for _, a in reader.tags for k in a}
    assert "url(" not in page
    assert reader.count("script") == 1


def test_each_drawing_has_a_name_and_a_table_beside_it() -> None:
    reader = Reader(render_page(*everything()))
    drawings = [attrs for tag, attrs in reader.tags if tag == "svg"]

    assert [d["aria-label"] for d in drawings] == [
        "loss of ada, by samples",
        "Nodes of each trainer over time",
        "Leases by node until now, and how long nodes stay idle",
    ]
    assert {d["role"] for d in drawings} == {"img"}
    assert reader.count("table") >= len(drawings)


def test_a_text_of_a_megabyte_is_cut_off() -> None:
    assert len(render_page(*everything("x" * 1_000_000))) < 60_000


def test_an_empty_state_has_a_page() -> None:
    page = render_page(a_page(), PagePast())

    assert "freetrain submit job.toml" in page
    assert "<svg" not in page


def test_ten_thousand_holes_make_no_long_page() -> None:
    holes = tuple(
        HoleLine(node=f"n{k}", reason="idle", end_s=NOW_S + k) for k in range(10_000)
    )

    page = render_page(a_page(holes=holes), PagePast())

    assert len(page) < 60_000
    assert "9,960 nodes more are in the table" in page


def test_bars_lie_in_their_rows_and_within_the_axis() -> None:
    bar = Bar(row="n2", start=5, end=10, colour="#000", label="x")

    drawing = draw_rows([bar], rows=["n1", "n2"], axis=Axis(first=0, last=20), title="")

    assert '<rect x="250.0" y="27" width="250.0" height="18"' in drawing


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 4.0, [0, 1, 2, 3, 4]),
        (0.11, 2.4, [0.5, 1, 1.5, 2]),
        (-1e6, 1e6, [-1e6, -5e5, 0, 5e5, 1e6]),
    ],
)
def test_levels_are_round_values_between_the_ends(
    low: float, high: float, expected: list[float]
) -> None:
    assert round_values(low, high) == expected


@pytest.mark.parametrize(
    "values",
    [(1e17, 1e17), (1.7e308, -1.7e308), (0.0, 0.0), (5e-324, 0.0), (-1e300, 1.0)],
)
def test_any_finite_values_are_drawn_within_the_picture(
    values: tuple[float, float],
) -> None:
    line = Line(points=[*enumerate(values)], colour="red", label="a loss")

    drawn = str(draw_lines([line], axis=Axis(first=0.0, last=1.0), title="losses"))

    points = re.search(r'<polyline points="([^"]*)"', drawn)
    assert points
    for pair in points[1].split():
        assert 0.0 <= float(pair.split(",")[1]) <= 180.0, drawn


def test_cells_of_tables_are_escaped() -> None:
    made = table(("<a>",), [("<b>", "<c>")])

    assert "<a>" not in made
    assert "&lt;a&gt;" in made
    assert "&lt;b&gt;" in made
    assert "&lt;c&gt;" in made


# Of real ticks.


@pytest.fixture
def trained(world: TickWorld) -> TickWorld:
    """Return a world in which a and b train, and have reported a few losses."""
    for name in ("a", "b", "c"):
        tell(world.submit(name, most=2), *noisy(steps(30) ** -0.4, noise=0.01, seed=1))
    world.go_on(3, every_s=5.0)
    return world


def page_of(world: TickWorld) -> str:
    return world.folder.status_page.read_text(encoding="utf-8")


def test_a_tick_writes_the_page_for_its_owner_only(world: TickWorld) -> None:
    old = os.umask(0)
    try:
        world.submit("a")
        world.tick()
    finally:
        os.umask(old)

    assert stat.S_IMODE(world.folder.status_page.stat().st_mode) == 0o600
    assert '<th scope="row">a</th>' in page_of(world)
    assert not list(world.folder.path.glob(".status*"))


def test_a_dry_tick_writes_no_page(world: TickWorld) -> None:
    world.tick(dry_run=True)

    assert not world.folder.status_page.exists()


def test_the_page_of_a_tick_has_losses_nodes_and_rescales(trained: TickWorld) -> None:
    trained.go_on(2, every_s=5.0)
    page = page_of(trained)

    for name in ("a", "b", "c"):
        assert f"loss of {name}, by samples" in page
    assert page.count('class="ahead"') == 3, "all are forecast after a few ticks"
    assert "starts on 2 nodes" in page


@pytest.mark.parametrize(
    ("job", "hint"),
    [
        ("elastic = false\n", "as its job file has no [progress]"),
        (PRINTS.format(pattern=r"step (?P<step>\d+)"), "from what it prints"),
    ],
)
def test_of_a_program_whose_steps_are_not_seen_the_page_says_what_to_do(
    world: TickWorld, job: str, hint: str
) -> None:
    running(world, text=job)
    told = [hint in page_of(world)]
    for text in ("nothing\n", "step 3\n"):
        printed(world, text)
        world.beat(state=AgentState.TRAINING, trainer="a", generation=1)
        world.tick()
        told.append(hint in page_of(world))

    assert told == [False, True, "[progress]" in hint]


def fits_of_a_tick(world: TickWorld) -> int:
    """Return how many curves a tick fits for the page."""
    before = forecast_rows(world)
    world.tick()
    return sum(row not in before for row in forecast_rows(world))


def forecast_rows(world: TickWorld) -> list[tuple[str, str]]:
    with world.reading() as state:
        found = state.execute("SELECT trainer, told FROM outlooks").fetchall()
    return [(str(name), str(fitted_to)) for name, fitted_to in found]


def test_curves_are_fitted_anew_only_where_the_work_grew_by_a_tenth(
    trained: TickWorld,
) -> None:
    trained.go_on(2, every_s=5.0)
    run = trained.folder.trainer("a").run

    nothing_new = fits_of_a_tick(trained)
    tell(run, 0.25, since=30)
    little_new = fits_of_a_tick(trained)
    tell(run, *[0.25] * 5, since=31)
    much_new = fits_of_a_tick(trained)

    assert (nothing_new, little_new, much_new) == (0, 0, 1)


def test_no_tick_fits_more_than_a_few_curves(world: TickWorld) -> None:
    for k in range(MOST_FITS + 3):
        tell(world.submit(f"t{k}"), *noisy(steps(30) ** -0.4, noise=0.01, seed=k))

    assert [fits_of_a_tick(world) for _ in range(4)] == [MOST_FITS, MOST_FITS, 1, 0]


def test_a_page_that_cannot_be_written_fails_the_tick_and_nothing_else(
    world: TickWorld,
) -> None:
    world.tick()
    numbers = world.folder.metrics.read_text()
    world.folder.status_page.unlink()
    world.folder.status_page.mkdir()

    with pytest.raises(Exception, match=r"status\.html"):
        world.tick()

    assert world.folder.metrics.read_text() != numbers


def test_who_waits_for_a_lease_to_leave_is_on_the_page() -> None:
    page = render_page(a_page(waits_since_s={"42": NOW_S - 75.0}), PagePast())

    assert re.search(r'<th scope="row">42</th><td>[^<]+</td><td>1.25 min</td>', page)


IMPORTS = """
import sys
from pathlib import Path
from tests.tick.tick_worlds import tick_world, tell

world = tick_world(Path(sys.argv[1]))
tell(world.submit("a", most=2), *[1.0 / k for k in range(1, 40)])
world.go_on(2)
print("loss of a" in world.folder.status_page.read_text())
print(*sorted(sys.modules.keys() & {"jinja2", "pandas", "plotly", "scipy"}))
"""


def test_a_tick_draws_its_page_without_template_engine_plotly_pandas_and_scipy(
    quick_folder: Path,
) -> None:
    root = Path(__file__).parents[2]
    ran = subprocess.run(  # noqa: S603 - this very program
        [sys.executable, "-c", IMPORTS, str(quick_folder)],
        env=os.environ | {"PYTHONPATH": str(root)},
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout.splitlines() == ["True", ""]
