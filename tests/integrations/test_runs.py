"""Runs of one process: what is kept of checkpoints, and which programs are refused."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from freetrain import elastic
from freetrain.elastic.files import RunDir

torch = pytest.importorskip("torch", reason="no PyTorch here (pip install torch)")
integration: Any = pytest.importorskip("freetrain.integrations.torch")

NUMBERS = {"samples": 20, "global_batch": 4, "epochs": 2}
STEPS = 10


@pytest.fixture(autouse=True)
def in_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FREETRAIN_COMMIT_EVERY_S", "0")
    handlers = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGUSR2)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def save(folder: Path) -> None:
    (folder / "weights").write_text("1")


def train(*, break_at: int = STEPS) -> Any:
    with integration.join(**NUMBERS) as run:
        for _ in run.batches(run.sampler()):
            run.end_step(save)
            if run.fragment.position.step == break_at:
                break
    return run


def folders() -> list[str]:
    saved = Path("freetrain-run/saved")
    return sorted(str(path.relative_to(saved)) for path in saved.glob("*/*"))


def test_the_two_checkpoints_that_are_named_are_kept_and_one_more_at_most() -> None:
    train(break_at=4)
    stray = Path("freetrain-run/saved/0000000001/checkpoint-99")
    stray.mkdir()  # as of a kill between a save and its commit

    run = train()

    assert run.finished
    named = [
        f"{c.generation:010d}/checkpoint-{c.step}"
        for c in RunDir(Path("freetrain-run")).committed()
    ]
    assert set(named) <= set(folders())
    assert len(folders()) <= len(named) + 1
    assert not stray.exists()


def test_it_goes_on_with_the_folder_that_the_last_commit_names() -> None:
    train(break_at=4)

    with integration.join(**NUMBERS) as run:
        assert run.checkpoint.name == "checkpoint-4"
        assert (run.checkpoint / "weights").read_text() == "1"
        left = list(run.sampler())
        assert len(left) == 1
        assert run.sampler().state_dict() == {"epoch": 0, "offset": 0}


def test_a_loop_that_ends_no_step_is_told_so() -> None:
    with (
        pytest.raises(elastic.ProgramError, match="no step was ended"),
        integration.join(**NUMBERS) as run,
    ):
        for _ in run.batches(run.sampler()):
            pass


def test_unequal_shares_are_refused_with_the_way_out() -> None:
    integration.check_shares(12, size=3, pieces=2)

    with pytest.raises(elastic.LaunchError, match="`sizes` in \\[nodes\\]"):
        integration.check_shares(8, size=3, pieces=1)


def test_lightning_refuses_another_number_of_pieces() -> None:
    module: Any = pytest.importorskip("freetrain.integrations.lightning")
    with module.ElasticCallback(**NUMBERS, pieces=2) as training:
        next(iter(training.sampler()))
        training.run.end_step(save)

    with (
        pytest.raises(elastic.ChangedTrainingError, match="pieces=2"),
        module.ElasticCallback(**NUMBERS, pieces=1),
    ):
        pass


@pytest.mark.parametrize(
    ("options", "samples", "why"),
    [
        ({"load_best_model_at_end": True}, 20, "load_best_model_at_end"),
        ({"train_sampling_strategy": "group_by_length"}, 20, "train_sampling_strategy"),
        ({}, 21, "take 20, as"),
        ({}, None, "has no length"),
    ],
)
def test_transformers_arguments_that_cannot_be_resumed_are_refused(
    options: dict[str, Any], samples: int | None, why: str
) -> None:
    library: Any = pytest.importorskip("transformers")
    module: Any = pytest.importorskip("freetrain.integrations.transformers")
    if options.get("load_best_model_at_end"):
        options |= {"eval_strategy": "steps", "save_strategy": "steps"}
    arguments = library.TrainingArguments("out", use_cpu=True, report_to=[], **options)
    data = range(samples) if samples else iter(())

    with (
        pytest.raises(elastic.ProgramError, match=why),
        module.ElasticTrainerCallback(arguments, global_batch=4) as training,
    ):
        training.train(type("Trainer", (), {"train_dataset": data, "model": None})())
