"""What became of a submission, for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from freetrain.desk.submission import Begin
from freetrain.store.trainers import TrainerState
from freetrain.toml.wording import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.desk.hand_in import HandedIn


def submitted_record(one: HandedIn) -> dict[str, Any]:
    """Return *one* as ``--json`` shows it."""
    submitted = one.submitted
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
    }


def submitted_text(one: HandedIn) -> str:
    """Return *one* in a few lines."""
    return "".join(f"{one_line(line)}\n" for line in _lines(one))


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
