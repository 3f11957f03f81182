"""A program of ``freetrain.integrations`` in holes: submitted, grown, and shrunk."""

import os
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from freetrain.client.submit import SubmitRequest, submit_file
from freetrain.demo.fake_slurm.cluster import NODES
from freetrain.demo.fake_slurm.processes import at_work, install
from freetrain.demo.live import History, demo_site, read_history
from freetrain.state.files import StateDir
from freetrain.tick.environment import real_environment
from freetrain.tick.tick import tick
from tests.elastic.launching import REPOSITORY, clean_environment
from tests.fakes.others import take_nodes
from tests.integrations.worlds import TOLERANCE, Worlds, samples_in

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None, reason="no PyTorch here (pip install torch)"
)

NAME = "plain"
PATIENCE_S = 240.0
PROGRAM = {"TEST_EPOCHS": "120", "TEST_EVALUATION": "2"}
JOB = f"""
name = "{NAME}"
command = ["{sys.executable}", "-m", "tests.integrations.plain_program"]
environment = {{ VARIABLES }}

[nodes]
max = 2

[launch]
launcher = "torchrun"
executable = "{Path(sys.executable).with_name("torchrun")}"
threads = 1

[checkpoint]
every = "1s"
"""


def now_s() -> float:
    return time.time()  # noqa: TID251 -- the stand-in goes by the machine's clock


def on(seen: History, nodes: set[str]) -> bool:
    """Tell whether the last fragment that trains is on *nodes*."""
    return bool(seen.segments) and set(seen.segments[-1].nodes) == nodes


def test_a_trainer_of_torchrun_grows_shrinks_and_loses_nothing(tmp_path: Path) -> None:
    variables = {
        **PROGRAM,
        "TEST_RECORD": str(tmp_path / "record"),
        "TEST_PIECE_S": "0.05",
        "PYTHONPATH": str(REPOSITORY),
    }
    job = tmp_path / "job.toml"
    pairs = ", ".join(f'{name} = "{value}"' for name, value in variables.items())
    job.write_text(JOB.replace("VARIABLES", pairs))
    site = demo_site(tmp_path / "state")
    (tmp_path / "slurm").mkdir()
    with at_work(install(tmp_path / "slurm", now_s=now_s())) as slurm:
        environ = clean_environment()
        environ["PATH"] = f"{slurm.path}:{environ.get('PATH', '')}"
        one, other, *rest = NODES
        take_nodes(slurm, rest, run_s=3_600.0, now_s=now_s())
        take_nodes(slurm, [other], run_s=40.0, now_s=now_s())
        submit_file(
            SubmitRequest(path=job, named=job.name),
            site,
            environ=environ,
            home=tmp_path,
            uid=os.getuid(),
            now_s=now_s(),
        )
        outside = real_environment(environ)
        trainer = StateDir(site.state_directory).trainer(NAME)

        def wait_for(what: str, is_so: Callable[[History], bool]) -> None:
            end_s = now_s() + PATIENCE_S
            while not is_so(read_history(NAME, trainer)):
                logs = [log.read_text() for log in trainer.logs.glob("*.log")]
                assert now_s() < end_s, f"in vain: {what}\n{''.join(logs)}"
                tick(site, outside)
                time.sleep(1.0)

        wait_for("it to train on one node", lambda seen: seen.steps > 20)
        wait_for("it to grow", lambda seen: on(seen, {one, other}))
        take_nodes(slurm, [other], run_s=3_600.0, now_s=now_s())
        wait_for("its end", lambda seen: seen.is_finished)
        rescaled = read_history(NAME, trainer)

    assert [set(part.nodes) for part in rescaled.segments] == [
        {one},
        {one, other},
        {one},
    ]
    assert rescaled.repeated_steps == 0
    alone = Worlds(tmp_path / "alone", NAME)
    try:
        alone.train(1, **PROGRAM)
        expected = alone.losses()
        told = {step: expected[step] for step in rescaled.losses}
        assert rescaled.losses == pytest.approx(told, rel=TOLERANCE)
        assert samples_in(tmp_path / "record") == alone.samples()
    finally:
        alone.stand.close()
