"""What losses say of what is to come, as people and programs are shown it."""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from freetrain.client.trainers import job_of
from freetrain.formats import ProgressRecord
from freetrain.progress import Bookmark
from freetrain.scaling import LearnedScaling, MeasuredSpeed, to_state
from freetrain.state.database import open_store, transaction
from freetrain.state.files import StateDir
from freetrain.state.tables import (
    Delivery,
    DeliveryStage,
    HistoryRow,
    put_delivery,
    put_histories,
)
from freetrain.tick.status_report import TrainerLine
from freetrain.tick.trainers import TrainerHistory
from tests.cli.commands import JOB, at_home, refused, run, run_json
from tests.client.client_states import NOW_S, UID, a_page, put_page, rows

TARGET = JOB + "[target]\ndeliver = 0.5\nfinal = 0.2\n"
HALVING = [0.15 + 1.0 / step for step in range(1, 201)]
"""It tends to 0.15, and reaches 0.5 at step 3 and 0.2 at step 20."""


def submitted(job: str = TARGET) -> StateDir:
    state = at_home(job)
    assert run("submit", "job.toml").code == 0
    return state


def told(
    state: StateDir,
    losses: Iterable[float],
    *,
    is_measured: bool = True,
    bad_lines: int = 0,
    nodes: int = 4,
) -> None:
    """Let the last tick have heard of these losses, a hundred samples each."""
    row = rows(state)["digits"]
    job = job_of(row)
    assert job is not None
    past = TrainerHistory()
    records = [
        ProgressRecord(t=NOW_S + k, step=k, samples=100.0 * k, metrics={"loss": loss})
        for k, loss in enumerate(losses, 1)
    ]
    past.add(records, job)
    seen = {nodes: (MeasuredSpeed(NOW_S, 50.0, 60.0),)} if is_measured else {}
    kept = HistoryRow(
        trainer="digits",
        submitted_s=row.submitted_s,
        bookmark=asdict(Bookmark(bad_lines=bad_lines)),
        history=past.to_state(),
        scaling=to_state(LearnedScaling(seen)),
    )
    with open_store(state.path, uid=UID) as store, transaction(store):
        put_histories(store, [kept])


def delivered(state: StateDir, stage: DeliveryStage, **changes: Any) -> None:  # noqa: ANN401
    row = rows(state)["digits"]
    said: dict[str, Any] = {
        "trainer": "digits",
        "submitted_s": row.submitted_s,
        "stage": stage,
        "reached_s": NOW_S,
        "step": 3,
        "value": 0.48,
        "changed_s": NOW_S,
    }
    with open_store(state.path, uid=UID) as store, transaction(store):
        put_delivery(store, Delivery(**(said | changes)))


def seen_by_a_tick(state: StateDir, **changes: Any) -> None:  # noqa: ANN401
    line = TrainerLine(name="digits", state="wanted", **changes)
    put_page(state, a_page(trainers=(line,), priority="slaq"))


def test_a_speed_measured_on_one_node_is_not_of_nodes() -> None:
    told(submitted(), HALVING[:10], nodes=1)

    assert "Samples a second, measured: 50 on 1 node." in run("curves").stdout


def test_values_told_and_expected_and_targets_are_shown() -> None:
    told(submitted(), HALVING[:10])

    shown = run("curves").stdout

    assert "digits: loss, where lower is better" in shown
    assert "deliver at 0.5: reached after 300 samples." in shown
    assert "final at 0.2: expected after " in shown
    assert " of training away." in shown
    assert "Samples a second, measured: 50 on 4 nodes." in shown
    kinds = [line.split()[-1] for line in shown.splitlines() if line.strip()]
    assert kinds.count("measured") == 8
    assert kinds.count("expected") == 4


@pytest.mark.parametrize("losses", [[], HALVING[:10]])
def test_lines_that_nobody_understood_are_told_of(losses: list[float]) -> None:
    state = submitted()
    told(state, losses, bad_lines=1_234)
    left_out = "Left out: 1,234 lines of its progress that could not be understood."

    assert left_out in run("curves").stdout
    assert left_out in run("explain", "digits").stdout
    assert run_json("curves")[0]["bad_lines"] == 1_234

    told(state, losses, bad_lines=1)
    assert "Left out: 1 line of its" in run("curves").stdout
    told(state, losses)
    assert "Left out" not in run("curves").stdout


def test_programs_get_all_of_it() -> None:
    told(submitted(), [*HALVING[:30], math.nan, math.nan, -math.inf])

    (found,) = run_json("curves", "digits")

    subject = {"metric": "loss", "better": "lower", "unit": "samples"}
    assert subject.items() <= found.items()
    assert [p["value"] for p in found["points"][-2:]] == ["nan", "-inf"]
    assert found["points"][0] == {"t_s": NOW_S + 1, "work": 100.0, "value": 1.15}
    assert found["is_diverging"]
    assert found["speeds"] == {"4": 50.0}
    deliver, final = found["aims"]
    assert (deliver["tier"], deliver["work"], deliver["in_s"]) == ("deliver", 300, 0)
    assert (final["tier"], final["work"]) == ("final", 2_000)
    ahead = [one for one in found["forecast"] if one["low"] is not None]
    assert all(one["low"] <= one["value"] <= one["high"] for one in ahead)
    assert ahead[-1]["work"] == pytest.approx(6_000.0)


def test_time_to_a_target_is_the_work_left_at_the_last_speed() -> None:
    told(submitted(), HALVING[:10])

    (found,) = run_json("curves")

    _, final = found["aims"]
    assert final["work"] > 1_500.0
    assert final["in_s"] == pytest.approx((final["work"] - 1_000.0) / 50.0)


def test_the_fit_goes_through_the_measured_values() -> None:
    told(submitted(), HALVING)

    (found,) = run_json("curves")

    fitted = {each["work"]: each["value"] for each in found["forecast"]}
    assert fitted[20_000.0] == pytest.approx(HALVING[-1], abs=0.01)
    assert found["expected"]["value"] == pytest.approx(0.15, abs=0.03)


def test_a_target_that_is_not_expected_is_said_to_be_never() -> None:
    told(submitted(), [1.0, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9])

    (found,) = run_json("curves")

    never = {"work": None, "in_s": None, "is_expected": False}
    assert never.items() <= found["aims"][0].items()
    assert "deliver at 0.5: not expected" in run("curves").stdout


def test_of_a_trainer_that_told_nothing_no_more_is_said_than_that() -> None:
    submitted()

    shown = run("curves", "digits").stdout
    assert shown.endswith("No value was read by a tick so far.\n")
    explained = run("explain", "digits").stdout
    assert "No loss was read by a tick so far. [quality] metric" in explained


def test_the_page_is_whole_and_needs_no_network() -> None:
    told(submitted(), HALVING)

    ran = run("curves", "--out", "curves.html")
    again = run("curves", "--out", "curves.html")

    page = Path("curves.html").read_text()
    assert (ran.code, again.code) == (0, 0), "the same again is no mistake"
    assert "Drawn in curves.html." in ran.stdout
    assert "default-src 'none'" in page
    assert "Plotly.newPlot" in page
    assert page.count("<td>reached</td>") == 2


def test_a_page_that_differs_is_not_replaced_unasked() -> None:
    told(submitted(), HALVING)
    Path("curves.html").write_text("mine")

    said = refused("curves", "--out", "curves.html", code=73)

    assert "--force" in said
    assert run("curves", "--out", "curves.html", "--force").code == 0


def test_what_another_release_kept_is_shown_as_nothing() -> None:
    state = submitted()
    row = rows(state)["digits"]
    with open_store(state.path, uid=UID) as store, transaction(store):
        put_histories(store, [HistoryRow("digits", row.submitted_s, {}, {"x": 1}, {})])

    assert "No value was read by a tick so far" in run("curves").stdout


def test_explain_says_what_was_learned_and_who_rated_it_why() -> None:
    state = submitted()
    told(state, HALVING)
    seen_by_a_tick(state, rating="power law expects +0.1", is_background=True)

    shown = run("explain", "digits").stdout

    assert "Rated by slaq: power law expects +0.1. It gets only what the" in shown
    assert "Forecast of loss: shifted power law, fitted to " in shown
    assert "The range promises no share" in " ".join(shown.split())
    assert "Samples a second, measured: 50 on 4 nodes." in shown
    found = run_json("explain", "digits")
    assert found["priority"] == "slaq"
    (one,) = found["trainers"]
    assert one["tick"]["rating"] == "power law expects +0.1"
    assert one["learned"]["family"] == "shifted power law"
    assert one["learned"]["siblings"] == 0
    assert "points" not in one["learned"]


def test_a_diverging_trainer_is_flagged() -> None:
    state = submitted()
    seen_by_a_tick(state, is_diverging=True)

    assert "digits: it is diverging" in run("status").stdout
    assert "It is diverging" in run("explain", "digits").stdout
    (one,) = run_json("status")["trainers"]
    assert one["is_diverging"]


def test_metrics_that_could_not_be_read_are_counted() -> None:
    state = submitted()
    seen_by_a_tick(state, bad_metrics={"loss": 1_234, "acc": 1})

    said = run("status").stdout
    assert "digits: 1,234 lines of its progress had no number for loss;" in said
    assert "1 line of its progress had no number for acc;" in said
    assert "1,234 lines of its progress" in run("explain", "digits").stdout
    (one,) = run_json("status")["trainers"]
    assert one["bad_metrics"] == {"loss": 1_234, "acc": 1}


@pytest.mark.parametrize(
    ("stage", "changes", "said"),
    [
        (
            DeliveryStage.REACHED,
            {"problem": "no checkpoint has the step yet"},
            "its target is reached at loss 0.48, step 3; it is being delivered.",
        ),
        (
            DeliveryStage.DELIVERED,
            {"checkpoint": "x.npz", "problem": "the hook ended with exit code 1"},
            "delivered at loss 0.48, step 3, in {home}/good.npz.",
        ),
        (DeliveryStage.DELIVERED, {}, "delivered at loss 0.48, step 3."),
    ],
)
def test_status_tells_how_far_a_delivery_is(
    tmp_path: Path, stage: DeliveryStage, changes: dict[str, Any], said: str
) -> None:
    state = submitted(TARGET + 'publish = "good.npz"\n')
    delivered(state, stage, **changes)

    # A long path is broken in the middle where the line ends.
    shown = "".join(run("status").stdout.split())

    assert said.format(home=tmp_path).replace(" ", "") in shown
    assert changes.get("problem", "").replace(" ", "") in shown
    (one,) = run_json("status")["trainers"]
    assert one["delivery"]["stage"] == str(stage)
    assert one["delivery"]["problem"] == changes.get("problem")


def test_before_its_target_nothing_is_delivered() -> None:
    submitted()

    (one,) = run_json("status")["trainers"]

    assert one["delivery"] is None
    assert not one["is_diverging"]
    assert json.dumps(one)


# What is understood of files

RECORDED = Path(__file__).parents[1] / "data" / "progress"
LEGACY = """
name = "legacy"
command = "true"
elastic = false
[nodes]
max = 1
[progress]
format = "csv"
file = "logs/*.csv"
fields = { step = "step", loss = "train", t = "ms", acc = "acc" }
"""


def legacy(*rows: str) -> None:
    at_home(LEGACY)
    Path("logs").mkdir()
    Path("logs/1.csv").write_text("".join(f"{row}\n" for row in rows))


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (
            "torch/events.out.tfevents.1767225600.n1",
            (
                "as tensorboard: 4 records",
                "loss: 3 values, 1 to 0.333333",
                "in s, 2026",
            ),
        ),
        (
            "huggingface/checkpoint-16/trainer_state.json",
            ("as huggingface: 10 records", "eval_loss: 2 values", "time: none"),
        ),
        (
            "lightning/lightning_logs/version_0/metrics.csv",
            (
                "as lightning: 8 records",
                "step: 8 values, 2 to 19",
                "val_loss: 2 values",
            ),
        ),
        ("keras/log.csv", ("as keras: 3 records", "epoch: 3 values, 1 to 3")),
    ],
)
def test_trying_a_librarys_file_shows_what_is_understood(
    file: str, said: tuple[str, ...]
) -> None:
    at_home(JOB)

    shown = run("curves", "--try", str(RECORDED / file)).stdout

    assert f"from {RECORDED / file}" in shown
    for text in said:
        assert text in shown


def test_trying_a_job_file_shows_units_and_what_could_not_be_read() -> None:
    legacy(
        "step,train,ms,acc",
        "1,0.5,1767225600000,0.25abc",
        "2,\x1b[32m0.25\x1b[0m,1767225660000,n/a",
        "many,0.1,0,0",
    )

    shown = run("curves", "--try", "job.toml").stdout
    found = run_json("curves", "--try", "job.toml")

    assert "step: 2 values, 1 to 2" in shown
    assert "loss: 2 values, 0.5 to 0.25" in shown
    assert "time: in ms, 2026-01-01 00:00:00Z to 2026-01-01 00:01:00Z" in shown
    assert "left out: 1 line not understood" in shown
    assert "acc: no number in 2 lines" in shown
    assert found["values"]["loss"] == {"points": 2, "first": 0.5, "last": 0.25}
    assert (found["t_unit"], found["bad_lines"]) == ("ms", 1)
    assert found["bad_metrics"] == {"acc": 2}


def test_a_dry_run_shows_what_is_understood_so_far() -> None:
    at_home(LEGACY)
    assert "nothing is written in" in run("submit", "job.toml", "--dry-run").stdout
    legacy("step,train,ms,acc", "1,nan,1,1")

    assert "loss: 1 value, nan to nan" in run("submit", "job.toml", "--dry-run").stdout
    found = run_json("submit", "job.toml", "--dry-run")["progress"]
    assert found["values"]["loss"]["last"] == "nan"
    assert found["records"] == 1


def test_a_metric_that_is_not_in_the_files_is_named() -> None:
    at_home(LEGACY.replace("fields = {", "fields = { other = 'x',"))
    Path("logs").mkdir()
    Path("logs/1.csv").write_text("step,train,ms,acc,x\n1,,,,2\n")

    said = run("curves", "--try", "job.toml").stdout

    assert "the metric loss is not among them; name one" in said


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        (None, 66, "missing, empty, or no plain file"),
        (b"hello\n", 65, "none of the formats that are known"),
        (b"\x00\xff" * 500, 65, "none of the formats that are known"),
        (b'{"loss": 1}\n', 65, "none of the formats that are known"),
    ],
)
def test_a_file_of_which_nothing_is_understood_is_said_to_be_none(
    content: bytes | None, code: int, said: str
) -> None:
    at_home(JOB)
    if content is not None:
        Path("log").write_bytes(content)

    assert said in refused("curves", "--try", "log", code=code)


def test_a_table_without_rows_is_shown_and_nothing_is_understood_of_it() -> None:
    at_home(JOB)
    Path("log").write_bytes(b"step,loss\nmany,1\n")

    ran = run("curves", "--try", "log")

    assert ran.code == 65
    assert "read as csv: 0 records" in ran.stdout
    assert "left out: 1 line not understood" in ran.stdout
    assert "no progress was understood" in ran.stderr


def test_a_file_is_tried_without_a_trainer() -> None:
    at_home(JOB)

    said = refused("curves", "digits", "--try", "job.toml", code=64)

    assert "neither a trainer nor --out" in said
