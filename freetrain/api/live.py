"""The live cluster from Python: its holes, one's trainers, and new ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.api.context import UserContext

if TYPE_CHECKING:
    import pandas as pd

    from freetrain.client.submit import SubmissionOutcome


def holes(
    *,
    partition: str = "",
    job: str | Path | None = None,
    config: str | Path | None = None,
) -> pd.DataFrame:
    """Return what Slurm leaves idle now: a row for each hole, as `freetrain holes`.

    Args:
        partition: Another partition than leases are submitted to.
        job: Holes for the trainer of this job file only.
        config: The site's freetrain.toml; None for the first one found.

    Returns:
        ``node``, ``start_s`` and ``end_s`` (Unix time; inf where the end is open, nan
        where it is not known), ``ends_by``, ``blocker``, ``held_by``, ``room``.
        ``attrs`` has ``now_s``, ``partition``, ``margin_s``, ``nodes`` and ``is_torn``.

    Raises:
        FreeTrainError, SlurmError: Nothing is known; the message says why.
    """
    import pandas as pd  # noqa: PLC0415 - commands do without

    from freetrain.api.holes import hole_record, holes_now  # noqa: PLC0415 - Slurm

    found = holes_now(
        UserContext.of_process(),
        None if config is None else Path(config),
        partition=partition,
        job=None if job is None else Path(job),
    )
    records = [hole_record(hole) | {"end_s": hole.end_s} for hole in found.holes]
    kinds = {"node": "str", "start_s": "float64", "end_s": "float64"}
    kinds |= {"ends_by": "category", "blocker": "str", "held_by": "object"}
    kinds |= {"room": "int64"}
    frame = pd.DataFrame(records, columns=list(kinds)).astype(kinds)
    names = ("now_s", "partition", "margin_s", "nodes", "is_torn")
    frame.attrs = {name: getattr(found, name) for name in names}
    return frame


def status(
    name: str | None = None,
    *,
    all: bool = False,  # noqa: A002 - the option's name
    config: str | Path | None = None,
) -> pd.DataFrame:
    """Return the trainers, as `freetrain status --json` has them; Slurm is not asked.

    Args:
        name: Only this trainer.
        all: Those that ended long ago too.
        config: The site's freetrain.toml; None for the first one found.

    Returns:
        A row a trainer. ``attrs`` has what is not of one trainer: ``now_s``,
        ``last_tick_s``, ``is_tick_missing``, ``leases`` by state, ``problems``.

    Raises:
        FreeTrainError: Nothing is known; the message says why.
    """
    import pandas as pd  # noqa: PLC0415 - commands do without

    from freetrain.client.status import (  # noqa: PLC0415 - the state's database
        overview,
        status_record,
    )
    from freetrain.state.files import StateDir  # noqa: PLC0415

    context = UserContext.of_process()
    site = context.site(None if config is None else Path(config))
    found = status_record(
        overview(
            StateDir(site.state_directory),
            name=name,
            uid=context.uid,
            now_s=context.now_s(),
            ended=all,
        )
    )
    frame = pd.DataFrame(found.pop("trainers"))
    frame.attrs = found
    return frame


def submit(  # noqa: PLR0913 - the options of `freetrain submit`
    job: str | Path,
    *,
    go_on: bool = False,
    anew: bool = False,
    unchecked: bool = False,
    dry_run: bool = False,
    config: str | Path | None = None,
) -> SubmissionOutcome:
    """Submit a trainer, as `freetrain submit` does.

    Args:
        job: Its job file.
        go_on: Go on from an earlier training's checkpoints.
        anew: Begin from the start under a name that was used.
        unchecked: Do not check that directory and program are here.
        dry_run: Only find out what would become of it; nothing is kept.
        config: The site's freetrain.toml; None for the first one found.

    Returns:
        How it begins: ``begin``, ``row`` (its ``name``, ``state`` and ``run_dir``) and
        ``remarks``, possible mistakes.

    Raises:
        FreeTrainError: Nothing was submitted; the message says why.
        OSError: A file could not be written. Nothing was submitted.
    """
    from freetrain.client.submit import (  # noqa: PLC0415 - the state's database
        SubmitRequest,
        submit_file,
    )

    context = UserContext.of_process()
    request = SubmitRequest(
        path=context.folder / job,
        named=str(job),
        go_on=go_on,
        anew=anew,
        is_checked=not unchecked,
        is_dry_run=dry_run,
    )
    return submit_file(
        request,
        context.site(None if config is None else Path(config)),
        environ=context.environ,
        home=context.home,
        uid=context.uid,
        now_s=context.now_s(),
    )
