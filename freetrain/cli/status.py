"""``freetrain status``: which trainers run where, how far they are, and why."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from freetrain.agent.observation import LEFT_OUT_S
from freetrain.broker.lease import LeaseState
from freetrain.cli.context import (
    CliContext,
    ago,
    clock_text,
    json_text,
    nodes_text,
    print_out,
    short_age,
    show_anew,
    write_out,
)
from freetrain.client.status import (
    Doing,
    Overview,
    TrainerStatus,
    ending_lines,
    overview,
    reason_of,
    status_record,
)
from freetrain.client.trainers import author_text
from freetrain.pack.pack import MemberEnd, MemberRecord, PackRecord, how_it_failed
from freetrain.state.files import StateDir
from freetrain.state.tables import Delivery, DeliveryStage
from freetrain.text import UNKNOWN, counted, one_line, per_cent, render_duration, scaled

EVERY_S = 2.0


def show_status(  # noqa: PLR0913 - one parameter an option
    context: CliContext,
    config: Path | None,
    name: str | None,
    *,
    watch: bool,
    ended: bool,
    as_json: bool,
) -> None:
    """Show the trainers, or the trainer *name* and its details."""
    state = StateDir(context.site(config).state_directory)

    def look() -> Overview:
        now_s = context.now_s()
        return overview(state, name=name, uid=context.uid, now_s=now_s, ended=ended)

    if as_json:
        write_out(context, json_text(status_record(look())))
    elif watch and context.is_out_terminal:
        show_anew(context, lambda: _screen(look(), name), every_s=EVERY_S)
    else:
        print_out(context, _screen(look(), name))


def _screen(view: Overview, name: str | None) -> RenderableType:
    """Return the table of trainers, and the details of a trainer that was named."""
    lines = [Text(one_line(line), overflow="fold") for line in _lines(view)]
    table: list[RenderableType] = [_table(view), ""] if view.standings else []
    named = view.standings if name is not None else ()
    return Group(*table, *lines, *(_details(trainer, view.now_s) for trainer in named))


_COLOURS = {
    Doing.TRAINING: "green",
    Doing.STARTING: "cyan",
    Doing.RESCALING: "cyan",
    Doing.STOPPING: "yellow",
    Doing.STALLED: "yellow",
    Doing.FAILED: "red",
    Doing.UNREADABLE: "red",
}


_FEW = 100


HEADINGS = ("trainer", "state", "nodes", "step", "samples", "loss", "samples/s", "for")
TO_THE_RIGHT = HEADINGS[2:]


def _table(view: Overview) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    # Only this column may wrap and shrink; long names are often alike.
    table.add_column(HEADINGS[0], overflow="fold", min_width=8)
    for heading in HEADINGS[1:]:
        side: Literal["left", "right"] = "right" if heading in TO_THE_RIGHT else "left"
        table.add_column(heading, justify=side, no_wrap=True)
    for trainer in view.standings:
        table.add_row(*trainer_row(trainer, view))
    return table


def trainer_row(trainer: TrainerStatus, view: Overview) -> tuple[str | Text, ...]:
    """Return the cells of *trainer* below ``HEADINGS``."""
    progress = trainer.progress
    state = Text(trainer.doing, style=_COLOURS.get(trainer.doing, ""))
    speed = trainer.samples_per_s
    return (
        Text(one_line(trainer.row.name)),
        state,
        _nodes(trainer, view),
        UNKNOWN if progress is None or progress.step is None else f"{progress.step:,}",
        UNKNOWN
        if progress is None or progress.samples is None
        else scaled(progress.samples),
        UNKNOWN
        if progress is None or progress.loss is None
        else f"{progress.loss:.4g}",
        UNKNOWN if speed is None else _speed(speed),
        short_age(view.now_s - trainer.since_s),
    )


def _speed(samples_per_s: float) -> str:
    if samples_per_s >= 10 * _FEW:
        return scaled(samples_per_s)
    return f"{samples_per_s:.3g}"


def _nodes(trainer: TrainerStatus, view: Overview) -> str:
    """Return nodes now, and planned ones where they are others."""
    line = view.of_trainer(trainer.row.name)
    if trainer.ended_s is not None or not trainer.is_wanted or line is None:
        return str(trainer.nodes)
    if line.planned_nodes == trainer.nodes:
        return str(trainer.nodes)
    return f"{trainer.nodes} → {line.planned_nodes}"


def _lines(view: Overview) -> Iterator[str]:
    if not view.standings and not view.left_out:
        yield "No trainer was submitted so far: `freetrain submit job.toml`."
    if view.left_out:
        yield f"{view.left_out} that ended earlier are left out; --all shows them."
    for trainer in view.standings:
        for text in reason_lines(trainer, view):
            yield f"{trainer.row.name}: {text}"
    yield from broker_lines(view)


def broker_lines(view: Overview) -> Iterator[str]:
    """Yield the leases, the last tick and what went wrong in it."""
    yield f"Leases: {_leases(view)}. {_tick(view)}"
    yield from () if view.report is None else view.report.problems


def reason_lines(trainer: TrainerStatus, view: Overview) -> Iterator[str]:
    """Yield why *trainer* is as it is, and what is wrong with it."""
    reason = reason_of(trainer, view)
    if reason:
        yield reason
    if trainer.doing is Doing.FAILED:
        yield f"`freetrain logs {trainer.row.name}` shows why."
    yield from aim_lines(trainer, view)
    if trainer.pack is not None:
        yield pack_line(trainer.pack)


def _leases(view: Overview) -> str:
    names = {
        LeaseState.RUNNING: "running",
        LeaseState.PENDING: "waiting",
        LeaseState.ENDING: "ending",
    }
    counts = [f"{view.leases[s]} {name}" for s, name in names.items() if view.leases[s]]
    return ", ".join(counts) or "none"


def _tick(view: Overview) -> str:
    if view.problem:
        return view.problem
    if view.report is None:
        return "No tick so far; `freetrain cron show` tells what would make them."
    text = f"Last tick {ago(view.report.at_s, view.now_s)}."
    if view.is_tick_missing:
        text = f"{text} That is long: does cron call it? `freetrain cron show`."
    if view.report.forecaster:
        text = f"{text} It looks ahead by the forecaster {view.report.forecaster}."
    return text


_LABEL_WIDTH = 15


def _details(trainer: TrainerStatus, now_s: float) -> Text:
    """Return the details of *trainer* that its line in the table lacks.

    Lines are never broken, so that paths can be copied.
    """
    lines = (
        f"{label:<{_LABEL_WIDTH}}{one_line(text)}"
        for label, text in _detail_pairs(trainer, now_s)
    )
    return Text("\n".join(("", *lines)), no_wrap=True, overflow="ignore")


def _detail_pairs(trainer: TrainerStatus, now_s: float) -> Iterator[tuple[str, str]]:
    yield "submitted", _when(trainer.row.submitted_s, now_s)
    if trainer.job is not None:
        nodes = trainer.job.nodes
        most = nodes_text(nodes.max_nodes)
        is_fixed = nodes.min_nodes == nodes.max_nodes
        yield "asks for", most if is_fixed else f"{nodes.min_nodes} to {most}"
    for number, line in enumerate(ending_lines(trainer)):
        yield "" if number else "ended", line
    yield from _generation(trainer, now_s)
    yield from _progress(trainer, now_s)
    yield "run directory", trainer.row.run_dir


def _generation(trainer: TrainerStatus, now_s: float) -> Iterator[tuple[str, str]]:
    newest = trainer.worlds.newest
    ending = trainer.worlds.ending or trainer.worlds.before_ending
    if newest is not None:
        where = ", ".join(member.node for member in newest.members) or "no nodes"
        yield f"generation {newest.generation}", where
        made = _when(newest.created_s, now_s)
        yield "", f"made {made} by {author_text(newest.author)}: {newest.reason}"
    if ending is not None:
        text = f"{ending.words} {_when(ending.ended_s, now_s)}"
        message = f": {ending.message}" if ending.message else ""
        yield f"generation {ending.generation}", f"{text}{message}"


def _progress(trainer: TrainerStatus, now_s: float) -> Iterator[tuple[str, str]]:
    progress = trainer.progress
    if progress is not None and progress.t is not None:
        yield "last report", _when(progress.t, now_s)
    if progress is not None and progress.epoch is not None:
        yield "epoch", f"{progress.epoch:g}"
    if progress is not None:
        others = {k: v for k, v in progress.metrics.items() if k != "loss"}
        if others:
            yield "metrics", ", ".join(f"{k} {v:.4g}" for k, v in others.items())
    if trainer.pack is not None:
        for number, text in enumerate(member_lines(trainer.pack)):
            yield "" if number else "members", text
    if trainer.committed_step is not None:
        yield "committed", f"step {trainer.committed_step:,}"


def _when(time_s: float, now_s: float) -> str:
    return f"{ago(time_s, now_s)} ({clock_text(time_s)})"


def aim_lines(trainer: TrainerStatus, view: Overview) -> Iterator[str]:
    """Yield what is wrong with its sizes and metrics, and the state of its delivery."""
    line = view.of_trainer(trainer.row.name)
    yield from _left_out_lines(trainer)
    for metric, count in {} if line is None else line.bad_metrics.items():
        yield (
            f"{counted(count, 'line')} of its progress had no number for {metric}; "
            f"`freetrain curves --try FILE` shows how its files are read."
        )
    is_unseen = trainer.progress is None and trainer.doing is Doing.TRAINING
    if line is not None and line.unseen and is_unseen:
        yield f"{line.unseen}."
    if line is not None and line.is_diverging:
        yield (
            "it is diverging: its last values are no numbers, or far worse than its "
            "best."
        )
    delivery = view.delivery_of(trainer.row)
    if delivery is not None:
        yield from _delivery(trainer, delivery)


def _left_out_lines(trainer: TrainerStatus) -> Iterator[str]:
    """Yield the sizes that it is not tried on now, why, and what can be done."""
    if not trainer.left_out or trainer.ended_s is not None:
        return
    is_piece = trainer.job is not None and trainer.job.nodes.gpus_per_lease is not None
    for size, message in trainer.left_out.items():
        why = f" ({message.splitlines()[0]})" if message else ""
        yield (
            f"for {render_duration(LEFT_OUT_S)} it is not given "
            f"{counted(size, 'lease' if is_piece else 'node')}, where it failed before "
            f"its first step{why}; it has trained on other sizes."
        )
    name = trainer.row.name
    yield (
        f"list the sizes that it can run on in [nodes] sizes of its job file; "
        f"`freetrain pause {name}` and then `freetrain resume {name}` try all again "
        f"at once."
    )


def _delivery(trainer: TrainerStatus, delivery: Delivery) -> Iterator[str]:
    metric = "" if trainer.job is None else f"{trainer.job.measure.metric} "
    at = f"{metric}{delivery.value:.6g}"
    step = "" if delivery.step is None else f", step {delivery.step:,}"
    if delivery.stage is DeliveryStage.DELIVERED:
        target = None if trainer.job is None else trainer.job.target
        place = target.publish if target is not None and delivery.checkpoint else None
        where = "" if place is None else f", in {place}"
        yield f"delivered at {at}{step}{where}."
    else:
        yield f"its target is reached at {at}{step}; it is being delivered."
    if delivery.problem:
        yield f"{delivery.problem}."


def pack_line(pack: PackRecord) -> str:
    """Return how many of its members are over."""
    lines = pack.members.values()
    if not lines:
        return "no member was started so far"
    failed = [(name, line) for name, line in pack.members.items() if _failed(line)]
    over = f"{sum(line.is_over for line in lines)} of {len(lines)} members are over"
    if not failed:
        return over
    # A member that is tried again may be well in a moment.
    ended = [
        f"; {name} {how_it_failed(line)}"
        for name, line in failed
        if line.again_s is None
    ]
    return f"{over}, {len(failed)} failed{''.join(ended)}"


def member_lines(pack: PackRecord) -> Iterator[str]:
    """Yield the state of each member, in order of arrival."""
    for name, line in pack.members.items():
        yield f"{name}: {_member_text(line, pack.shares.get(name))}"


def _member_text(line: MemberRecord, share: float | None) -> str:
    step = f"step {line.steps:,}"
    if line.message or _failed(line):
        again = "is tried again, " if line.again_s is not None else ""
        return f"{again}{step}, {how_it_failed(line)}"
    if line.end:
        return f"{line.end}, {step}"
    return step if share is None else f"{step}, {per_cent(share)} of the CPUs"


def _failed(line: MemberRecord) -> bool:
    return line.end == MemberEnd.FAILED
