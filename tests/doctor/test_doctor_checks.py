"""What is found of a host, and what the answer of a compute node means."""

import importlib.metadata
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from freetrain.config.site import PlannerSettings
from freetrain.doctor import one_step_run
from freetrain.doctor.checks import (
    PACKAGES,
    compare,
    findings_of,
    look_at_clock,
    look_at_imports,
    look_at_mpi,
    look_at_python,
    look_at_state,
    look_at_ticks,
)
from freetrain.doctor.findings import (
    Finding,
    bad,
    exit_code,
    finding_text,
    ok,
    summary_text,
    warn,
)
from freetrain.doctor.one_step_run import look_at_answer
from freetrain.errors import CannotWriteError
from slurm.errors import SlurmRefusedError, SlurmUnavailableError
from tests.cron.tables import install_fake
from tests.doctor.subjects import a_subject, by_name


def failing(error: Exception) -> Iterator[Finding]:
    yield ok("first", "")
    raise error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SlurmUnavailableError("x"), 69),
        (SlurmRefusedError("x"), 78),
        (CannotWriteError("x"), 73),
        (OSError("x"), 78),
    ],
)
def test_a_check_that_fails_is_a_finding_and_not_the_end(
    error: Exception, code: int
) -> None:
    findings = list(findings_of("name", lambda: failing(error)))

    assert [found.verdict for found in findings] == ["ok", "bad"]
    assert exit_code(findings) == code


def test_warnings_do_not_fail_the_command() -> None:
    assert exit_code([ok("a", ""), warn("b", "", "")]) == 0
    assert exit_code([bad("a", "", "", exit_code=69), bad("b", "", "")]) == 69


def test_a_finding_is_shown_with_what_to_do_and_nothing_that_moves_the_cursor() -> None:
    text = finding_text(bad("a name", "seen\x1b[2J\n" + 40 * "words ", "do this"))

    assert text.startswith("bad     a name")
    assert "→ do this" in text
    assert "\x1b" not in text
    assert all(len(line) <= 100 for line in text.splitlines())
    assert summary_text([ok("", ""), bad("", "", "")]) == "1 bad, 1 ok\n"


def test_a_path_or_an_option_in_a_finding_stands_whole_on_one_line() -> None:
    long = "-".join(15 * ["word"])

    text = finding_text(bad("a name", f"seen in {long}", f"remove {long}"))

    assert text.count(long) == 2


def test_a_state_directory_is_made_tried_and_left_empty(tmp_path: Path) -> None:
    found = by_name(list(look_at_state(a_subject(tmp_path, {}))))

    assert found.pop("database").verdict == "skipped"
    verdicts = {each.verdict for each in found.values()}
    assert verdicts <= {"ok", "warn"}
    assert found["link(2)"].verdict == "ok"
    assert list((tmp_path / "state").iterdir()) == []
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


def test_a_state_directory_open_to_others_is_bad(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o755)
    subject = a_subject(tmp_path, {})

    (found,) = findings_of("state", lambda: look_at_state(subject))

    assert (found.verdict, found.exit_code) == ("bad", 78)
    assert "chmod 700" in found.seen


def test_a_file_system_without_links_is_bad(tmp_path: Path) -> None:
    (tmp_path / "link-target").mkdir()  # stands for a refusal

    found = one_step_run.look_at_links(tmp_path)

    assert found.verdict == "bad"


def test_our_own_packages_come_from_one_place() -> None:
    found = by_name(list(look_at_python()))

    assert found["imports"].verdict == "ok"


def packages(folder: Path, text: str = '"""Doc."""\n') -> dict[str, Path | None]:
    for name in PACKAGES:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(text)
    return {name: folder / name / "__init__.py" for name in PACKAGES}


def test_packages_from_several_places_or_written_over_are_bad(tmp_path: Path) -> None:
    ours, others = packages(tmp_path / "a"), packages(tmp_path / "b")
    mixed = look_at_imports(ours | {"slurm": others["slurm"]})
    (tmp_path / "b" / "slurm" / "__init__.py").write_text("from slurm.api import *\n")

    assert look_at_imports(ours).verdict == "ok"
    assert look_at_imports(ours | {"logs": None}).verdict == "bad"
    assert mixed.verdict == "bad"
    assert "pipx" in mixed.advice
    assert "slurm/__init__.py is not FreeTrain's" in look_at_imports(others).seen


@pytest.mark.parametrize(
    ("flavour", "library", "verdict"),
    [
        ("Open MPI 5", "Open MPI v5.0.11, package: x", "ok"),
        ("Open MPI 4", "Open MPI v5.0.11", "warn"),
        ("MPICH", "Open MPI v4.1.4", "bad"),
        ("Open MPI 4", "MPICH Version: 4.0.2", "bad"),
        ("MPICH", "Intel(R) MPI Library 2021.13", "ok"),
        ("MPICH", "somebody's MPI", "bad"),
        ("MPICH", "", "bad"),
    ],
)
def test_mpirun_and_mpi4py_must_be_of_one_mpi(
    flavour: str, library: str, verdict: str
) -> None:
    assert compare(flavour, version="4.1", library=library).verdict == verdict


def mpirun(tmp_path: Path, says: str) -> dict[str, Finding]:
    program = tmp_path / "mpirun"
    program.write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    return by_name(list(look_at_mpi(a_subject(tmp_path, environ))))


def test_an_mpirun_is_known_by_its_version_or_warned_of(tmp_path: Path) -> None:
    found = mpirun(tmp_path, "mpirun (Open MPI) 4.1.4")

    assert "Open MPI 4" in found["mpirun"].seen
    assert "mpi4py" in found
    assert mpirun(tmp_path, "HAL 9000")["mpirun"].verdict == "warn"


def test_an_mpirun_that_cannot_be_started_is_told_without_a_word_of_cron(
    tmp_path: Path,
) -> None:
    program = tmp_path / "mpirun"
    program.write_text("#!/not/there\n")
    program.chmod(0o755)
    subject = a_subject(tmp_path, {"PATH": str(tmp_path)})

    (found,) = findings_of("MPI", lambda: look_at_mpi(subject))

    assert found.verdict == "bad"
    assert "cannot be started" in found.seen
    assert "--kind" not in found.seen


def test_ticks_that_nothing_starts_are_warned_of_until_something_does(
    tmp_path: Path,
) -> None:
    crontab = install_fake(tmp_path)
    subject = a_subject(tmp_path, crontab.environ)

    before = by_name(list(look_at_ticks(subject)))
    crontab.keep(b"# nothing of ours\n")
    crontab.act("forbid")
    closed = by_name(list(look_at_ticks(subject)))

    assert before["regular ticks"].verdict == "warn"
    assert before["last tick"].verdict == "skipped"
    assert "not allowed" in closed["regular ticks"].seen


@pytest.mark.parametrize(
    ("planner", "verdict", "seen"),
    [
        (PlannerSettings(), "ok", 'policy "freetrain", priority "weight"'),
        (
            PlannerSettings(policy="lookahead", forecaster="life-table"),
            "ok",
            'policy "lookahead", priority "weight", forecaster "life-table"',
        ),
        (
            PlannerSettings(forecaster="life-table"),
            "warn",
            'the policy "freetrain" asks no forecaster, and "life-table" is named',
        ),
    ],
)
def test_a_forecaster_that_nobody_asks_is_warned_of(
    tmp_path: Path, planner: PlannerSettings, verdict: str, seen: str
) -> None:
    subject = a_subject(tmp_path, {"PATH": "/nowhere"})
    site = structs.replace(subject.site, planner=planner)

    found = by_name(list(look_at_ticks(replace(subject, site=site))))

    assert (found["planner"].verdict, found["planner"].seen) == (verdict, seen)


@pytest.mark.parametrize(("here_s", "verdict"), [(1001.0, "ok"), (900.0, "warn")])
def test_clocks_that_are_apart_are_told(here_s: float, verdict: str) -> None:
    assert look_at_clock(1000.0, here_s).verdict == verdict


RANK = "doctor-rank set=2 seen={}\n"
GOOD: dict[str, object] = {
    "started_s": 1001.0,
    "ended_s": 1003.0,
    "host": "h",
    "node": "n1",
    "python": ".".join(map(str, sys.version_info[:3])),
    "freetrain": importlib.metadata.version("freetrain"),
    "links": "ok",
    "locks_granted": [],
    "world_tries": [{"status": 0, "said": "some warning\n" + 2 * RANK.format(2)}],
    "agent_reached": True,
    "agent_said": "",
}


def world(status: int | None, said: str) -> dict[str, object]:
    return {"world_tries": [{"status": status, "said": said}]}


def findings(answer: dict[str, object]) -> dict[str, Finding]:
    return by_name(list(look_at_answer(answer, begun_s=1000.0, ended_s=1004.0)))


def test_a_good_answer_is_well_in_all_respects() -> None:
    found = findings(GOOD)

    assert {one.verdict for one in found.values()} == {"ok"}
    assert "n1" in found["one-step run"].seen


@pytest.mark.parametrize(
    ("name", "changes", "verdict"),
    [
        ("MPI there", world(0, 2 * RANK.format("none")), "ok"),
        ("MPI there", world(0, 2 * "doctor-rank set=1 seen=none\n"), "bad"),
        ("MPI there", world(0, 2 * "doctor-rank set=? seen=none\n"), "skipped"),
        ("versions there", {"python": "3.6.8"}, "bad"),
        ("versions there", {"freetrain": "0.0.1"}, "bad"),
        ("state directory there", {"links": "bad"}, "bad"),
        ("locks there", {"locks_granted": ["fcntl"]}, "warn"),
        ("locks there", {"locks_granted": None}, "skipped"),
        ("clock there", {"started_s": 900.0}, "warn"),
        ("clock there", {"ended_s": 1100.0}, "warn"),
        ("clock there", {"ended_s": None}, "skipped"),
        ("MPI there", {"world_failed": "there is no mpirun"}, "warn"),
        ("MPI there", world(1, 2 * RANK.format(2)), "bad"),
        ("MPI there", world(None, 2 * RANK.format(2)), "bad"),
        ("MPI there", world(0, 2 * RANK.format(1)), "bad"),
        ("MPI there", world(0, RANK.format(2)), "bad"),
        ("launch agent", {"agent_reached": False}, "bad"),
        ("launch agent", {"agent_reached": "yes"}, "bad"),
    ],
)
def test_each_thing_that_may_be_wrong_there_is_told(
    name: str, changes: dict[str, object], verdict: str
) -> None:
    found = findings(GOOD | changes)

    assert found[name].verdict == verdict
    assert all(one.verdict == "ok" for one in found.values() if one.name != name)


def test_a_failed_mpirun_is_shown_with_its_words_and_without_its_rulers() -> None:
    ruler = 76 * "-"
    said = f"{ruler}\nThere are not enough slots.\n{ruler}\n"

    found = findings(GOOD | world(213, said))

    assert found["MPI there"].seen == (
        "mpirun ended with 213: There are not enough slots."
    )


def test_an_mpirun_that_fails_once_is_a_warning_with_what_it_said() -> None:
    tries = [{"status": 213, "said": "Error: Text file busy"}]
    tries += [{"status": 0, "said": 2 * RANK.format(2)}]

    found = findings(GOOD | {"world_tries": tries})

    assert found["MPI there"].verdict == "warn"
    assert "213: Error: Text file busy. It worked" in found["MPI there"].seen


def test_ranks_that_are_worlds_of_one_are_told_apart_from_a_world() -> None:
    found = findings(GOOD | world(0, 2 * RANK.format(1)))

    assert "another MPI" in found["MPI there"].advice


def test_without_a_world_there_is_no_agent_to_judge() -> None:
    answer = {k: v for k, v in GOOD.items() if not k.startswith("agent")}

    assert findings(answer)["launch agent"].verdict == "skipped"


@given(
    st.fixed_dictionaries(
        {},
        optional={
            key: st.none() | st.text() | st.integers() | st.lists(st.text())
            for key in GOOD
        },
    )
)
def test_no_answer_whatever_it_holds_breaks_the_doctor(
    answer: dict[str, object],
) -> None:
    for found in look_at_answer(answer, begun_s=0.0, ended_s=1.0):
        assert found.name != "MPI there" or found.verdict != "ok"
