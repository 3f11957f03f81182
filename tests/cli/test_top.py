"""``freetrain top``: what its screen shows, and what its keys do."""

import asyncio
import html
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Log

from freetrain.broker.reasons import Brake, TrainerReason
from freetrain.cli.status import EVERY_S
from freetrain.cli.top import TAIL_BYTES, Printed, Top
from freetrain.cli.trainer_logs import Follower, Source
from freetrain.state.database import open_store
from freetrain.state.files import StateDir
from freetrain.state.tables import TrainerState
from freetrain.tick.status_report import TrainerLine
from tests.cli.commands import JOB, NOW_S, a_context, refused, run
from tests.cli.test_curves_command import HALVING, told
from tests.cli.test_logs_command import EVIL, print_to
from tests.client.client_states import UID, a_page, assign, put_page, put_state, rows

LONG = "sweep-of-learning-rates-" + "x" * 30 + "-lr-0.003"
LINE = TrainerLine(
    name="digits",
    state="wanted",
    reason=str(TrainerReason.AWAITS_LEASES),
    brake=str(Brake.SUBMIT_LIMIT),
    nodes=2,
    planned_nodes=5,
)


def watch(state: StateDir, *keys: str, see: Callable[[Top], None]) -> None:
    """Let *see* look at an 80x24 screen after *keys* were pressed."""

    async def look(pilot: Pilot[None], top: Top) -> None:
        await pilot.press(*keys)
        await pilot.pause()
        see(top)

    watched(state, look)


def watched(
    state: StateDir, look: Callable[[Pilot[None], Top], Awaitable[None]]
) -> None:
    top = Top(a_context(Path.cwd()), state)

    async def show() -> None:
        async with top.run_test(size=(80, 24), notifications=True) as pilot:
            await pilot.pause()
            await look(pilot, top)

    asyncio.run(show())


def screen(top: Top) -> list[str]:
    """Return the lines that the terminal shows, without colours."""
    drawn = top.export_screenshot(simplify=True)
    body = drawn[drawn.rindex("<g class") :]
    lines: dict[float, dict[float, str]] = defaultdict(dict)
    for tag, text in re.findall(r"<text ([^>]*)>([^<]*)</text>", body):
        x, y = (float(re.findall(rf'\b{axis}="([0-9.]+)"', tag)[0]) for axis in "xy")
        lines[y][x] = html.unescape(text).replace("\N{NO-BREAK SPACE}", " ")
    return [
        "".join(lines[y][x] for x in sorted(lines[y])).rstrip("\n")
        for y in sorted(lines)
    ]


def shown(top: Top) -> str:
    """Return the screen as one line with single blanks."""
    return " ".join(" ".join(screen(top)).replace("│", " ").split())


def said(top: Top) -> str:
    """Return what a notification says, which stands right of other text."""
    lines = (line.partition("▌")[2].strip("│╯ ") for line in screen(top))
    return " ".join(" ".join(lines).split())


@pytest.fixture
def training(digits: StateDir) -> StateDir:
    """A trainer of two nodes whose losses ticks have read, and one that waits."""
    Path("second.toml").write_text(JOB.replace('"digits"', f'"{LONG}"'))
    assert run("submit", "second.toml").code == 0
    assign(digits, "digits", 1, nodes=2)
    told(digits, HALVING)
    put_page(digits, a_page(at_s=NOW_S - 90.0, trainers=(LINE,), problems=("odd [/]",)))
    return digits


def test_80_by_24_hold_the_table_the_reasons_the_curve_and_the_keys(
    training: StateDir,
) -> None:
    def see(top: Top) -> None:
        text = shown(top)
        assert re.search(r"digits +starting +2 → 5 ", "\n".join(screen(top)))
        assert re.search(r"sweep-o…r-0.003 +waiting +0 ", "\n".join(screen(top)))
        assert "Leases: none. Last tick 1 min 30 s ago. odd [/]" in text
        why = f"{LINE.reason[:1].upper()}{LINE.reason[1:]} ({LINE.brake})."
        assert f"It is starting on n1, n2. {why}" in text
        assert re.search(r" 1\.15 .*█.* 0\.155█+▆", text)
        assert "loss: 1.15 after 100 samples, 0.155 after 20.00 k." in text
        assert "Forecast of loss: shifted power law, fitted to" in text
        assert "p Pause" in screen(top)[-1]
        assert "q Quit" in screen(top)[-1]
        assert len(screen(top)[0]) <= 80

    watch(training, see=see)


def test_the_cursor_chooses_the_trainer_that_is_told_of(training: StateDir) -> None:
    def see(top: Top) -> None:
        text = shown(top)
        assert f"{LONG} ─" in text
        assert "It is waiting." in text
        assert "Fitted" not in text

    watch(training, "down", see=see)


def test_the_screen_follows_the_state_and_the_cursor_stays_on_its_trainer(
    training: StateDir,
) -> None:
    Path("third.toml").write_text(JOB.replace('"digits"', '"third"'))

    async def look(pilot: Pilot[None], top: Top) -> None:
        await pilot.press("down")
        assert run("submit", "third.toml").code == 0
        put_state(training, "digits", TrainerState.FAILED)
        await pilot.pause(EVERY_S + 0.5)

        text = shown(top)
        assert "stopping" in text
        assert "third waiting" in text
        assert f"{LONG} ─" in text

    watched(training, look)


def test_a_state_that_cannot_be_read_for_a_while_leaves_the_table(
    training: StateDir,
) -> None:
    async def look(pilot: Pilot[None], top: Top) -> None:
        database = training.path / "state.sqlite"
        database.rename(training.path / "away")
        await pilot.pause(EVERY_S + 0.5)
        assert "Not read just now: " in shown(top)
        assert "digits starting" in shown(top)

    watched(training, look)


def test_pausing_a_trainer_that_has_nodes_is_asked_first(training: StateDir) -> None:
    def asks(top: Top) -> None:
        assert "Pause digits? It commits and leaves 2 nodes." in shown(top)
        assert rows(training)["digits"].state is TrainerState.WANTED

    watch(training, "p", see=asks)
    watch(training, "p", "n", see=lambda _: None)
    assert rows(training)["digits"].state is TrainerState.WANTED

    def says(top: Top) -> None:
        assert "digits is paused: it commits and leaves 2 nodes now" in said(top)
        assert "digits stopping" in shown(top)

    watch(training, "p", "y", see=says)
    assert rows(training)["digits"].state is TrainerState.PAUSED


def test_a_trainer_without_nodes_is_paused_and_resumed_at_once(
    digits: StateDir,
) -> None:
    watch(digits, "p", see=lambda _: None)
    assert rows(digits)["digits"].state is TrainerState.PAUSED

    watch(digits, "r", see=lambda _: None)
    assert rows(digits)["digits"].state is TrainerState.WANTED


def test_a_verb_that_makes_no_sense_says_so(digits: StateDir) -> None:
    put_state(digits, "digits", TrainerState.FINISHED)

    def see(top: Top) -> None:
        assert "digits is finished: there is nothing to pause." in said(top)

    watch(digits, "p", see=see)


def test_e_explains_and_goes_back(training: StateDir) -> None:
    def explains(top: Top) -> None:
        assert "digits is starting, for" in shown(top)
        assert "Nodes: 2 now, 5 planned" in shown(top)

    watch(training, "e", see=explains)
    watch(training, "e", "escape", see=lambda top: _has(top, "It is starting"))


def test_the_table_is_read_on_below_another_screen(training: StateDir) -> None:
    async def look(pilot: Pilot[None], top: Top) -> None:
        await pilot.press("e")
        put_state(training, "digits", TrainerState.FAILED)
        await pilot.pause(EVERY_S + 0.5)
        await pilot.press("escape")
        await pilot.pause()
        assert "digits stopping" in shown(top)

    watched(training, look)


def test_l_follows_what_is_printed_and_control_characters_are_spelled_out(
    training: StateDir,
) -> None:
    async def look(pilot: Pilot[None], top: Top) -> None:
        print_to(training, 1, b"step 1\n" + EVIL)
        await pilot.press("l")
        await until_shown(pilot, top, "==> digits, generation 1 on n1, n2 <== step 1")
        assert r"\x1b]0;owned\x07" in shown(top)
        print_to(training, 1, "step 2\n")
        await until_shown(pilot, top, "step 2")

    watched(training, look)


def test_l_reads_the_end_of_a_long_log_alone(training: StateDir) -> None:
    async def look(pilot: Pilot[None], top: Top) -> None:
        print_to(training, 1, "first\n" + f"{'x' * 9_999}\n" * 100 + "last\n")
        await pilot.press("l")
        await until_shown(pilot, top, "last")
        lines = top.screen.query_one(Log).lines
        assert lines[0] == "==> digits, generation 1 on n1, n2 <=="
        assert {*lines[1:-2]} == {"x" * 9_999}
        assert len(lines) == 3 + TAIL_BYTES // 10_000

    watched(training, look)


def test_keys_do_not_wait_for_a_slow_file_system(training: StateDir) -> None:
    go_on, was_left_in_time = threading.Event(), []

    def slow() -> list[Source]:
        was_left_in_time.append(go_on.wait(5.0))
        return []

    async def look(pilot: Pilot[None], top: Top) -> None:
        top.push_screen(Printed(rows(training)["digits"], Follower(slow)))
        await pilot.pause(0.1)
        await pilot.press("escape")
        assert len(top.screen_stack) == 1
        go_on.set()

    watched(training, look)
    assert was_left_in_time == [True]


def test_a_trainer_that_has_printed_nothing_says_so(digits: StateDir) -> None:
    async def look(pilot: Pilot[None], top: Top) -> None:
        await pilot.press("l")
        await until_shown(pilot, top, "digits has printed nothing so far.")

    watched(digits, look)


async def until_shown(pilot: Pilot[None], top: Top, text: str) -> None:
    for _ in range(100):
        await pilot.pause(0.05)
        if text in shown(top):
            return
    assert text in shown(top)


def _has(top: Top, text: str) -> None:
    assert text in shown(top)


def test_question_mark_says_what_keys_do_and_goes_back(digits: StateDir) -> None:
    watch(digits, "question_mark", see=lambda top: _has(top, "l what it prints"))
    watch(
        digits,
        "question_mark",
        "question_mark",
        see=lambda top: _has(top, "It is waiting."),
    )


def test_without_trainers_it_says_how_to_submit_one(state: StateDir) -> None:
    with open_store(state.path, uid=UID):
        pass
    watch(state, "p", "l", see=lambda top: _has(top, "No trainer is there: "))


def test_without_a_terminal_it_refuses(digits: StateDir) -> None:
    line = refused("top", code=64)

    assert "`freetrain status` shows the same once" in line
    assert digits.path.exists()


def test_without_textual_it_says_what_to_install(
    digits: StateDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "freetrain.cli.top")
    monkeypatch.setitem(sys.modules, "textual.app", None)

    line = refused("top", code=64)

    assert "pip install 'freetrain[top]'" in line
    assert digits.path.exists()
