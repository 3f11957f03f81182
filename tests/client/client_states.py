"""State directories with trainers, generations and leases, for tests of commands."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from freetrain.broker.lease import Intent, Lease, LeaseKey, LeaseState
from freetrain.client.submit import Submission, SubmissionOutcome, submit
from freetrain.config.job import NodeSettings, TrainerJob
from freetrain.launch.base import logs_of, run_dir_of
from freetrain.state.database import open_store, transaction
from freetrain.state.files import (
    BROKER,
    AgentState,
    AssignedLease,
    AssignmentFile,
    EndingKind,
    Heartbeat,
    StateDir,
    create_assigned,
    create_ending,
    write_heartbeat,
)
from freetrain.state.tables import (
    TrainerRow,
    TrainerState,
    put_intents,
    put_leases,
    put_trainers,
    trainers,
)
from freetrain.tick.status_report import StatusReport, render_report
from tests.state.endings import an_ending

NOW_S = 1_900_000_000.0
UID = os.getuid()


def a_job(folder: Path, **changes: Any) -> TrainerJob:  # noqa: ANN401 - its fields
    said: dict[str, Any] = {
        "name": "digits",
        "command": ("python3", "train.py"),
        "directory": folder,
        "nodes": NodeSettings(max_nodes=8),
    }
    return TrainerJob(**(said | changes))


def a_submission(state: StateDir, job: TrainerJob, **changes: Any) -> Submission:  # noqa: ANN401
    folder = state.trainer(job.name)
    given = Submission(
        job=job,
        environment={"PATH": os.defpath},
        run_dir=run_dir_of(job, folder).path,
        logs=logs_of(job, folder),
        now_s=NOW_S,
    )
    return replace(given, **changes)


def submitted(state: StateDir, job: TrainerJob, **changes: Any) -> SubmissionOutcome:  # noqa: ANN401
    return submit(state, a_submission(state, job, **changes), uid=UID)


def rows(state: StateDir) -> dict[str, TrainerRow]:
    with open_store(state.path, uid=UID) as connection:
        return {row.name: row for row in trainers(connection)}


def put_state(state: StateDir, name: str, value: TrainerState) -> None:
    """Let the trainer *name* be in another state, as a tick would."""
    row = replace(rows(state)[name], state=value)
    with open_store(state.path, uid=UID) as connection:
        put_trainers(connection, [row])


def assignment(
    trainer: str,
    generation: int,
    nodes: int,
    **changes: Any,  # noqa: ANN401
) -> AssignmentFile:
    """Return a generation on nodes n1 and so on."""
    members = tuple(
        AssignedLease(
            key=LeaseKey(f"u{n}", 0), job_id=n, display_id=str(n), node=f"n{n}"
        )
        for n in range(1, nodes + 1)
    )
    made = AssignmentFile(
        trainer=trainer,
        generation=generation,
        members=members,
        created_s=NOW_S + generation,
        author=BROKER,
        reason="grow",
    )
    return replace(made, **changes)


def assign(
    state: StateDir,
    trainer: str,
    generation: int,
    nodes: int,
    **changes: Any,  # noqa: ANN401
) -> AssignmentFile:
    """Create the file of such a generation."""
    assigned = assignment(trainer, generation, nodes, **changes)
    assert create_assigned(state.trainer(trainer), assigned)
    return assigned


def end(
    state: StateDir,
    name: str,
    generation: int,
    how: EndingKind,
    **changes: Any,  # noqa: ANN401
) -> None:
    """Let a generation of *name* be over."""
    done = {"step": 10, "committed_step": 10, "author": "u1-0"}
    done |= {"started_s": NOW_S, "ended_s": NOW_S + 60.0}
    ending = an_ending(generation, how, **(done | changes))
    assert create_ending(state.trainer(name), ending)


def report(state: StateDir, generation: int, step: int, **more: Any) -> None:  # noqa: ANN401
    """Let the program of ``digits`` write a line; a step is a sample and a second."""
    run = state.trainer("digits").run
    run.control.mkdir(parents=True, exist_ok=True)
    line = {"t": NOW_S + step, "step": step, "samples": step, "generation": generation}
    with run.progress.open("a") as file:
        file.write(json.dumps(line | more) + "\n")


def beat(state: StateDir, key: LeaseKey, said: AgentState, **changes: Any) -> None:  # noqa: ANN401
    """Let the agent of a lease write a heartbeat."""
    lease = state.lease(key)
    lease.create()
    fields: dict[str, Any] = {"beat": 1, "t": NOW_S, "node": "n", "host": "n", "pid": 1}
    write_heartbeat(lease.heartbeat, Heartbeat(state=said, **(fields | changes)))


def hold_leases(state: StateDir, count: int) -> None:
    """Let the leases that ``assign`` names run, as far as the broker knows."""
    told: dict[str, Any] = {"shape": "any", "limit_min": 60, "deadline_s": NOW_S + 3600}
    with open_store(state.path, uid=UID) as connection, transaction(connection):
        for n in range(1, count + 1):
            intent = Intent(uuid=f"u{n}", tasks=1, created_s=NOW_S, **told)
            lease = Lease(
                key=LeaseKey(f"u{n}", 0),
                job_id=n,
                display_id=str(n),
                state=LeaseState.RUNNING,
                node=f"n{n}",
                start_s=NOW_S,
                end_s=NOW_S + 3600,
                **told,
            )
            put_intents(connection, [intent])
            put_leases(connection, [lease])


def a_page(**changes: Any) -> StatusReport:  # noqa: ANN401
    """Return the status report of an idle tick, with *changes*."""
    said: dict[str, Any] = {
        "at_s": NOW_S,
        "took_s": 0.5,
        "cluster": "c",
        "release": "22.05.8",
        "partition": "freetrain",
        "mode": "preempt",
        "is_torn": False,
        "is_plan_known": True,
        "requests": 7,
        "planner": "optimal",
        "planner_reason": "",
        "planner_s": 0.1,
        "brake": "",
        "paused_until_s": None,
        "churned": 0,
        "caps": {},
        "done": {},
        "problems": (),
        "trainers": (),
        "holes": (),
        "leases": (),
    }
    return StatusReport(**(said | changes))


def put_page(state: StateDir, page: StatusReport) -> None:
    """Write *page* as the last tick's status report."""
    state.status_report.write_text(render_report(page))


def leave_checkpoint(run_dir: Path, *, generation: int, step: int) -> None:
    """Leave what a training of *step* steps leaves in its run directory."""
    (run_dir / "checkpoints").mkdir(parents=True)
    (run_dir / "generations").mkdir()
    (run_dir / f"checkpoints/{generation:010d}-{step:015d}.npz").write_bytes(b"x")
    (run_dir / f"generations/{generation:010d}.started").touch()
