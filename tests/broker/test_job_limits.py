"""Jobs held by limits, and which leases count against them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.broker.job_limits import (
    LEARNED_S,
    LIMIT_REST_S,
    NONE_HELD,
    NOTHING_REMEMBERED,
    Accounts,
    HeldJobs,
    LimitKind,
    held_by_limits,
    is_refused_for_limit,
    limit_kind,
)
from freetrain.broker.lease import job_name
from freetrain.broker.limits import EndReason
from freetrain.broker.reconcile import EndLeases, Submit, Wanted, WantedLeases
from freetrain.broker.yielding import NO_CLAIMS, Claims
from slurm.records import JobRecord, JobState
from tests.broker.broker_records import NOW_S, lease, reconciled, situation
from tests.broker.waiting_jobs import waiting

UUID = "11111111-2222-3333-4444-555555555555"
OUR_UID = 1000


def our_lease(number: int = 70, **changes: object) -> JobRecord:
    made = JobRecord(
        job_id=number,
        display_id=str(number),
        states=frozenset({JobState.RUNNING}),
        uid=OUR_UID,
        name=job_name(UUID),
        account="physics",
        qos="normal",
        partitions=("main",),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def held(reason: str, **changes: object) -> JobRecord:
    asked: dict[str, object] = {"account": "physics", "qos": "normal", "uid": 7}
    return replace(waiting(1, reason=reason), **(asked | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("AssocGrpNodeLimit", LimitKind.ACCOUNT),
        ("AssocGrpCPURunMinutesLimit", LimitKind.ACCOUNT),
        ("AssociationResourceLimit", LimitKind.ACCOUNT),
        ("AssocMaxJobsLimit", LimitKind.USER),
        ("AssocMaxSubmitJobLimit", LimitKind.USER),
        ("QOSGrpNodeLimit", LimitKind.QOS),
        ("QOSResourceLimit", LimitKind.QOS),
        ("QOSMaxNodePerUserLimit", LimitKind.USER_IN_QOS),
        ("QOSMaxJobsPerUserLimit", LimitKind.USER_IN_QOS),
        ("QOSMaxGRESPerUser", LimitKind.USER_IN_QOS),
        ("MaxJobsPerAccount", LimitKind.ACCOUNT_IN_QOS),
        ("MaxMemoryPerAccount", LimitKind.ACCOUNT_IN_QOS),
        # about the job alone, or no limit
        ("AssocMaxNodePerJobLimit", None),
        ("AssocMaxCpuPerNode", None),
        ("AssocMaxWallDurationPerJobLimit", None),
        ("AssociationTimeLimit", None),
        ("QOSMinCpuNotSatisfied", None),
        ("QOSNotAllowed", None),
        ("QOSUsageThreshold", None),
        ("MaxMemPerLimit", None),
        ("Resources", None),
        ("", None),
    ],
)
def test_the_reason_says_whose_jobs_count(reason: str, kind: LimitKind | None) -> None:
    assert limit_kind(reason) is kind


TREE = Accounts(
    parents={
        "physics": "science",
        "chemistry": "science",
        "science": "root",
        "art": "root",
    },
    limited=frozenset({"science"}),
)
ALONE = replace(TREE, limited=frozenset({"physics"}))
PARTITION = Accounts(partition_qos={"main": "part"})

CASES = {
    "same account": (held("AssocGrpNodeLimit"), our_lease(), TREE, True),
    "a sister account below the limit": (
        held("AssocGrpNodeLimit"),
        our_lease(account="chemistry"),
        TREE,
        True,
    ),
    "a sister account that the limit is not of": (
        held("AssocGrpNodeLimit"),
        our_lease(account="chemistry"),
        ALONE,
        False,
    ),
    "another branch": (
        held("AssocGrpNodeLimit"),
        our_lease(account="art"),
        TREE,
        False,
    ),
    "a limit newer than what we know": (
        held("AssocGrpNodeLimit", account="art"),
        our_lease(account="art"),
        TREE,
        True,
    ),
    "any account, of an unknown hierarchy": (
        held("AssocGrpNodeLimit", account="art"),
        our_lease(),
        Accounts(),
        True,
    ),
    "the same user": (held("AssocMaxJobsLimit", uid=OUR_UID), our_lease(), TREE, True),
    "another user": (held("AssocMaxJobsLimit"), our_lease(), TREE, False),
    "the same user for another account": (
        held("AssocMaxJobsLimit", uid=OUR_UID, account="art"),
        our_lease(),
        TREE,
        False,
    ),
    "the same QOS": (held("QOSGrpNodeLimit"), our_lease(), TREE, True),
    "another QOS": (held("QOSGrpNodeLimit"), our_lease(qos="low"), TREE, False),
    "the QOS of a partition": (
        held("QOSGrpNodeLimit"),
        our_lease(qos="low"),
        PARTITION,
        True,
    ),
    "the same QOS, another user": (
        held("QOSMaxNodePerUserLimit"),
        our_lease(),
        TREE,
        False,
    ),
    "the same account in the QOS": (held("MaxNodePerAccount"), our_lease(), TREE, True),
    "another account in the QOS": (
        held("MaxNodePerAccount", account="art"),
        our_lease(),
        TREE,
        False,
    ),
    "one that waits for something else": (held("Resources"), our_lease(), TREE, False),
    "one that is on hold": (
        held("AssocGrpNodeLimit", priority=0),
        our_lease(),
        TREE,
        False,
    ),
    "one that may start later": (
        held("AssocGrpNodeLimit", eligible_s=NOW_S + 60.0),
        our_lease(),
        TREE,
        False,
    ),
    "a lease of another user": (
        held("AssocGrpNodeLimit", name=job_name(UUID)),
        our_lease(),
        TREE,
        False,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_leases_go_that_count_against_the_limit(case: str) -> None:
    job, ours, accounts, counts = CASES[case]
    found = held_by_limits([job, ours], [ours], accounts, now_s=NOW_S)
    assert found == (HeldJobs({"70": 1}, {1: job.reason}) if counts else NONE_HELD)


def test_all_leases_go_that_count_for_however_small_a_job() -> None:
    leases = [our_lease(number) for number in (70, 71, 72)]
    found = held_by_limits([held("AssocGrpNodeLimit")], leases, TREE, now_s=NOW_S)
    assert set(found.leases) == {"70", "71", "72"}


@given(st.dictionaries(st.sampled_from("abcd"), st.sampled_from("abcd")))
def test_accounts_in_a_circle_end_the_search(parents: dict[str, str]) -> None:
    accounts = Accounts(parents, frozenset("abcd"))
    assert "a" in accounts.limited_above("a")


# What is remembered from tick to tick.


def test_none_is_asked_for_until_no_such_job_was_seen_for_a_while() -> None:
    job = held("AssocGrpNodeLimit")
    first = HeldJobs({"70": 1}, {1: job.reason})
    memory = NOTHING_REMEMBERED.after(first, [job], now_s=NOW_S)
    without_leases = memory.after(NONE_HELD, [job], now_s=NOW_S + 60.0)
    starts_s = NOW_S + 70.0
    runs = without_leases.after(NONE_HELD, [], now_s=starts_s)

    assert without_leases.held_s == {1: NOW_S + 60.0}
    assert runs.held_s == {1: NOW_S + 60.0}
    over = runs.after(NONE_HELD, [], now_s=NOW_S + 60.0 + LIMIT_REST_S)
    assert over.held_s == {}


def test_a_clock_that_was_set_back_is_no_reason_to_wait_for_ever() -> None:
    memory = NOTHING_REMEMBERED.refused(0, 8, now_s=NOW_S)
    memory = replace(memory, held_s={1: NOW_S})
    assert memory.after(NONE_HELD, [], now_s=NOW_S - 10.0) == NOTHING_REMEMBERED


def test_an_array_that_was_refused_is_halved_until_it_fits() -> None:
    allowed, waits, asked = 6, 0, []
    memory = NOTHING_REMEMBERED
    for tick in range(12):
        now_s = NOW_S + 60.0 * tick
        memory = memory.after(NONE_HELD, [], now_s=now_s)
        most = 8 if memory.most_leases is None else memory.most_leases
        more = most - waits
        if more <= 0:
            continue
        asked.append(more)
        if waits + more > allowed:
            memory = memory.refused(waits, more, now_s=now_s)
        else:
            waits += more
    assert asked == [8, 4]
    assert waits == 4
    late = memory.after(NONE_HELD, [], now_s=NOW_S + LEARNED_S)
    assert late.most_leases is None


@pytest.mark.parametrize(
    "said",
    [
        (
            "Job violates accounting/QOS policy (job submit limit, user's size and/or "
            "time limits)"
        ),
        "sbatch: error: QOSMaxSubmitJobPerUserLimit",
        "sbatch: error: MaxSubmitJobsPerAccount",
    ],
)
def test_a_refusal_for_a_limit_is_known(said: str) -> None:
    assert is_refused_for_limit(said)
    assert not is_refused_for_limit("sbatch: error: Invalid job array specification")


# What the broker makes of it.

WANTED = Wanted(
    (), (WantedLeases("any", 60, 60.0, NOW_S + 7_200.0, NOW_S + 9_000.0, ("n8", "n9")),)
)
HELD = HeldJobs({"7_0": 1}, {1: "AssocGrpNodeLimit"})


def test_running_leases_get_the_notice_and_waiting_ones_are_cancelled() -> None:
    claims = NO_CLAIMS.with_limits(HELD, {"7_0": "n0"})
    there = situation(lease(0, "n0"), lease(1), claims=claims)
    ends = reconciled(WANTED, there, pool=())
    assert ends == (
        EndLeases(("7_1",), (lease(1).key,), EndReason.MAKES_ROOM),
        EndLeases(("7_0",), (lease(0).key,), EndReason.LIMITED, by_notice=True),
    )


def test_a_node_that_a_job_could_start_on_is_claimed_all_the_same() -> None:
    claims = Claims({"n0": 5}, {}).with_limits(HELD, {"7_0": "n0"})
    assert claims.limited == {}
    assert claims.startable == {"n0"}
    assert claims.end_reason("n0") is EndReason.CLAIMED


def test_nothing_is_asked_for_while_a_job_is_held() -> None:
    later = replace(NO_CLAIMS, held=HeldJobs({}, {1: ""}))
    assert reconciled(WANTED, situation(claims=later)) == ()
    asked = reconciled(WANTED, situation())
    assert [type(action) for action in asked] == [Submit]


@pytest.mark.parametrize(("allowed", "asked"), [(None, 2), (2, 1), (1, 0), (0, 0)])
def test_no_more_is_asked_for_than_limits_allow(
    allowed: int | None, asked: int
) -> None:
    there = situation(lease(0, "n0"))
    actions = reconciled(WANTED, there, pool={"n0"}, most_allowed=allowed)
    submits = [action for action in actions if isinstance(action, Submit)]
    assert sum(action.tasks for action in submits) == asked
