"""From the options of a loop to its settings, and what they do not go with."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from freetrain.cli.options import POLICY_NAMES
from freetrain.cli.request import is_drawn
from freetrain.errors import UsageError
from freetrain.replay.loop_settings import (
    IN_THE_LOOP,
    Mode,
    check_policy,
    usual_settings,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.cli.request import ReplayRequest
    from freetrain.replay.loop_settings import LoopSettings

_OF_PREEMPT = ("--notice", "--commit")
_OF_YIELD = ("--lead", "--last", "--careful", "--careless")


def loop_settings(
    mode: Mode | None,
    given: Mapping[str, float | None],
    *,
    careful: bool | None,
    blind: bool,
) -> LoopSettings | None:
    """Return the settings of the loop; None where none is asked for.

    Args:
        mode: What ``--in-the-loop`` says.
        given: ``--tick``, ``--lead``, ``--last``, ``--notice``, ``--commit`` and
            ``--margin`` by name, None where they are not given.
        careful: What ``--careful`` or ``--careless`` says; None without either.
        blind: Whether ``--blind`` is.

    Raises:
        UsageError: Options of a loop without one, or of the other mode.
    """
    named = [f"--{name}" for name, value in given.items() if value is not None]
    named += [] if careful is None else [_care(careful)]
    named += ["--blind"] * blind
    if mode is None:
        if named:
            fits = Mode.YIELD if named[0] in _OF_YIELD else Mode.PREEMPT
            raise UsageError(
                f"{named[0]} is for replays with --in-the-loop; nothing was replayed. "
                f"Add --in-the-loop {fits.value}, or leave it out."
            )
        return None
    for option in _OF_PREEMPT:
        if mode is Mode.YIELD and option in named:
            raise UsageError(
                f"{option} is for --in-the-loop preempt: under yield jobs wait for the "
                f"next tick. Nothing was replayed. Leave it out."
            )
    for option in _OF_YIELD:
        if mode is Mode.PREEMPT and option in named:
            raise UsageError(
                f"{option} is for --in-the-loop yield: under preempt jobs wait for no "
                f"tick. Nothing was replayed. Leave it out."
            )
    chosen: dict[str, Any] = {
        f"{name}_s": value for name, value in given.items() if value is not None
    }
    usual = usual_settings(mode)
    if careful is not None:
        chosen["is_careful"] = careful
    return replace(usual, knows_plans=not blind, **chosen)


def _care(is_careful: bool) -> str:  # noqa: FBT001 - a word for it
    return "--careful" if is_careful else "--careless"


def loop_words(loop: LoopSettings) -> list[str]:
    """Return the options that ask for *loop*, defaults spelled out."""
    words = ["--in-the-loop", loop.mode.value, "--tick", f"{loop.tick_s:.15g}"]
    if loop.lead_s is not None:
        words += ["--lead", f"{loop.lead_s:.15g}"]
    if loop.last_s is not None:
        words += ["--last", f"{loop.last_s:.15g}"]
    if loop.mode is Mode.PREEMPT:
        words += ["--notice", f"{loop.notice_s:.15g}"]
        words += ["--commit", f"{loop.commit_s:.15g}"]
    if loop.margin_s is not None:
        words += ["--margin", f"{loop.margin_s:.15g}"]
    if loop.mode is Mode.YIELD:
        words += [_care(loop.is_careful)]
    return words if loop.knows_plans else [*words, "--blind"]


def check_loop(request: ReplayRequest) -> None:
    """Refuse what a loop cannot do.

    Args:
        request: What is to be replayed.

    Raises:
        UsageError: Something of it does not go with a loop.
    """
    refused = {
        "--pool: there are no jobs there": request.pool is not None,
        "--schedule recorded: that starts jobs whoever is there. Add --schedule slurm "
        "or easy": request.pool is None and request.schedule == "recorded",
        "--nodes: jobs need the whole machine": request.nodes is not None,
        "--every: it decides at ticks": request.settings.look_every_s is not None,
        "--against": request.against is not None,
        "--topology: nodes of a log of jobs are any": request.topology is not None,
        "quality:N: a load needs a known pool": is_drawn(request.trainers),
    }
    for what, is_asked in refused.items():
        if is_asked:
            raise UsageError(
                f"--in-the-loop does not go with {what}. Nothing was replayed."
            )


def policies_in_the_loop(policies: tuple[str, ...]) -> tuple[str, ...]:
    """Return *policies*; all that can be in the loop where all there are is asked for.

    Raises:
        UsageError: One of them cannot be.
    """
    if policies == POLICY_NAMES:
        return IN_THE_LOOP
    for name in policies:
        check_policy(name)
    return policies
