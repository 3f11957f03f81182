"""Whatever names, files and logs say: nothing is executed, and no terminal obeys."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from freetrain.broker.lease import LeaseKey
from freetrain.config.document import BaseFolders, toml_value
from freetrain.config.job import parse_job, render_job
from freetrain.state.database import open_store
from freetrain.state.files import (
    AssignedLease,
    AssignmentFile,
    EndingKind,
    StateDir,
    create_assigned,
)
from freetrain.state.tables import TrainerState, put_trainers
from freetrain.tick.status_report import HoleLine, TrainerLine
from tests.cli.commands import NOW_S, Ran, Terminal, at_home, run
from tests.client.client_states import UID, a_page, end, put_page, rows

EVIL = (
    "$(touch owned)",
    "`touch owned`",
    "; touch owned",
    "' ; touch owned ; '",
    '" ; touch owned ; "',
    "a\nb",
    "a\r\nb\tc",
    "\x1b[2J\x1b]0;owned\x07",
    "../../etc/passwd",
    "--help",
    "\u202egnirts\u2066",
    "\x9b31m\x7f",
    "x" * 1_000_000,
)
NAMED_VERBS = ("cancel", "pause", "resume", "status", "explain", "logs", "drill")


def check_harmless(ran: Ran, folder: Path) -> None:
    """Hold *ran* to lines that no terminal obeys, and *folder* to its files."""
    for text in (ran.stdout, ran.stderr):
        assert not {char for char in text if not char.isprintable()} - {"\n"}
    assert ran.stderr.count("\n") <= 1
    assert len(ran.stderr) < 5_000
    assert not list(folder.rglob("owned"))


@pytest.mark.parametrize("verb", NAMED_VERBS)
def test_no_name_of_a_trainer_does_anything(
    tmp_path: Path, digits: StateDir, verb: str
) -> None:
    for evil in EVIL:
        ran = run(verb, "--", evil)

        assert ran.code == 64
        check_harmless(ran, tmp_path)
    assert digits.path.exists()


def test_no_name_in_a_job_file_becomes_a_path(tmp_path: Path, state: StateDir) -> None:
    for evil in EVIL:
        text = f"name = {toml_value(evil)}\ncommand = 'true'\nnodes = {{ max = 1 }}\n"
        Path("job.toml").write_text(text)

        ran = run("submit", "job.toml")

        assert ran.code == 78
        check_harmless(ran, tmp_path)
    assert not state.path.exists()


@pytest.mark.parametrize("evil", EVIL[:-1], ids=range(len(EVIL) - 1))
def test_words_of_a_command_are_kept_as_they_are(
    tmp_path: Path, state: StateDir, evil: str
) -> None:
    words = toml_value(["python3", evil])
    values = f'environment = {{ EVIL = {toml_value(evil)} }}\nname = "digits"\n'
    Path("job.toml").write_text(f"{values}command = {words}\nnodes = {{ max = 1 }}\n")

    ran = run("submit", "job.toml")
    shown = run("submit", "job.toml", "--dry-run")

    assert (ran.code, shown.code) == (0, 0)
    check_harmless(replace(ran, stderr=""), tmp_path)
    check_harmless(replace(shown, stderr=""), tmp_path)
    kept = state.trainer("digits").job.read_bytes()
    job = parse_job(kept, path="kept", places=BaseFolders(tmp_path))
    assert job.command == ("python3", evil)
    assert dict(job.environment) == {"EVIL": evil}
    assert render_job(job) == kept.decode()


@pytest.mark.parametrize("evil", ["\0", "a\0b", "x" * 1_000_000])
@pytest.mark.parametrize("key", ["command", "directory", "logs", "partition"])
def test_nul_and_a_megabyte_are_refused_in_one_line(
    tmp_path: Path, state: StateDir, key: str, evil: str
) -> None:
    said = {"name": "digits", "command": "true", key: evil}
    partition = said.pop("partition", "p")
    lines = [f"{name} = {toml_value(value)}" for name, value in said.items()]
    nodes = f"nodes = {{ max = 1, partition = {toml_value(partition)} }}"
    Path("job.toml").write_text("\n".join([*lines, nodes, ""]))

    ran = run("submit", "job.toml")

    assert ran.code == 78
    check_harmless(ran, tmp_path)
    assert not state.path.exists()


def test_no_name_of_a_file_does_anything(tmp_path: Path, state: StateDir) -> None:
    for evil in EVIL[:-1]:
        ran = run("submit", "--config", evil, "--", evil)

        assert ran.code == 66
        check_harmless(ran, tmp_path)
    assert not state.path.exists()


TEXT = st.sampled_from(EVIL[:-1]) | st.text(max_size=60)


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(texts=st.lists(TEXT, min_size=8, max_size=8))
def test_nothing_that_files_say_reaches_the_terminal_raw(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("home")
    state = at_home(folder=folder)
    assert run("submit", "job.toml", cwd=folder).code == 0
    _let_everything_say(state, texts)

    for words in (
        ("status",),
        ("status", "digits"),
        ("explain",),
        ("explain", "digits"),
    ):
        for stdout in ({}, {"stdout": Terminal()}):
            ran = run(*words, cwd=folder, **stdout)
            assert ran.code == 0, ran.stderr
            # A terminal gets colours, and those are ours.
            check_harmless(replace(ran, stdout=_uncoloured(ran.stdout)), folder)
        assert json.loads(run(*words, "--json", cwd=folder).stdout)


def _uncoloured(text: str) -> str:
    for number in (0, 1, 31, 32, 33, 36):
        text = text.replace(f"\x1b[{number}m", "")
    return text


def _let_everything_say(state: StateDir, texts: list[str]) -> None:
    """Let every file and row that people are shown hold one of *texts*."""
    reason, author, node, message, metric, problem, blocker, row_message = texts
    folder = state.trainer("digits")
    member = AssignedLease(
        key=LeaseKey("u1", 0), job_id=1, display_id="1", node=node or "n"
    )
    assigned = AssignmentFile(
        trainer="digits",
        generation=1,
        members=(member,),
        created_s=NOW_S,
        author=author,
        reason=reason,
    )
    assert create_assigned(folder, assigned)
    end(state, "digits", 1, EndingKind.FAILED, message=message)
    folder.run.path.mkdir()
    told = {"t": NOW_S, "step": 1, "samples": 1, "generation": 1, metric: 1.5}
    folder.run.progress.write_text(json.dumps(told) + "\n")
    row = replace(rows(state)["digits"], message=row_message.replace("\0", ""))
    failed = replace(row, state=TrainerState.FAILED)
    with open_store(state.path, uid=UID) as connection:
        put_trainers(connection, [failed])
    line = TrainerLine(name="digits", state="wanted", reason=reason, problem=problem)
    hole = HoleLine(node="n", reason=reason, blocker=blocker, refusal=message)
    page = a_page(problems=(problem,), trainers=(line,), holes=(hole,))
    put_page(state, page)
