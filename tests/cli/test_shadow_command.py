"""``freetrain shadow``: it plans as ticks do, asks for nothing, and scores itself."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from freetrain.api.shadow_looks import append_look, last_look
from freetrain.demo.fake_slurm.cluster import FakeJob
from freetrain.state.database import open_store
from freetrain.state.tables import put_forecast
from tests.cli.commands import at_home, run
from tests.fakes.slurm.installing import FakeSlurm, install

JOB = """\
name = "digits"
command = ["python3", "train.py"]
scaling = { "1" = 100.0, "8" = 800.0 }

[nodes]
max = 6

[costs]
start = "10s"
grow = "5s"
shrink = "5s"
"""
READING = {"sinfo", "squeue", "scontrol", "sdiag"}


@pytest.fixture
def fake(tmp_path: Path) -> FakeSlurm:
    at_home(JOB)
    folder = tmp_path / "fake-slurm"
    folder.mkdir()
    return install(folder)


def shadow(fake: FakeSlurm, *words: str) -> Any:  # noqa: ANN401 - JSON
    environ = fake.environ | {"HOME": str(Path.cwd())}
    shown = run(
        "shadow", *words, "--json", "--config", "freetrain.toml", environ=environ
    )
    assert shown.code == 0, shown.stderr
    return json.loads(shown.stdout)


def theirs(*nodes: str, **changes: Any) -> FakeJob:  # noqa: ANN401 - fields
    fields: dict[str, Any] = {
        "job_id": 0,
        "name": "theirs",
        "user": "bob",
        "partition": "main",
        "limit_s": 3_600,
        "submit_s": 0.0,
        "due_s": 0.0,
        "wanted": [*nodes],
    }
    return FakeJob(**(fields | changes))


def test_it_only_reads(fake: FakeSlurm) -> None:
    shadow(fake, "job.toml")
    fake.standin.add([theirs("n1", "n2", "n3", "n4")])
    shadow(fake, "job.toml")

    script = json.loads((fake.folder / "script.json").read_text())
    assert {call[0] for call in script["calls"]} <= READING
    asked = [call[1:] for call in script["calls"] if call[0] == "scontrol"]
    words = {word for call in asked for word in call if not word.startswith("-")}
    assert asked
    assert words.isdisjoint({"update", "hold", "release", "requeue", "suspend"})
    assert "show" in words or "version" in words
    assert [job.name for job in fake.jobs()] == ["theirs"]
    assert [path.name for path in Path("state").iterdir()] == ["shadow"]


def test_leases_end_where_jobs_come_and_are_planned_anew(fake: FakeSlurm) -> None:
    first = shadow(fake, "job.toml")
    mine = [node for node, *_ in first["leases"]]
    assert len(mine) == 6
    fake.standin.add([theirs(*mine[:2])])

    second = shadow(fake, "job.toml")

    ended = {end[0]: end[-1] for end in second["ended"]}
    assert ended == dict.fromkeys(mine[:2], "taken")
    assert len(second["leases"]) == 6  # two nodes were left for it
    held = {node for node, *_ in second["leases"]}
    assert held.isdisjoint(mine[:2])
    assert held >= set(mine[2:])


def test_a_trainer_that_is_left_out_has_no_leases_any_more(fake: FakeSlurm) -> None:
    shadow(fake, "job.toml")
    Path("other.toml").write_text(JOB.replace("digits", "letters"))

    second = shadow(fake, "other.toml")

    assert {trainer for _, trainer, *_ in second["leases"]} == {"letters"}


def test_without_a_trainer_it_refuses(fake: FakeSlurm) -> None:
    for words in [(), ("job.toml", "job.toml"), ("job.toml", "--score")]:
        shown = run("shadow", *words, environ=fake.environ)
        assert (shown.code, shown.stdout) == (64, ""), shown.stderr
        assert "Nothing was" in shown.stderr
    assert not Path("state").exists()


def test_what_the_plan_could_not_take_into_account_is_said(fake: FakeSlurm) -> None:
    site = Path("freetrain.toml")
    site.write_text(site.read_text() + '\n[planner]\npolicy = "lookahead"\n')
    shadow(fake, "job.toml")
    with open_store(Path("state/shadow"), uid=os.getuid()) as state:
        put_forecast(state, "{")

    environ = fake.environ | {"HOME": str(Path.cwd())}
    shown = run("shadow", "job.toml", "--config", "freetrain.toml", environ=environ)

    assert shown.code == 0, shown.stderr
    seen, problem = shown.stdout.splitlines()
    assert "digits 6" in seen
    assert "the saved forecast of nodes cannot be used" in problem


# The score, by hand.


def line(at_s: float, holes: dict[str, Any], **more: Any) -> str:  # noqa: ANN401
    record = {
        "at_s": at_s,
        "is_torn": False,
        "nodes": 8,
        "holes": [*map(list, holes.items())],
        "leases": [],
        "ended": [],
        "trained": {},
    }
    return json.dumps(record | more) + "\n"


def scored(*lines: str) -> Any:  # noqa: ANN401 - JSON
    at_home(JOB)
    Path("state/shadow").mkdir(mode=0o700, parents=True, exist_ok=True)
    Path("state/shadow/looks.jsonl").write_text("".join(lines))
    shown = run("shadow", "--score", "--json", "--config", "freetrain.toml")
    assert shown.code == 0, shown.stderr
    return json.loads(shown.stdout)


def test_holes_are_held_against_the_ends_that_were_foretold() -> None:
    found = scored(
        line(0, {"n1": 170.0, "n2": 130.0, "n3": "open", "n4": 500.0, "n5": "open"}),
        line(60, {"n1": 170.0, "n3": 90.0, "n4": 500.0, "n5": "open", "n6": None}),
        line(120, {"n4": 700.0, "n5": "open"}),
        line(180, {"n5": "open"}),
    )

    # n1 was gone 50 s early, which is less than a look; n3 stayed once it was booked;
    # n2 was gone 70 s early, n4 320 s.
    assert found["foretold"] == {
        "stayed": 2,
        "ended_early": 2,
        "early_s": 195.0,
        "unknown": 0,
    }
    assert found["open"] == {"booked": 1, "ended": 1, "lasted_s": 0.0, "unknown": 1}
    assert found["hole_nodes_mean"] == pytest.approx((5 + 5 + 2 + 1) / 4)


def test_nothing_is_known_over_a_gap() -> None:
    found = scored(line(0, {"n1": 900.0}), line(600, {}), line(660, {}))

    assert found["missing_s"] == 600.0
    assert found["foretold"]["unknown"] == 1
    assert found["foretold"]["ended_early"] == 0


def test_leases_and_training_are_summed_up() -> None:
    lease = ["n1", "digits", 0.0, 900.0]
    found = scored(
        line(0, {"n1": "open"}, leases=[lease]),
        line(60, {}, trained={"digits": [60.0, 5e3]}, leases=[lease]),
        line(
            120,
            {},
            ended=[[*lease, 120, "taken"]],
            leases=[["n2", "digits", 120, 900]],
            trained={"digits": [0.0, 1e3]},
        ),
    )

    assert (found["leases"], found["taken"], found["by_plan"]) == (2, 1, 0)
    assert found["training"] == {"digits": {"lease_s": 60.0, "samples": 6e3}}
    text = run("shadow", "--score", "--config", "freetrain.toml").stdout
    assert "Left out: harm" in text
    assert "digits: 0.0 lease-hours" in text


def test_a_line_that_was_cut_off_is_passed_over() -> None:
    found = scored(line(0, {"n1": "open"}), line(60, {"n1": "open"}), '{"at_s": 1')
    path = Path("state/shadow/looks.jsonl")
    append_look(path, last_look(path) or pytest.fail("there is one"))
    again = run("shadow", "--score", "--json", "--config", "freetrain.toml")

    assert found["looks"] == 2
    assert json.loads(again.stdout)["looks"] == 3


@pytest.mark.parametrize("text", ["", "hello\n", '{"at_s": 1}\n'])
def test_a_file_of_another_kind_is_refused(text: str) -> None:
    at_home(JOB)
    Path("state/shadow").mkdir(mode=0o700, parents=True)
    Path("state/shadow/looks.jsonl").write_text(text)

    shown = run("shadow", "--score", "--config", "freetrain.toml")

    assert shown.code in {65, 66}
    assert shown.stdout == ""
    assert "othing was" in shown.stderr
