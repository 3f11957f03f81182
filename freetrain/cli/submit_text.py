"""What became of a submission, for people and for programs."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from freetrain.client.submit import Begin
from freetrain.state.tables import TrainerState
from freetrain.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.client.submit import HandedIn, Preview


def submitted_record(one: HandedIn, preview: Preview | None) -> dict[str, Any]:
    """Return *one* as ``--json`` shows it, and what would be run for it."""
    submitted = one.submitted
    would_run = None if preview is None else _preview_record(preview)
    return {
        "name": submitted.row.name,
        "began": str(submitted.begin),
        "state": str(submitted.row.state),
        "is_dry_run": one.is_dry_run,
        "run_dir": submitted.row.run_dir,
        "logs": str(one.submission.logs),
        "goes_on_from_step": _step(one),
        "put_away": str(submitted.put_away) if submitted.put_away else None,
        "was_mended": submitted.was_mended,
        "remarks": list(one.remarks),
        "would_run": would_run,
    }


def _preview_record(preview: Preview) -> dict[str, Any]:
    world = preview.world
    files = {} if world is None else {str(f.path): f.content for f in world.files}
    return {
        "sbatch": list(preview.sbatch),
        "script": preview.script,
        "launch": None if world is None else list(world.argv),
        "directory": None if world is None else str(world.directory),
        "files": files,
        "problem": preview.problem,
    }


def submitted_text(one: HandedIn) -> str:
    """Return *one* in a few lines."""
    return "".join(f"{one_line(line)}\n" for line in _lines(one))


def preview_text(preview: Preview) -> str:
    """Return what would be run, so that it can be read; words as a shell takes them."""
    lines = ["", "A lease for it; its time limit and deadline follow the hole:"]
    lines += [f"  {one_line(shlex.join(preview.sbatch))}", "Its script:"]
    lines += [f"  {one_line(line)}" for line in preview.script.splitlines()]
    world = preview.world
    if world is None:
        return "".join(f"{line}\n" for line in [*lines, one_line(preview.problem)])
    lines += ["Its smallest world, on invented nodes:"]
    lines += [f"  cd {one_line(shlex.quote(str(world.directory)))}"]
    lines += [f"  {one_line(shlex.join(world.argv))}"]
    lines += [f"with {one_line(str(file.path))}" for file in world.files]
    return "".join(f"{line}\n" for line in lines)


def _step(one: HandedIn) -> int | None:
    return one.submitted.left.step if one.submitted.begin is Begin.GO_ON else None


def _lines(one: HandedIn) -> Iterator[str]:
    name, begin = one.submitted.row.name, one.submitted.begin
    if begin is Begin.SAME:
        yield from _said_before(one)
        return
    done = "would be submitted" if one.is_dry_run else "submitted"
    yield f"{name}: {done}, {_from_where(one)}."
    yield f"run directory: {one.submitted.row.run_dir}"
    yield f"what it prints: {one.submission.logs}"
    if one.submitted.put_away is not None:
        yield f"the earlier {name} is kept in {one.submitted.put_away}"
    if not one.is_dry_run:
        yield f"The next tick looks for nodes. `freetrain status {name}` follows it."


def _from_where(one: HandedIn) -> str:
    step = _step(one)
    if step is not None:
        return f"to go on from step {step}"
    if one.submitted.begin is Begin.GO_ON:
        return "to begin from the start: nothing is committed there"
    if one.submitted.begin is Begin.ANEW:
        return "to begin anew"
    return "to begin from the start"


def _said_before(one: HandedIn) -> Iterator[str]:
    row = one.submitted.row
    mended = " Its files were missing and were written again."
    nothing = " Nothing was done."
    yield (
        f"{row.name} was submitted before with the same job file; it is {row.state}."
        f"{mended if one.submitted.was_mended else nothing}"
    )
    if row.state is TrainerState.PAUSED:
        yield f"`freetrain resume {row.name}` lets it go on."
    elif row.state is not TrainerState.WANTED:
        yield "Submit with --go-on to go on from its last commit, or with --anew."
