"""When to look again before backfill's cycles."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.broker.yielding import (
    LEAD_S,
    LEAST_LEAD_S,
    Cycles,
    cycles_of,
    last_lead_s,
)
from tests.slurm_library.clusters import statistics
from tests.tick.test_tick_parts import CONFIG

NOW_S = 1_000_000.0


@given(
    due_s=st.integers(-10_000, 600),
    interval_s=st.integers(1, 600),
    rest_s=st.integers(0, 100),
    lead_s=st.sampled_from([LEAD_S, 3.0, LEAST_LEAD_S]),
)
def test_a_look_comes_after_its_rest_just_before_a_cycle_and_misses_none(
    due_s: int, interval_s: int, rest_s: int, lead_s: float
) -> None:
    cycles = Cycles(NOW_S, NOW_S + due_s, float(interval_s))

    look_s = cycles.next_look_s(rest_s=float(rest_s), lead_s=lead_s)

    is_due_s = float(due_s) if due_s > 0 else float(interval_s)
    assert look_s >= rest_s
    assert (look_s + lead_s - is_due_s) % interval_s == 0
    assert look_s - interval_s < rest_s


@pytest.mark.parametrize(
    ("took_s", "lead_s"), [(0.0, 2.0), (0.5, 2.5), (2.9, 4.9), (3.0, None), (8.0, None)]
)
def test_a_last_look_is_as_close_as_looks_are_quick_and_there_is_none_where_slow(
    took_s: float, lead_s: float | None
) -> None:
    assert last_lead_s(took_s) == lead_s


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
