"""Jobs that limits block, and which leases count against them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.broker.job_limits import (
    LEARNED_S,
    LIMIT_REST_S,
    NONE_BLOCKED,
    NOTHING_REMEMBERED,
    Accounts,
    AllowedLeases,
    BlockedJobs,
    LimitKind,
    allowed_leases,
    blocked_by_limits,
    has_unknown_limit,
    is_refused_for_limit,
    limit_kind,
    limits_below,
)
from freetrain.broker.lease import is_lease, job_name
from freetrain.broker.reasons import EndReason
from freetrain.broker.reconcile import EndLeases, Submit, Wanted, WantedLeases
from freetrain.broker.yielding import NO_CLAIMS, Claims
from slurm.associations import AccountingLimits, Association, Qos
from slurm.records import JobRecord, JobState, expand
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


def blocked(reason: str, **changes: object) -> JobRecord:
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


def accounts(
    tree: dict[str, str],
    *associations: Association,
    qos: tuple[Qos, ...] = (Qos("normal"),),
    partition_qos: dict[str, str] | None = None,
) -> Accounts:
    """What is known of a site: the account above each, and those with limits."""
    named = {found.account: found for found in associations if not found.user}
    plain = (Association(name, parent=parent) for name, parent in tree.items())
    ours = tuple(found for found in associations if found.user)
    told = (*(named.get(found.account, found) for found in plain), *ours)
    known = AccountingLimits(told, qos)
    return Accounts(known, partition_qos or {}, user="ada", uid=OUR_UID)


SITE = {"physics": "science", "chemistry": "science", "science": "root", "art": "root"}
SIX = {"GrpTRES=node": 6}
TREE = accounts(SITE, Association("science", parent="root", limits=SIX))
ALONE = accounts(SITE, Association("physics", parent="science", limits=SIX))
PARTITION = Accounts(partition_qos={"main": "part"})
PART = {"GrpTRES=node": 4}
KNOWN_PARTITION = accounts(
    SITE, qos=(Qos("normal"), Qos("part", PART)), partition_qos={"main": "part"}
)

CASES = {
    "same account": (blocked("AssocGrpNodeLimit"), our_lease(), TREE, True),
    "a sister account below the limit": (
        blocked("AssocGrpNodeLimit"),
        our_lease(account="chemistry"),
        TREE,
        True,
    ),
    "a sister account that the limit is not of": (
        blocked("AssocGrpNodeLimit"),
        our_lease(account="chemistry"),
        ALONE,
        False,
    ),
    "another branch": (
        blocked("AssocGrpNodeLimit"),
        our_lease(account="art"),
        TREE,
        False,
    ),
    "a limit of the job's own user": (
        blocked("AssocGrpNodeLimit", account="art"),
        our_lease(account="art"),
        TREE,
        False,
    ),
    "a limit newer than what we know": (
        blocked("AssocGrpNodeLimit", account="art", uid=OUR_UID),
        our_lease(account="art"),
        TREE,
        True,
    ),
    "another limit of the account": (
        blocked("AssocGrpCPUMinutesLimit"),
        our_lease(),
        TREE,
        False,
    ),
    "an account that is not told, where ours has no limit of the kind": (
        blocked("AssocGrpMemLimit", account="hidden"),
        our_lease(),
        TREE,
        False,
    ),
    "an account that is not told, where ours has such a limit": (
        blocked("AssocGrpNodeLimit", account="hidden"),
        our_lease(),
        TREE,
        True,
    ),
    "the QOS of a partition that has the limit": (
        blocked("QOSGrpNodeLimit"),
        our_lease(qos="low"),
        KNOWN_PARTITION,
        True,
    ),
    "a QOS that has no limit, beside the partition's": (
        blocked("QOSGrpNodeLimit"),
        our_lease(partitions=("other",)),
        KNOWN_PARTITION,
        False,
    ),
    "any account, of an unknown hierarchy": (
        blocked("AssocGrpNodeLimit", account="art"),
        our_lease(),
        Accounts(),
        True,
    ),
    "the same user": (
        blocked("AssocMaxJobsLimit", uid=OUR_UID),
        our_lease(),
        TREE,
        True,
    ),
    "another user": (blocked("AssocMaxJobsLimit"), our_lease(), TREE, False),
    "the same user for another account": (
        blocked("AssocMaxJobsLimit", uid=OUR_UID, account="art"),
        our_lease(),
        TREE,
        False,
    ),
    "the same QOS": (blocked("QOSGrpNodeLimit"), our_lease(), TREE, True),
    "another QOS": (blocked("QOSGrpNodeLimit"), our_lease(qos="low"), TREE, False),
    "the QOS of a partition": (
        blocked("QOSGrpNodeLimit"),
        our_lease(qos="low"),
        PARTITION,
        True,
    ),
    "the same QOS, another user": (
        blocked("QOSMaxNodePerUserLimit"),
        our_lease(),
        TREE,
        False,
    ),
    "the same account in the QOS": (
        blocked("MaxNodePerAccount"),
        our_lease(),
        TREE,
        True,
    ),
    "another account in the QOS": (
        blocked("MaxNodePerAccount", account="art"),
        our_lease(),
        TREE,
        False,
    ),
    "one that waits for something else": (
        blocked("Resources"),
        our_lease(),
        TREE,
        False,
    ),
    "one that is on hold": (
        blocked("AssocGrpNodeLimit", priority=0),
        our_lease(),
        TREE,
        False,
    ),
    "one that may start later": (
        blocked("AssocGrpNodeLimit", eligible_s=NOW_S + 60.0),
        our_lease(),
        TREE,
        False,
    ),
    "a lease of another user": (
        blocked("AssocGrpNodeLimit", name=job_name(UUID)),
        our_lease(),
        TREE,
        False,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_leases_go_that_count_against_the_limit(case: str) -> None:
    job, ours, known, counts = CASES[case]
    found = blocked_by_limits([job, ours], [ours], known, now_s=NOW_S)
    assert set(found.leases) == ({"70"} if counts else set())
    assert all(words.startswith(job.reason) for words in found.reasons.values())
    assert found.reasons.keys() == ({1} if counts else set())


def test_all_leases_go_that_count_for_however_small_a_job() -> None:
    leases = [our_lease(number) for number in (70, 71, 72)]
    found = blocked_by_limits([blocked("AssocGrpNodeLimit")], leases, TREE, now_s=NOW_S)
    assert set(found.leases) == {"70", "71", "72"}


def test_of_two_limits_that_may_block_a_job_the_one_that_is_used_up_does() -> None:
    two = Association("chemistry", parent="science", limits={"GrpTRES=node": 2})
    known = accounts(SITE, two, Association("science", parent="root", limits=SIX))
    job = blocked("AssocGrpNodeLimit", account="chemistry")
    leases = [our_lease(70 + k, nodes=f"n{k}") for k in range(3)]
    theirs = [our_lease(80 + k, uid=7, name="x", account="chemistry") for k in range(2)]
    theirs = [replace(job, nodes=f"m{k}") for k, job in enumerate(theirs)]

    assert not blocked_by_limits(
        [job, *leases, *theirs], leases, known, now_s=NOW_S
    ).leases
    full = [*leases, our_lease(73, nodes="n3"), our_lease(74, nodes="n4"), theirs[0]]
    found = blocked_by_limits([job, *full], leases, known, now_s=NOW_S)
    assert found.reasons == {1: "AssocGrpNodeLimit: GrpTRES=node=6 of account science"}
    assert set(found.leases) == {"70", "71", "72"}


def test_without_knowledge_only_leases_are_sure_that_count_whosever_the_limit_is() -> (
    None
):
    job, own = blocked("AssocGrpNodeLimit"), blocked("AssocGrpNodeLimit", uid=OUR_UID)
    lease = our_lease()

    def sure(job: JobRecord) -> bool:
        found = blocked_by_limits([job, lease], [lease], now_s=NOW_S, is_sure=True)
        return bool(found.leases)

    assert sure(own)
    assert not sure(job)
    assert not sure(replace(own, account="art"))
    assert sure(blocked("QOSGrpNodeLimit"))
    assert not sure(blocked("QOSGrpNodeLimit", qos=""))


def test_a_job_is_blocked_whose_limit_leases_would_use() -> None:
    job, wanted = blocked("AssocGrpNodeLimit"), our_lease(display_id="")
    found = blocked_by_limits([job], [wanted], TREE, now_s=NOW_S)
    assert found.reasons.keys() == {1}
    assert found.leases == {}


def test_a_limit_that_is_newer_than_what_is_known_is_noticed() -> None:
    jobs = {
        "known": blocked("AssocGrpNodeLimit"),
        "newer": blocked("AssocGrpCPUMinutesLimit"),
        "another user's": blocked("AssocMaxJobsLimit"),
        "our newer": blocked("AssocMaxJobsLimit", uid=OUR_UID),
        "no limit": blocked("Resources"),
    }
    noticed = {
        name
        for name, job in jobs.items()
        if has_unknown_limit([job], TREE, now_s=NOW_S)
    }
    assert noticed == {"newer", "our newer"}


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        ("AssocGrpNodeLimit", "GrpTRES=node"),
        ("AssocGrpCpuLimit", "GrpTRES=cpu"),
        ("AssocGrpMemLimit", "GrpTRES=mem"),
        ("AssocGrpGRES", "GrpTRES=gres/gpu"),
        ("AssocGrpCPUMinutesLimit", "GrpTRESMins=cpu"),
        ("AssocGrpCPURunMinutesLimit", "GrpTRESRunMins=cpu"),
        ("AssocGrpGRESRunMinutes", "GrpTRESRunMins=gres/gpu"),
        ("AssocGrpJobsLimit", "GrpJobs"),
        ("AssocGrpWallLimit", "GrpWall"),
        ("AssocGrpSubmitJobsLimit", "GrpSubmitJobs"),
        ("AssocMaxJobsLimit", "MaxJobs"),
        ("AssocMaxSubmitJobLimit", "MaxSubmitJobs"),
        ("QOSMaxNodePerUserLimit", "MaxTRESPU=node"),
        ("QOSMaxGRESPerUser", "MaxTRESPU=gres/gpu"),
        ("QOSMaxJobsPerUserLimit", "MaxJobsPU"),
        ("QOSMaxSubmitJobPerUserLimit", "MaxSubmitJobsPU"),
        ("MaxMemoryPerAccount", "MaxTRESPA=mem"),
        ("MaxJobsPerAccount", "MaxJobsPA"),
    ],
)
def test_a_reason_names_one_limit_of_all(reason: str, name: str) -> None:
    own = {"MaxJobs": 1, "MaxSubmitJobs": 1}
    group = dict.fromkeys(
        [
            *("GrpJobs", "GrpSubmitJobs", "GrpWall", "GrpTRES=node", "GrpTRES=cpu"),
            *("GrpTRES=mem", "GrpTRES=gres/gpu", "GrpTRESMins=cpu"),
            *("GrpTRESRunMins=cpu", "GrpTRESRunMins=gres/gpu"),
        ],
        1,
    )
    each = dict.fromkeys(
        [
            f"{what}{whose}{tres}"
            for whose in ("PU", "PA")
            for what, tres in (
                *(("MaxJobs", ""), ("MaxSubmitJobs", ""), ("MaxTRES", "=node")),
                *(("MaxTRES", "=mem"), ("MaxTRES", "=gres/gpu")),
            )
        ],
        1,
    )
    user = Association("physics", user="ada", limits=own)
    all_jobs = Association("physics", parent="science", limits=group)
    of_qos = Qos("normal", {} if reason.startswith("Assoc") else each)
    known = accounts(SITE, all_jobs, user, qos=(of_qos,))
    job, lease = blocked(reason, uid=OUR_UID), our_lease()

    (said,) = blocked_by_limits([job], [lease], known, now_s=NOW_S).reasons.values()

    assert said.startswith(f"{reason}: {name}=1 of ")


def test_a_reason_that_says_no_kind_may_name_any_limit() -> None:
    limits = {"GrpJobs": 1, "GrpTRESMins=cpu": 5, "GrpTRES=node": 50}
    known = accounts(SITE, qos=(Qos("normal", limits),))
    job, lease = blocked("QOSResourceLimit"), our_lease(nodes="n1")

    (said,) = blocked_by_limits(
        [job, lease], [lease], known, now_s=NOW_S
    ).reasons.values()

    # One lease uses up GrpJobs; minutes are not counted, so they may be used up.
    of_these = "GrpJobs=1 of QOS normal or GrpTRESMins=cpu=5 of QOS normal"
    assert said == f"QOSResourceLimit: {of_these}"


def test_a_users_limit_in_a_partition_counts_jobs_of_that_partition() -> None:
    limit = Association("physics", user="ada", partition="main", limits={"MaxJobs": 2})
    known = accounts(SITE, limit)
    here, there = our_lease(), our_lease(partitions=("gpu",))
    (found,) = known.limits_on(here)
    assert known.limits_on(there) == ()
    assert (known.counts(here, found), known.counts(there, found)) == (True, False)

    both = accounts(SITE, Association("physics", user="ada", limits=SIX), limit)
    assert [each.name for each in both.limits_on(here)] == ["MaxJobs"]
    assert [each.name for each in both.limits_on(there)] == ["GrpTRES=node"]


def test_limits_of_another_qos_or_another_users_bind_no_job() -> None:
    of_qos = Qos("low", {"GrpTRES=node": 1})
    own = Association("physics", user="ada", limits={"MaxJobs": 2})
    both = (own, Association("physics", parent="science", limits=SIX))
    known = accounts(SITE, *both, qos=(Qos("normal"), of_qos))

    def bound(job: JobRecord) -> set[str]:
        return {f"{limit.name}={limit.most}" for limit in known.limits_on(job)}

    assert bound(our_lease()) == {"GrpTRES=node=6", "MaxJobs=2"}
    assert bound(our_lease(uid=7)) == {"GrpTRES=node=6"}
    assert bound(our_lease(qos="low")) == {"GrpTRES=node=1", "MaxJobs=2"}


def test_leases_are_of_the_default_account_or_of_any_of_ours() -> None:
    of = [Association(name, user="ada") for name in ("physics", "art")]
    others = Association("science", user="ben", is_default=True)
    assert accounts(SITE, *of, others).own_accounts() == {"physics", "art"}
    usual = replace(of[0], is_default=True)
    assert accounts(SITE, usual, of[1], others).own_accounts() == {"physics"}


def test_the_qos_of_leases_is_of_their_account_and_of_the_partition_first() -> None:
    known = accounts(
        SITE,
        Association("physics", user="ada", partition="main", default_qos="high"),
        Association("physics", user="ada", default_qos="low"),
        Association("art", user="ada", partition="gpu", default_qos="fast"),
        Association("science", user="ben", default_qos="theirs"),
    )
    assert known.default_qos("physics", "main") == "high"
    assert known.default_qos("physics", "gpu") == "low"
    assert known.default_qos("art", "gpu") == "fast"
    assert known.default_qos("art", "main") == known.default_qos("science", "x") == ""


@given(st.dictionaries(st.sampled_from("abcd"), st.sampled_from("abcd")))
def test_accounts_in_a_circle_end_the_search(tree: dict[str, str]) -> None:
    tree = {"a": "b"} | tree
    known = accounts(tree, Association("a", parent=tree["a"], limits=SIX))
    (limit,) = known.limits_on(our_lease(account="a"))
    assert known.counts(our_lease(account="a"), limit)


# How many leases fit.


def fits(known: Accounts, *jobs: JobRecord, cpu_count: int = 0) -> AllowedLeases:
    wanted = [our_lease(display_id="", node_count=1, cpu_count=cpu_count)]
    return allowed_leases(jobs, wanted, known, is_ours=is_lease, now_s=NOW_S)


def theirs(number: int, nodes: str = "", **changes: object) -> JobRecord:
    """A job of a colleague, of our account; it waits where it has no nodes."""
    count = len(expand(nodes)) or 1
    states = frozenset({JobState.RUNNING if nodes else JobState.PENDING})
    made = our_lease(number, uid=7, name="x", nodes=nodes, node_count=count)
    return replace(made, **({"states": states, "reason": "Resources"} | changes))  # type: ignore[arg-type]


def user_limit(**limits: int) -> Accounts:
    return accounts(SITE, Association("physics", user="ada", limits=limits))


def qos_limit(name: str, most: int) -> Accounts:
    return accounts(SITE, qos=(Qos("normal", {name: most}),))


OTHERS_JOB = theirs(1, account="art", qos="low", nodes="m[1-4]", uid=8)
OWN_ARRAY = theirs(1, uid=OUR_UID, array_tasks="1-3")

FITS = {
    "no limit": (accounts(SITE), [theirs(1, "m[1-4]")], None),
    "nodes of an account above": (TREE, [theirs(1, "m1"), OTHERS_JOB], 5),
    "a sister account below it": (TREE, [theirs(1, "m[1-2]", account="chemistry")], 4),
    "our own leases": (TREE, [our_lease(1, nodes="n1")], 6),
    "the largest that waits for nodes": (TREE, [theirs(1), theirs(2, node_count=3)], 3),
    "one too large ever to start": (TREE, [theirs(1, node_count=7)], 6),
    "one that waits for something else": (
        TREE,
        [theirs(1, reason="Dependency", node_count=3)],
        6,
    ),
    "more than there may be": (TREE, [theirs(1, "m[1-8]")], 0),
    "a node that two jobs share": (TREE, [theirs(1, "m1"), theirs(2, "m1")], 5),
    "running jobs of the user": (user_limit(MaxJobs=3), [OWN_ARRAY], 2),
    "jobs of a colleague": (user_limit(MaxJobs=3), [theirs(1, "m1")], 3),
    "submitted jobs of the user": (user_limit(MaxSubmitJobs=6), [OWN_ARRAY], 3),
    "held ones, too": (
        user_limit(MaxSubmitJobs=6),
        [replace(OWN_ARRAY, priority=0)],
        3,
    ),
    "jobs of the QOS": (qos_limit("GrpJobs", 3), [theirs(1, "m1"), OTHERS_JOB], 2),
    "nodes of the user in the QOS": (
        qos_limit("MaxTRESPU=node", 3),
        [theirs(1, "m1"), replace(OWN_ARRAY, array_tasks="")],
        2,
    ),
    "nodes of the account in the QOS": (
        qos_limit("MaxTRESPA=node", 3),
        [theirs(1, "m1"), theirs(2, "m2", account="art")],
        2,
    ),
    "memory is not told": (qos_limit("GrpTRES=mem", 3), [], None),
    "minutes are not told": (qos_limit("GrpTRESMins=node", 3), [], None),
    "a QOS sets the user's limit aside": (
        accounts(
            SITE,
            Association("physics", user="ada", limits={"MaxJobs": 2}),
            qos=(Qos("normal", {"MaxJobsPU": 5}),),
        ),
        [],
        5,
    ),
    "a user in one partition": (
        accounts(
            SITE,
            Association(
                "physics", user="ada", partition="other", limits={"MaxJobs": 1}
            ),
            Association("physics", user="ada", limits={"MaxJobs": 4}),
        ),
        [],
        4,
    ),
    "accounts' limits on each user": (
        accounts(SITE, Association("physics", parent="science", limits={"MaxJobs": 1})),
        [],
        None,
    ),
}


@pytest.mark.parametrize("case", FITS)
def test_leases_fit_below_limits_beside_all_other_jobs(case: str) -> None:
    known, jobs, most = FITS[case]
    found = fits(known, *jobs)
    assert found.most == most
    assert bool(found.why) is (most is not None)


def test_what_leaves_room_for_no_more_is_named_with_value_and_owner() -> None:
    said = fits(TREE, theirs(1, "m[1-2]")).why
    assert said == "GrpTRES=node=6 of account science, 2 of them for other jobs"
    assert fits(user_limit(MaxJobs=3)).why == "MaxJobs=3 of user ada in account physics"
    each = fits(qos_limit("MaxJobsPU", 3)).why
    assert each == "MaxJobsPU=3 of each user in QOS normal"


def test_cpus_count_by_what_a_lease_takes() -> None:
    known = qos_limit("GrpTRES=cpu", 64)
    assert fits(known, theirs(1, "m1", cpu_count=8), cpu_count=16).most == 3
    assert limits_below(3, [our_lease(cpu_count=16)], known) == ()
    assert len(limits_below(5, [our_lease(cpu_count=16)], known)) == 1
    # What is not known counts as one.
    assert fits(known).most == 64
    nodes = qos_limit("GrpTRES=node", 8)
    assert fits(nodes, replace(theirs(1), node_count=0)).most == 7


@given(
    st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=6),
    st.integers(0, 12),
)
def test_what_is_asked_for_never_keeps_the_next_job_waiting(
    jobs: list[tuple[int, bool]], most: int
) -> None:
    known = accounts(
        SITE, Association("physics", parent="science", limits={"GrpTRES=node": most})
    )
    made = [
        theirs(k, f"m{k}-[1-{nodes}]" if runs else "", node_count=nodes)
        for k, (nodes, runs) in enumerate(jobs, 1)
    ]
    running = sum(nodes for nodes, runs in jobs if runs)
    leases = fits(known, *made).most or 0

    assert leases == 0 or running + leases <= most
    for nodes, runs in jobs:
        if not runs and nodes <= most:
            assert leases == 0 or running + leases + nodes <= most


# What is remembered from tick to tick.


def test_none_is_asked_for_until_no_such_job_was_seen_for_a_while() -> None:
    job = blocked("AssocGrpNodeLimit")
    first = BlockedJobs({"70": 1}, {1: job.reason})
    memory = NOTHING_REMEMBERED.after(first, [job], now_s=NOW_S)
    without_leases = memory.after(NONE_BLOCKED, [job], now_s=NOW_S + 60.0)
    starts_s = NOW_S + 70.0
    runs = without_leases.after(NONE_BLOCKED, [], now_s=starts_s)

    assert without_leases.blocked_s == {1: NOW_S + 60.0}
    assert runs.blocked_s == {1: NOW_S + 60.0}
    over = runs.after(NONE_BLOCKED, [], now_s=NOW_S + 60.0 + LIMIT_REST_S)
    assert over.blocked_s == {}


def test_a_clock_that_was_set_back_is_no_reason_to_wait_for_ever() -> None:
    memory = NOTHING_REMEMBERED.refused(0, 8, now_s=NOW_S)
    memory = replace(memory, blocked_s={1: NOW_S})
    assert memory.after(NONE_BLOCKED, [], now_s=NOW_S - 10.0) == NOTHING_REMEMBERED


def test_an_array_that_was_refused_is_halved_until_it_fits() -> None:
    allowed, waits, asked = 6, 0, []
    memory = NOTHING_REMEMBERED
    for tick in range(12):
        now_s = NOW_S + 60.0 * tick
        memory = memory.after(NONE_BLOCKED, [], now_s=now_s)
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
    late = memory.after(NONE_BLOCKED, [], now_s=NOW_S + LEARNED_S)
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
HELD = BlockedJobs({"7_0": 1}, {1: "AssocGrpNodeLimit"})


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


def test_nothing_is_asked_for_while_a_job_is_blocked() -> None:
    later = replace(NO_CLAIMS, blocked=BlockedJobs({}, {1: ""}))
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
