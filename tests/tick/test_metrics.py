"""The metrics file, read as Prometheus reads it, and what alerts and dashboard ask."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from freetrain.config.site import LeaseMode
from freetrain.state.files import AgentState, Heartbeat, write_heartbeat
from freetrain.state.tables import TickCounter
from freetrain.tick.status_report import TrainerLine, render_metrics
from tests.client.client_states import NOW_S, a_page
from tests.tick.tick_worlds import TickWorld, running, theirs

DOCS = Path(__file__).parents[2] / "docs"
SUMS = dict.fromkeys(TickCounter, 1.0)

needs_sources = pytest.mark.skipif(
    not DOCS.is_dir(), reason="needs the sources, not the wheel"
)


def numbers_in(text: str) -> dict[str, float]:
    """Return the samples of a metrics file, by name and labels."""
    return {
        f"{sample.name}{''.join(sample.labels.values())}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_metric_has_a_help_text_a_type_and_the_unit_of_its_name(
    world: TickWorld,
) -> None:
    running(world)
    families = [*text_string_to_metric_families(world.folder.metrics.read_text())]

    assert len(families) > 20
    for family in families:
        assert family.documentation, family.name
        assert family.type in {"counter", "gauge"}, family.name
        assert family.samples, family.name
        assert family.name.startswith("freetrain_")
    counters = {f.samples[0].name for f in families if f.type == "counter"}
    totals = {f.samples[0].name for f in families if "_total" in f.samples[0].name}
    assert counters == totals


def test_trainers_that_stall_or_diverge_are_counted() -> None:
    line = TrainerLine(name="a", state="wanted", nodes=2)
    report = a_page(
        trainers=(
            line,
            replace(line, name="b", is_stalled=True),
            replace(line, name="c", is_diverging=True),
            replace(line, name="d", is_diverging=True, nodes=0),
        )
    )

    numbers = numbers_in(render_metrics(report, SUMS))

    assert numbers["freetrain_stalled_trainers"] == 1
    assert numbers["freetrain_diverging_trainers"] == 1


def test_the_longest_of_the_waits_of_others_is_told() -> None:
    waits = {"7": NOW_S - 20.0, "8": NOW_S - 200.0}

    numbers = numbers_in(render_metrics(a_page(waits_since_s=waits), SUMS))

    assert numbers["freetrain_jobs_waiting_for_leases"] == 2
    assert numbers["freetrain_longest_wait_for_leases_seconds"] == 200


def test_a_job_waits_from_the_notice_until_the_lease_has_left(
    world: TickWorld,
) -> None:
    world.change("lease", mode=LeaseMode.YIELD, careful=False)
    running(world)
    seen = [numbers_in(world.folder.metrics.read_text())]
    world.slurm.standin.add([theirs(world, run_s=1e3, limit_s=1e3) for _ in range(7)])
    for _ in range(4):  # the lease is cancelled, as it does not leave, and ends
        world.tick()
        seen.append(numbers_in(world.folder.metrics.read_text()))
        world.now_s += 5.0

    jobs = [numbers["freetrain_jobs_waiting_for_leases"] for numbers in seen]
    waits_s = [n["freetrain_longest_wait_for_leases_seconds"] for n in seen]
    assert jobs == [0, 1, 1, 1, 0]
    assert waits_s[1] == 0 < waits_s[2] < waits_s[3] < 60
    assert waits_s[4] == 0
    assert [n["freetrain_leases_given_up_total"] for n in seen] == [0, 1, 1, 1, 1]


def test_a_trainer_stalls_by_its_heads_word_on_its_newest_generation(
    world: TickWorld,
) -> None:
    running(world)
    head = world.newest().members[0].key
    generation = world.generation()
    stalled = {}
    for shown in (generation - 1, generation):
        beat = Heartbeat(
            beat=100 + shown,
            t=0.0,
            node="n1",
            host="h",
            pid=1,
            state=AgentState.TRAINING,
            trainer="a",
            generation=shown,
            is_stalled=True,
        )
        write_heartbeat(world.folder.lease(head).heartbeat, beat)
        (line,) = world.status().trainers
        stalled[shown] = line.is_stalled

    assert stalled == {generation - 1: False, generation: True}


# What is handed to Prometheus and Grafana.


def asked_for() -> dict[str, set[str]]:
    """Return the metrics that each expression of alerts and dashboard names."""
    rules = re.findall(r"expr: (.*)", (DOCS / "alerts.yml").read_text())
    board = json.loads((DOCS / "grafana.json").read_text())
    targets = [target["expr"] for p in board["panels"] for target in p["targets"]]
    return {e: set(re.findall(r"freetrain_\w+", e)) for e in (*rules, *targets)}


@needs_sources
def test_alerts_and_dashboard_ask_for_metrics_that_there_are() -> None:
    text = render_metrics(a_page(planner_gap=0.0), SUMS)
    there = {
        sample.name
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }

    asked = asked_for()

    assert len(asked) > 15
    assert {n for names in asked.values() for n in names} <= there


PROMTOOL = shutil.which("promtool")

ALERTS = {
    "FreeTrainBrokerSilent": "freetrain_last_tick_timestamp_seconds 0",
    "FreeTrainTicksFail": "freetrain_failed_ticks_total 0+1x60",
    "FreeTrainOthersWait": "freetrain_longest_wait_for_leases_seconds 200+0x60",
    "FreeTrainTrainersStalled": "freetrain_stalled_trainers 1+0x60",
    "FreeTrainTrainersDiverge": "freetrain_diverging_trainers 1+0x60",
}
"""Alerts by name, each with a series that must make it fire within half an hour."""

CALM = """
rule_files: [alerts.yml]
tests:
  - interval: 1m
    input_series:
      - {series: freetrain_last_tick_timestamp_seconds, values: "0+60x60"}
      - {series: freetrain_failed_ticks_total, values: "3+0x60"}
      - {series: freetrain_longest_wait_for_leases_seconds, values: "90+0x60"}
      - {series: freetrain_stalled_trainers, values: "0+0x60"}
      - {series: freetrain_diverging_trainers, values: "0+0x60"}
      FAULT
    promql_expr_test:
      - expr: count by (alertname) (ALERTS{alertstate="firing"})
        eval_time: 30m
        exp_samples: [SAMPLES]
"""


def promtool(folder: Path, *words: str) -> None:
    shutil.copy(DOCS / "alerts.yml", folder)
    ran = subprocess.run(  # noqa: S603 - its path was looked up
        [str(PROMTOOL), *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@needs_sources
@pytest.mark.skipif(PROMTOOL is None, reason="needs promtool, of Prometheus")
def test_each_alert_fires_when_it_should_and_none_when_all_is_well(
    tmp_path: Path,
) -> None:
    promtool(tmp_path, "check", "rules", "alerts.yml")
    quiet = CALM.replace("FAULT", "").replace("SAMPLES", "")
    (tmp_path / "none.yml").write_text(quiet)
    promtool(tmp_path, "test", "rules", "none.yml")
    for alert, series in ALERTS.items():
        name, _, values = series.partition(" ")
        calm = [line for line in CALM.splitlines() if f"series: {name}," not in line]
        fault = f'- {{series: {name}, values: "{values}"}}'
        sample = f"{{labels: '{{alertname=\"{alert}\"}}', value: 1}}"
        text = "\n".join(calm).replace("FAULT", fault).replace("SAMPLES", sample)
        (tmp_path / "one.yml").write_text(text)
        promtool(tmp_path, "test", "rules", "one.yml")
