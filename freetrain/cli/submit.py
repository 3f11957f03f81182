"""``freetrain submit``, ``cancel``, ``pause`` and ``resume``."""

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from freetrain.cli.context import (
    EX_USAGE,
    CliContext,
    clock_text,
    json_text,
    nodes_text,
    write_out,
)
from freetrain.client.submit import (
    Begin,
    Preview,
    SubmissionOutcome,
    SubmitRequest,
    preview_of,
    submit_file,
)
from freetrain.client.trainers import Changed, Verb, change, job_of
from freetrain.config.job import TrainerJob
from freetrain.config.site import Site
from freetrain.progress import ProgressSurvey, survey_of
from freetrain.state.files import StateDir
from freetrain.state.tables import TrainerState
from freetrain.text import counted, one_line, render_duration
from freetrain.tick.environment import real_environment


def submit_and_show(
    context: CliContext, config: Path | None, request: SubmitRequest, *, as_json: bool
) -> None:
    """Submit a trainer, or only look at it, and show what became of it."""
    site = context.site(config)
    result = _submitted(context, site, request)
    preview = survey = None
    if request.is_dry_run:
        outside = real_environment(context.environ)
        submission = result.submission
        preview = preview_of(submission, site, outside)
        if submission.job.progress is not None:
            survey = survey_of(submission.job, submission.run_dir, submission.logs)
    if as_json:
        write_out(
            context,
            json_text(
                _submitted_record(result, preview, is_dry_run=request.is_dry_run)
                | ({} if survey is None else {"progress": survey_record(survey)}),
                allow_nan=False,
            ),
        )
    else:
        lines = [
            f"{one_line(line)}\n"
            for line in _submitted_lines(result, is_dry_run=request.is_dry_run)
        ]
        write_out(context, "".join(lines))
        job = result.submission.job
        write_out(context, "" if preview is None else _preview_text(preview, job))
        if survey is not None:
            write_out(context, survey_text(survey, result.submission.job))
        for remark in result.remarks:
            context.stderr.write(f"note: {remark}\n")


def check_submission(
    context: CliContext, config: Path | None, request: SubmitRequest
) -> None:
    """Refuse what ``submit_and_show`` would refuse; change and show nothing.

    Raises:
        FreeTrainError: It would; the message says why.
    """
    _submitted(context, context.site(config), replace(request, is_dry_run=True))


def _submitted(
    context: CliContext, site: Site, request: SubmitRequest
) -> SubmissionOutcome:
    return submit_file(
        request,
        site,
        environ=context.environ,
        home=context.home,
        uid=context.uid,
        now_s=context.now_s(),
    )


def _submitted_record(
    result: SubmissionOutcome, preview: Preview | None, *, is_dry_run: bool
) -> dict[str, Any]:
    """Return the record of ``--json``, with the commands that a dry run shows."""
    would_run = None if preview is None else _preview_record(preview)
    return {
        "name": result.row.name,
        "began": str(result.begin),
        "state": str(result.row.state),
        "is_dry_run": is_dry_run,
        "run_dir": result.row.run_dir,
        "logs": str(result.submission.logs),
        "goes_on_from_step": _start_step(result),
        "put_away": str(result.put_away) if result.put_away else None,
        "was_mended": result.was_mended,
        "remarks": list(result.remarks),
        "would_run": would_run,
    }


def survey_text(survey: ProgressSurvey, job: TrainerJob) -> str:
    """Return what is understood of the files in which *job* reports its progress."""
    first, *others = map(one_line, _survey_lines(survey, job))
    return "".join([f"{first}\n", *(f"  {line}\n" for line in others)])


def _survey_lines(survey: ProgressSurvey, job: TrainerJob) -> Iterator[str]:
    if not survey.files:
        where = "" if job.progress is None else f" {job.progress.files or ''}".rstrip()
        yield f"Its progress: nothing is written{where and f' in{where}'} so far."
        return
    form = "freetrain.elastic" if job.progress is None else job.progress.form
    yield f"Its progress, read as {form}: {counted(survey.records, 'record')}."
    for file in survey.files:
        yield f"from {file}"
    for name, found in survey.values.items():
        if name != "t":
            many = counted(found.points, "value")
            yield f"{name}: {many}, {found.first:.6g} to {found.last:.6g}"
    time = survey.values.get("t")
    if time is None:
        yield "time: none; a tick takes the time at which it reads a record"
    else:
        first, last = clock_text(time.first), clock_text(time.last)
        yield f"time: in {survey.t_unit}, {first} to {last}"
    if survey.bad_lines:
        yield f"left out: {counted(survey.bad_lines, 'line')} not understood"
    for name, count in survey.bad_metrics.items():
        yield f"{name}: no number in {counted(count, 'line')}"
    if survey.problem:
        yield f"{survey.problem}"
    if survey.records and job.measure.metric not in survey.values:
        yield (
            f"the metric {job.measure.metric} is not among them; name one of them in "
            f"[quality], or its column in fields"
        )


def survey_record(survey: ProgressSurvey) -> dict[str, Any]:
    """Return what is understood as ``--json`` has it; no numbers are words."""
    return {
        "files": [str(file) for file in survey.files],
        "records": survey.records,
        "values": {
            name: {
                "points": found.points,
                "first": number_or_word(found.first),
                "last": number_or_word(found.last),
            }
            for name, found in survey.values.items()
        },
        "t_unit": survey.t_unit or None,
        "bad_lines": survey.bad_lines,
        "bad_metrics": dict(survey.bad_metrics),
        "problem": survey.problem or None,
    }


def number_or_word(value: float) -> float | str:
    """Return *value* for JSON; a word such as "nan" where it is not finite."""
    return value if math.isfinite(value) else str(value)


def _preview_record(preview: Preview) -> dict[str, Any]:
    world = preview.world
    files = {} if world is None else {str(f.path): f.content for f in world.files}
    return {
        "sbatch": list(preview.sbatch),
        "script": preview.script,
        "launch": None if world is None else list(world.argv),
        "directory": None if world is None else str(world.directory),
        "environment": _devices_and_network(preview),
        "files": files,
        "problem": preview.problem,
    }


_SHOWN = ("CUDA_", "GLOO_", "NCCL_", "OMP_")


def _devices_and_network(preview: Preview) -> dict[str, str]:
    """Return the world's variables that choose devices, threads and network."""
    found = {} if preview.world is None else preview.world.environment
    return {name: found[name] for name in sorted(found) if name.startswith(_SHOWN)}


def _preview_text(preview: Preview, job: TrainerJob) -> str:
    """Return the commands and files of a dry run; words quoted for a shell."""
    sizes = "time limit and deadline follow the hole"
    if job.nodes.gpus_per_lease is not None:
        sizes += ", CPUs and memory not named here the part of a node that its GPUs are"
    lines = ["", f"A lease for it; its {sizes}:"]
    lines += [f"  {one_line(shlex.join(preview.sbatch))}", "Its script:"]
    lines += [f"  {one_line(line)}" for line in preview.script.splitlines()]
    world = preview.world
    if world is None:
        return "".join(f"{line}\n" for line in [*lines, one_line(preview.problem)])
    lines += ["Its smallest world, on invented nodes:"]
    lines += [f"  cd {one_line(shlex.quote(str(world.directory)))}"]
    lines += [f"  {one_line(shlex.join(world.argv))}"]
    if world.in_lease:
        lines += ["and in each lease:", f"  {one_line(shlex.join(world.in_lease))}"]
    lines += [f"with {one_line(str(file.path))}" for file in world.files]
    for name, value in _devices_and_network(preview).items():
        lines.append(f"with {one_line(f'{name}={value}')}")
    return "".join(f"{line}\n" for line in lines)


def _start_step(result: SubmissionOutcome) -> int | None:
    return result.left.step if result.begin is Begin.GO_ON else None


def _submitted_lines(result: SubmissionOutcome, *, is_dry_run: bool) -> Iterator[str]:
    name, begin = result.row.name, result.begin
    if begin is Begin.SAME:
        yield from _known_lines(result)
        return
    done = "would be submitted" if is_dry_run else "submitted"
    yield f"{name}: {done}, {_begin_text(result)}."
    yield f"run directory: {result.row.run_dir}"
    yield f"what it prints: {result.submission.logs}"
    if result.put_away is not None:
        yield f"the earlier {name} is kept in {result.put_away}"
    if not is_dry_run:
        yield f"The next tick looks for nodes. `freetrain status {name}` follows it."


def _begin_text(result: SubmissionOutcome) -> str:
    step = _start_step(result)
    if step is not None:
        return f"to go on from step {step}"
    if result.begin is Begin.GO_ON:
        return "to begin from the start: nothing is committed there"
    if result.begin is Begin.ANEW:
        return "to begin anew"
    return "to begin from the start"


def _known_lines(result: SubmissionOutcome) -> Iterator[str]:
    row = result.row
    mended = " Its files were missing and were written again."
    nothing = " Nothing was done."
    yield (
        f"{row.name} was submitted before with the same job file; it is {row.state}."
        f"{mended if result.was_mended else nothing}"
    )
    if row.state is TrainerState.PAUSED:
        yield f"`freetrain resume {row.name}` lets it go on."
    elif row.state is not TrainerState.WANTED:
        yield "Submit with --go-on to go on from its last commit, or with --anew."


def change_and_show(
    context: CliContext,
    config: Path | None,
    verb: Verb,
    names: Sequence[str],
    *,
    as_json: bool,
) -> None:
    """Change the trainers *names*, and show the outcome.

    Raises:
        typer.Exit: One of them is in no state for it; the others were changed.
        FreeTrainError: Nothing was changed, unless the message says so.
    """
    site = context.site(config)
    state = StateDir(site.state_directory)
    changes = change(state, verb, names, now_s=context.now_s(), uid=context.uid)
    if as_json:
        write_out(context, json_text([_changed_record(each) for each in changes]))
    else:
        lines = [f"{changed_text(each, verb)}\n" for each in changes]
        write_out(context, "".join(lines))
    if not all(each.is_possible or verb is Verb.CANCEL for each in changes):
        raise typer.Exit(EX_USAGE)


def _changed_record(changed: Changed) -> dict[str, Any]:
    return {
        "name": changed.row.name,
        "before": str(changed.before),
        "state": str(changed.row.state),
        "stopping_nodes": changed.stopping_nodes,
    }


def changed_text(changed: Changed, verb: Verb) -> str:
    """Return what *verb* did to a trainer, as a sentence or two."""
    name = changed.row.name
    if not changed.is_possible:
        return (
            f"{name} is {changed.before}: there is nothing to {verb}.{_advice(changed)}"
        )
    outcome = _new_state(changed, verb)
    if changed.stopping_nodes:
        nodes = nodes_text(changed.stopping_nodes)
        return f"{outcome}: it commits and leaves {nodes} now{_commit_limit(changed)}."
    return f"{outcome}; it runs nowhere." if verb is not Verb.RESUME else f"{outcome}."


def _commit_limit(changed: Changed) -> str:
    """Return how long the commit may take at most, if the job file is readable."""
    job = job_of(changed.row)
    if job is None:
        return ""
    longest = render_duration(job.stop.kill_after_s)
    return f", within seconds; it is killed after {longest}"


def _new_state(changed: Changed, verb: Verb) -> str:
    name, state = changed.row.name, changed.row.state
    if not changed.is_change:
        return f"{name} was {state} before"
    if verb is Verb.RESUME:
        return f"{name} is {state} again; the next tick looks for nodes for it"
    return f"{name} is {state}"


def _advice(changed: Changed) -> str:
    if changed.before is TrainerState.FINISHED:
        return " To train it further, submit it with more work and --go-on."
    return ""
