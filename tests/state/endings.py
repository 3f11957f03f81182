"""Ends of generations, for tests that care about some of what is told of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from freetrain.state.files import Ended, GenerationEnding

_PLAIN = GenerationEnding(
    generation=1,
    ended=Ended.KILLED,
    was_asked=False,
    lost_lease=False,
    exit_code=0,
    step=0,
    committed_step=0,
    message="",
    started_s=0.0,
    ended_s=1.0,
    author="x-0",
)


def an_ending(generation: int, ended: Ended, **changes: Any) -> GenerationEnding:  # noqa: ANN401
    """Return how *generation* ended: of nobody's doing, after a second."""
    return replace(_PLAIN, generation=generation, ended=ended, **changes)
