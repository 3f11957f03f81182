"""``freetrain shadow``: plans each minute, asks for nothing, and scores itself."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from freetrain.cli.context import (
    AsJson,
    CliContext,
    Config,
    age_text,
    clock_text,
    json_text,
    nodes_text,
    write_out,
)
from freetrain.errors import UsageError
from freetrain.text import counted, one_line, per_cent, scaled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.api.shadow_looks import ShadowLook, ShadowScore

EXAMPLES = {
    "shadow": """
freetrain shadow resnet.toml digits.toml

freetrain shadow --score
""",
}


def shadow(
    ctx: typer.Context,
    jobs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="JOB.TOML...",
            readable=False,
            show_default=False,
            help="The trainers to plan for; they are not submitted.",
        ),
    ] = None,
    *,
    score: Annotated[
        bool,
        typer.Option(
            "--score", metavar="", help="Say what became of what was foretold."
        ),
    ] = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Plan as a tick does, submit nothing, and note what was foreseen."""
    # Imported here, so that `freetrain shadow -h` stays quick.
    from freetrain.api.shadow import look_once  # noqa: PLC0415
    from freetrain.api.shadow_looks import score_file, shadow_file  # noqa: PLC0415

    context: CliContext = ctx.obj
    if score:
        if jobs:
            raise UsageError(
                "--score goes without job files. Nothing was planned or scored."
            )
        scored = score_file(shadow_file(context.site(config)))
        record: object = scored
        lines = [*_score_lines(scored)]
    else:
        record = seen = look_once(context, config, jobs or [])
        lines = [_seen_line(seen), *map(one_line, seen.problems)]
    text = "".join(f"{line}\n" for line in lines)
    write_out(context, json_text(record, indent=2) if as_json else text)


def _seen_line(seen: "ShadowLook") -> str:
    """Return what was seen and planned, on one line, as cron logs it."""
    held = Counter(lease.trainer for lease in seen.leases)
    new = sum(lease.start_s == seen.at_s for lease in seen.leases)
    taken = sum(end.why == "taken" for end in seen.ended)
    whose = ", ".join(f"{name} {nodes}" for name, nodes in held.items()) or "none"
    torn = "; plans may be missing, as backfill was at work" if seen.is_torn else ""
    return one_line(
        f"shadow {clock_text(seen.at_s)}: leases there would be: {whose}; "
        f"{new} new, {taken} taken by others; nothing was asked for{torn}."
    )


def _score_lines(found: "ShadowScore") -> "Iterator[str]":
    span_s = found.last_s - found.first_s
    yield (
        f"{counted(found.looks, 'look')} in {age_text(span_s)} from "
        f"{clock_text(found.first_s)} on; {found.torn} torn by backfill, "
        f"{age_text(found.missing_s)} in gaps."
    )
    nodes = nodes_text(found.nodes)
    yield f"Holes: on {found.hole_nodes_mean:.1f} of {nodes} on average."
    foretold, unforetold = found.foretold, found.open
    judged = foretold.stayed + foretold.ended_early
    share = f" ({per_cent(foretold.stayed / judged)})" if judged else ""
    early = ""
    if foretold.early_s is not None:
        early = f", by {age_text(foretold.early_s)} in the median"
    yield (
        f"Holes with a foretold end: {foretold.stayed} of {judged} stayed until "
        f"then{share}; {foretold.ended_early} ended early{early}; "
        f"{foretold.unknown} not known yet."
    )
    lasted = ""
    if unforetold.lasted_s is not None:
        lasted = f" after {age_text(unforetold.lasted_s)} in the median"
    yield (
        f"Holes without one: {unforetold.booked} got one later, {unforetold.ended} "
        f"ended{lasted}; {unforetold.unknown} not known yet."
    )
    yield (
        f"Leases: {found.leases} would have been asked for; {found.taken} preempted or "
        f"given up for others, {found.by_time} ended by their time, {found.by_plan} "
        f"given up by the plan."
    )
    yield (
        "Left out: harm, as no lease holds a job up; measured speeds, losses and the "
        "ends of trainings."
    )
    for name, done in found.training.items():
        samples = "its job file states no speed (scaling)"
        if done.samples is not None:
            samples = f"{scaled(done.samples)} samples by the speed its job file states"
        yield one_line(f"{name}: {done.lease_s / 3_600:.1f} lease-hours; {samples}.")
