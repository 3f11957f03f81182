"""A generated pool replayed to the byte.

After a change that is meant to change figures, write the file anew with
``python -m tests.replay.test_replay_golden`` and argue the difference.
"""

import json
import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from freetrain.replay.settings import Accounting
from freetrain.replay.trainers import Costs, TrainerSpec
from tests.replay.worlds import linear, replay, trainer

GOLDEN = Path(__file__).with_name("golden_replay.jsonl")
COSTS = Costs(grow_s=18.0, shrink_s=12.0, start_s=18.0, checkpoint_every_s=60.0)
LOOKAHEAD = {"policy": "lookahead"}


def generated_pool(seed: int = 1) -> dict[int, list[tuple[float, float]]]:
    """Return 12 nodes over about an hour, the same ones for ever."""
    # Of all of random, only random() is promised to be the same in every release.
    chance = random.Random(seed).random  # noqa: S311  a pool, not a secret
    pool: dict[int, list[tuple[float, float]]] = {}
    for node in range(12):
        at_s = 0.0
        pool[node] = []
        while at_s < 3_600:
            begins_s = at_s + float(int(300 * chance()))
            at_s = begins_s + float(int(70 + 900 * chance()))
            pool[node].append((begins_s, at_s))
    return pool


def nine(samples: float) -> list[TrainerSpec]:
    """Return trainers of two models, one more every minute."""
    return [
        trainer(
            f"t{k}",
            scaling=linear(10.0 if k % 2 else 7.0, 6),
            samples=samples,
            arrival_s=60.0 * k,
            costs=COSTS,
            weight=1.0 + k % 3,
            deadline_s=2_000.0 + 100.0 * k,
        )
        for k in range(9)
    ]


def replayed() -> str:
    results = [
        replay(
            *(generated_pool(), nine(20_000.0)),
            policy=policy,
            accounting=accounting,
            record_steps=accounting is Accounting.REAL,
        )
        for accounting in Accounting
        for policy in ("freetrain", "equal", "scavenger", "static")
    ]
    return "".join(json.dumps(asdict(result)) + "\n" for result in results)


def test_a_replay_is_the_same_to_the_byte() -> None:
    assert replayed() == GOLDEN.read_text(encoding="utf-8")


# Ratings that change with time and forecasts go through linear algebra, whose last
# digits differ from one machine to another; learned speeds are rounded.
@pytest.mark.parametrize(
    ("choice", "samples", "counts"),
    [
        ({"priority": "weight"}, 194_202.7142857143, (3, 54, 72, 155)),
        ({"priority": "fair"}, 256_442.0, (0, 53, 72, 178)),
        ({"priority": "deadline"}, 228_092.0, (1, 56, 72, 179)),
        ({"learns_speeds": True}, 258_200.0, (4, 69, 72, 180)),
        ({"priority": "speedup", "learns_speeds": True}, 247_295.0, (0, 27, 72, 178)),
        (LOOKAHEAD, 266_425.0, (4, 60, 72, 153)),
        (LOOKAHEAD | {"priority": "fair"}, 258_264.0, (0, 56, 72, 134)),
        (LOOKAHEAD | {"learns_speeds": True}, 260_881.0, (4, 64, 71, 164)),
        (
            LOOKAHEAD | {"record_forecasts": True, "t_fwd_s": 300.0},
            *(259_292.952, (4, 67, 71, 151)),
        ),
    ],
    ids=str,
)
def test_every_way_to_rate_to_learn_and_to_look_ahead_gives_its_figures(
    choice: dict[str, Any], samples: float, counts: tuple[int, int, int, int]
) -> None:
    result = replay(
        generated_pool(), nine(60_000.0), accounting=Accounting.REAL, **choice
    )

    assert result.samples == pytest.approx(samples, rel=1e-9)
    found = result.finished, result.rescales, result.preemptions, result.solver_calls
    assert found == counts


if __name__ == "__main__":
    GOLDEN.write_text(replayed(), encoding="utf-8")
