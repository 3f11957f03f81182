"""``cancel``, ``pause`` and ``resume``: what they have in common."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from freetrain.cli.exits import EX_USAGE
from freetrain.cli.output import write_out
from freetrain.cli.site import site_of
from freetrain.cli.times import nodes_text
from freetrain.client.change import Changed, Verb, change
from freetrain.client.submit import job_of
from freetrain.state.files import StateDir
from freetrain.state.tables import TrainerState
from freetrain.text import render_duration

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from freetrain.cli.world import World


def change_and_show(
    world: World,
    verb: Verb,
    names: Sequence[str],
    *,
    as_json: bool,
    config: Path | None,
) -> None:
    """Do *verb* to the trainers *names*, and say what will happen when.

    Raises:
        typer.Exit: It makes no sense for one of them; the others were changed.
        FreeTrainError: Nothing was changed, unless the message says so.
    """
    site = site_of(world, config)
    state = StateDir(site.state_directory)
    changed = change(state, verb, names, now_s=world.now_s(), uid=world.uid)
    if as_json:
        write_out(world, json.dumps([_record(one) for one in changed]) + "\n")
    else:
        write_out(world, "".join(f"{_line(one, verb)}\n" for one in changed))
    if not all(one.is_possible or verb is Verb.CANCEL for one in changed):
        raise typer.Exit(EX_USAGE)


def _record(one: Changed) -> dict[str, Any]:
    return {
        "name": one.row.name,
        "before": str(one.before),
        "state": str(one.row.state),
        "stopping_nodes": one.stopping_nodes,
    }


def _line(one: Changed, verb: Verb) -> str:
    name = one.row.name
    if not one.is_possible:
        return f"{name} is {one.before}: there is nothing to {verb}.{_advice(one)}"
    what = _becomes(one, verb)
    if one.stopping_nodes:
        nodes = nodes_text(one.stopping_nodes)
        return f"{what}: it commits and leaves {nodes} now{_at_most(one)}."
    return f"{what}; it runs nowhere." if verb is not Verb.RESUME else f"{what}."


def _at_most(one: Changed) -> str:
    """Return how long that may take, where its job file tells."""
    job = job_of(one.row)
    if job is None:
        return ""
    longest = render_duration(job.stop.kill_after_s)
    return f", within seconds; it is killed after {longest}"


def _becomes(one: Changed, verb: Verb) -> str:
    name, state = one.row.name, one.row.state
    if not one.is_change:
        return f"{name} was {state} before"
    if verb is Verb.RESUME:
        return f"{name} is {state} again; the next tick looks for nodes for it"
    return f"{name} is {state}"


def _advice(one: Changed) -> str:
    if one.before is TrainerState.FINISHED:
        return " To train it further, submit it with more work and --go-on."
    return ""
