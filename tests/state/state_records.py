"""Random records for the store's tests."""

from __future__ import annotations

from hypothesis import strategies as st

from freetrain.broker.lease import (
    Intent,
    IntentOutcome,
    Lease,
    LeaseEnd,
    LeaseKey,
    LeaseState,
)
from freetrain.state.tables import (
    Event,
    EventKind,
    SeenBackfillPlans,
    TrainerRow,
    TrainerState,
)
from slurm.holes import BackfillPlans, HiddenPlan, PlannedStart

UUIDS = st.uuids().map(str)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
TIMES = st.floats(0, 4e9)
MAYBE = st.none() | TIMES
COUNTS = st.integers(0, 2**31)
KEYS = st.builds(LeaseKey, UUIDS, COUNTS)
TRAINERS = st.builds(
    TrainerRow, TEXT, TEXT, TEXT, st.sampled_from(TrainerState), TIMES, TIMES
)
INTENTS = st.builds(
    Intent,
    uuid=UUIDS,
    shape=TEXT,
    limit_min=COUNTS,
    deadline_s=TIMES.map(lambda t: t + 1.0),
    tasks=st.integers(1, 1000),
    created_s=TIMES,
    outcome=st.sampled_from(IntentOutcome),
    job_id=st.none() | COUNTS,
    missed=COUNTS,
    detail=TEXT,
)
EVENTS = st.builds(Event, TIMES, st.sampled_from(EventKind), TEXT, COUNTS, TEXT)
SEEN = st.builds(
    SeenBackfillPlans,
    st.builds(
        BackfillPlans,
        st.lists(st.builds(PlannedStart, COUNTS, TIMES, TEXT, TIMES)).map(tuple),
        st.lists(st.builds(HiddenPlan, TEXT, TIMES)).map(tuple),
    ),
    MAYBE,
)


def leases_of(intent: Intent) -> st.SearchStrategy[Lease]:
    return st.builds(
        Lease,
        key=st.builds(LeaseKey, st.just(intent.uuid), COUNTS),
        job_id=st.none() | COUNTS,
        display_id=TEXT,
        shape=TEXT,
        limit_min=COUNTS,
        deadline_s=TIMES.map(lambda t: t + 1.0),
        state=st.sampled_from(LeaseState),
        node=TEXT,
        start_s=MAYBE,
        end_s=MAYBE,
        ended=st.none() | st.sampled_from(LeaseEnd),
        missed=COUNTS,
        missed_s=MAYBE,
        notice_s=MAYBE,
        cancel_s=MAYBE,
    )
