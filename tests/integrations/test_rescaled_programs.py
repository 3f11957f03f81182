"""Programs of real libraries, stopped, killed and rescaled: as if nobody had."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.integrations.worlds import TOLERANCE, Worlds

if find_spec("torch") is None:
    pytest.skip("no PyTorch here (pip install torch)", allow_module_level=True)

STEPS = 24
GLOBAL_BATCH = 8
EVALUATION_BATCHES = 30
PIECES = {"TEST_PIECES": "2"}
LIBRARIES = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            find_spec(library) is None, reason=f"no {library} here"
        ),
    )
    for name, library in (
        ("plain", "torch"),
        ("transformers", "transformers"),
        ("lightning", "lightning"),
        ("accelerate", "accelerate"),
    )
]


@pytest.fixture
def worlds(tmp_path: Path, library: str) -> Iterator[Worlds]:
    made = Worlds(tmp_path / "rescaled", library)
    yield made
    made.stand.close()


@pytest.fixture
def alone(tmp_path: Path, library: str) -> Iterator[Worlds]:
    made = Worlds(tmp_path / "alone", library)
    yield made
    made.stand.close()


@pytest.mark.parametrize("library", LIBRARIES)
def test_stopped_killed_and_rescaled_it_trains_the_same(
    worlds: Worlds, alone: Worlds, library: str
) -> None:
    # In the middle of a step, as gradients are accumulated.
    # So slow that the ranks agree after each piece.
    # Nothing is committed before: the commit itself is in the middle, too.
    late = {"FREETRAIN_COMMIT_EVERY_S": "3600"}
    worlds.train(1, TEST_STOP="piece:6", TEST_PIECE_S="0.06", **late, **PIECES)
    assert worlds.outcome() == "rescaled"
    assert worlds.position() == 5
    # A rank is killed, and with it what was not committed.
    assert worlds.train(2, TEST_KILL="1:13", **PIECES).process.returncode != 0
    assert worlds.position() <= 13
    # In the middle of an evaluation, which ends there.
    worlds.train(2, TEST_STOP="evaluation:16", **PIECES)
    assert worlds.outcome() == "rescaled"
    assert worlds.position() == 16
    assert 2 <= worlds.evaluated(3, 16) < EVALUATION_BATCHES
    worlds.train(1, **PIECES)
    assert worlds.outcome() == "finished"
    assert worlds.recorded(4)[-1] == {"finished": STEPS}

    # Lightning counts pieces; elsewhere their number does not matter.
    alone.train(1, **PIECES if library == "lightning" else {})

    assert alone.outcome() == "finished"
    assert list(alone.losses()) == list(range(1, STEPS + 1))
    assert worlds.losses() == pytest.approx(alone.losses(), rel=TOLERANCE)
    assert worlds.samples() == alone.samples()
    assert all(len(set(used)) == GLOBAL_BATCH for used in alone.samples().values())


@pytest.mark.parametrize("library", LIBRARIES)
def test_random_numbers_go_on_to_the_bit_where_an_evaluation_was_cut_short(
    worlds: Worlds, alone: Worlds
) -> None:
    worlds.train(1, TEST_DROPOUT="0.3", TEST_STOP="evaluation:8")
    assert worlds.position() == 8
    worlds.train(1, TEST_DROPOUT="0.3")

    alone.train(1, TEST_DROPOUT="0.3")

    assert worlds.outcome() == alone.outcome() == "finished"
    assert worlds.losses() == alone.losses()


@pytest.mark.skipif(find_spec("lightning") is None, reason="no lightning here")
@pytest.mark.parametrize("library", ["lightning"])
def test_lightning_s_check_before_the_training_is_left_too(worlds: Worlds) -> None:
    worlds.train(1, TEST_STOP="check:0")

    assert worlds.outcome() == "rescaled"
    assert not worlds.samples()
