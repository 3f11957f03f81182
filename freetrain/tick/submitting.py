"""Submitting leases: the intent first, then sbatch, then what became of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from freetrain.broker.lease import IntentOutcome, submitted_leases
from freetrain.store.events import Event, EventKind, add_events
from freetrain.store.intents import put_intents
from freetrain.store.leases import put_leases
from slurm.errors import RequestsSpentError, SlurmRefusedError

if TYPE_CHECKING:
    from freetrain.broker.lease import Intent
    from freetrain.tick.run import Run
    from slurm.batch import LeaseRequest

_MOST_DETAIL = 500


def submit(run: Run, intent: Intent, request: LeaseRequest) -> str:
    """Submit *request* under *intent*; return why Slurm refused, empty where not.

    The intent is written down before, so that whatever happens the jobs are found
    by name. Where no answer comes it stays open, and the next ticks look.

    Raises:
        SlurmError: It may or may not have happened.
        StoreError: It could not be written down; before, nothing was submitted.
    """
    asked = Event(intent.created_s, EventKind.ASKED, intent.uuid, intent.tasks)
    with run.writing("intent") as state:
        put_intents(state, [intent])
        add_events(state, [asked])
    try:
        with run.effect("sbatch"):
            submitted = run.backend.submit(request)
    except SlurmRefusedError as error:
        _refused(run, intent, str(error))
        return str(error)
    except ValueError as error:  # Slurm was not asked
        _refused(run, intent, str(error))
        return str(error)
    except RequestsSpentError:
        _write(run, replace(intent, outcome=IntentOutcome.ABANDONED))
        raise
    taken = replace(intent, outcome=IntentOutcome.SUBMITTED, job_id=submitted.job_id)
    with run.writing("submission") as state:
        put_intents(state, [taken])
        put_leases(state, submitted_leases(taken, submitted.job_id))
    return ""


def _refused(run: Run, intent: Intent, why: str) -> None:
    refused = replace(intent, outcome=IntentOutcome.REFUSED, detail=why[:_MOST_DETAIL])
    failed = Event(intent.created_s, EventKind.FAILED_START, intent.uuid, 0, why)
    with run.writing("refusal") as state:
        put_intents(state, [refused])
        add_events(state, [failed])


def _write(run: Run, intent: Intent) -> None:
    with run.writing("intent not sent") as state:
        put_intents(state, [intent])
