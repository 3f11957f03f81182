"""When to look again before backfill's cycles."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.broker.cycles import LEAD_S, Cycles, cycles_of
from tests.slurm_library.clusters import statistics
from tests.tick.test_tick_parts import CONFIG

NOW_S = 1_000_000.0


@given(
    due_s=st.integers(-10_000, 600),
    interval_s=st.integers(1, 600),
    rest_s=st.integers(0, 100),
)
def test_a_look_comes_after_its_rest_just_before_a_cycle_and_misses_none(
    due_s: int, interval_s: int, rest_s: int
) -> None:
    cycles = Cycles(NOW_S, NOW_S + due_s, float(interval_s))

    look_s = cycles.next_look_s(rest_s=float(rest_s))

    is_due_s = float(due_s) if due_s > 0 else float(interval_s)
    assert look_s >= rest_s
    assert (look_s + LEAD_S - is_due_s) % interval_s == 0
    assert look_s - interval_s < rest_s


def test_a_cycle_is_due_its_interval_after_the_last_has_ended() -> None:
    told = replace(statistics(last_s=NOW_S - 10), taken_s=NOW_S, bf_last_took_s=4.0)

    cycles = cycles_of(
        told, replace(CONFIG, scheduler_parameters={"bf_interval": "60"})
    )

    assert cycles == Cycles(NOW_S, NOW_S - 10 + 4 + 60, 60.0)


@pytest.mark.parametrize(
    ("changes", "scheduler"),
    [({}, "sched/builtin"), ({"bf_last_cycle_s": None}, "sched/backfill")],
)
def test_without_backfill_or_before_its_first_cycle_none_is_due(
    changes: dict[str, None], scheduler: str
) -> None:
    told = replace(statistics(), **changes)  # type: ignore[arg-type]

    assert cycles_of(told, replace(CONFIG, scheduler_type=scheduler)) is None
