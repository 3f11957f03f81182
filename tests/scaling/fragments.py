"""Made-up fragments, and strategies for them."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import strategies as st

from freetrain.scaling import (
    LearnedScaling,
    MeasuredSpeed,
    ProgressMark,
    Rescale,
    RescaleCost,
    TrainedFragment,
)

_Kept = TypeVar("_Kept", bound=MeasuredSpeed | RescaleCost)

WIDE = st.floats(1e-3, 1e18)


def steady(
    nodes: int, samples_per_s: float, *, began_s: float = 0.0, trained_s: float = 600.0
) -> TrainedFragment:
    """A fragment of one speed from its first step on, marked ten times."""
    first_s = began_s + 10.0
    return TrainedFragment(
        nodes=nodes,
        began_s=began_s,
        first_step_s=first_s,
        last_step_s=first_s + trained_s,
        samples=samples_per_s * trained_s,
        steps=1000,
        marks=tuple(
            ProgressMark(
                first_s + trained_s * k / 10, samples_per_s * trained_s * k / 10
            )
            for k in range(1, 10)
        ),
    )


def at_speeds(
    nodes: int, speeds: list[float], *, every_s: float = 10.0
) -> TrainedFragment:
    """A fragment that goes at each of *speeds* for a while."""
    marks, samples = [], 0.0
    for k, speed in enumerate(speeds, start=1):
        samples += speed * every_s
        marks.append(ProgressMark(100.0 + k * every_s, samples))
    return TrainedFragment(
        nodes=nodes,
        began_s=90.0,
        first_step_s=100.0,
        last_step_s=marks[-1].t_s,
        samples=samples,
        steps=1000,
        marks=tuple(marks[:-1]),
    )


def learned_from(*fragments: TrainedFragment) -> LearnedScaling:
    learned = LearnedScaling()
    for fragment in fragments:
        learned = learned.with_fragment(fragment)
    return learned


@st.composite
def fragments(draw: st.DrawFn) -> TrainedFragment:
    """Any report of a program, clocks that go back and work undone included."""
    times = st.floats(-1e9, 1e10)
    marks = draw(
        st.lists(st.builds(ProgressMark, times, st.floats(-1e18, 1e18)), max_size=6)
    )
    return TrainedFragment(
        nodes=draw(st.integers(1, 80)),
        began_s=draw(times),
        first_step_s=draw(st.none() | times),
        last_step_s=draw(times),
        samples=draw(st.floats(-1e18, 1e18)),
        steps=draw(st.integers(0, 1000)),
        marks=tuple(marks),
        nodes_before=draw(st.integers(0, 80)),
        step_before_s=draw(st.none() | times),
        follows_failure=draw(st.booleans()),
    )


def _ascending(
    kept: st.SearchStrategy[_Kept],
) -> st.SearchStrategy[tuple[_Kept, ...]]:
    return st.lists(
        kept, min_size=1, max_size=7, unique_by=lambda own: own.began_s
    ).map(lambda rows: tuple(sorted(rows, key=lambda own: own.began_s)))


def learned_scalings() -> st.SearchStrategy[LearnedScaling]:
    times = st.floats(0.0, 1e10)
    return st.builds(
        LearnedScaling,
        st.dictionaries(
            st.integers(1, 64),
            _ascending(st.builds(MeasuredSpeed, times, WIDE, st.floats(1e-3, 1e7))),
            max_size=8,
        ),
        st.dictionaries(
            st.sampled_from(Rescale),
            _ascending(st.builds(RescaleCost, times, times)),
        ),
    )
