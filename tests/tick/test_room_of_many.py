"""Brokers of several users make room for one job, each by what the queue shows."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest
from msgspec import structs

from freetrain.broker.backfill import SoonerEnd
from freetrain.broker.lease import LeaseComment, job_name, render_comment
from freetrain.broker.limits import Mode
from freetrain.broker.sharing import leases_in
from freetrain.broker.yielding import NO_CLAIMS, Claims
from freetrain.cli.context import exit_code
from freetrain.config.site import LeaseMode, LeaseSettings, SiteRules
from freetrain.demo.fake_slurm import cluster as keeping
from freetrain.demo.fake_slurm import commands as programs
from freetrain.errors import BadConfigurationError
from freetrain.tick.environment import MOST_ENDS_SET
from freetrain.tick.leases import hidden_queue, sees_all_jobs
from freetrain.tick.room import (
    Room,
    claims_of,
    make_room,
    set_sooner_ends,
    view_of,
)
from freetrain.tick.tick import tick
from slurm.records import JobKey, JobRecord, JobState
from tests.slurm.clusters import NOW_S, cluster
from tests.tick.test_leases import CONFIG, SITE
from tests.tick.tick_worlds import UID, TickWorld

if TYPE_CHECKING:
    from slurm.backend import SlurmBackend

ANN, BEN, CAT = 1001, 1002, 1003


def lease(
    owner: int, node: str, *, is_pooled: bool = True, **changes: object
) -> JobRecord:
    """A lease on *node*, whose broker beat ten seconds ago."""
    number = owner * 10 + int(node[1:])
    uuid = f"{number:032x}"
    said = LeaseComment(uuid=uuid, is_pooled=is_pooled, want=8, beat_s=NOW_S - 10)
    made = JobRecord(
        job_id=number,
        display_id=str(number),
        states=frozenset({JobState.RUNNING}),
        uid=owner,
        user=f"u{owner}",
        name=job_name(uuid),
        comment=render_comment(said) if is_pooled else f"freetrain {uuid}",
        partitions=("freetrain",),
        submit_s=NOW_S - 900,
        start_s=NOW_S - 600,
        end_s=NOW_S + 3_000,
        nodes=node,
        node_count=1,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def job(nodes: int, number: int = 1) -> JobRecord:
    return JobRecord(
        job_id=number,
        display_id=str(number),
        states=frozenset({JobState.PENDING}),
        uid=7,
        name="theirs",
        reason="Resources",
        partitions=("freetrain",),
        priority=100,
        limit_s=600.0,
        node_count=nodes,
    )


def claims_by(
    world: TickWorld,
    owner: int,
    jobs: Iterable[JobRecord],
    rules: SiteRules | None = None,
) -> Claims:
    """What *owner*'s broker finds; eight nodes, those of no job are idle."""
    jobs = tuple(jobs)
    states = dict.fromkeys((f"n{k}" for k in range(1, 9)), "IDLE")
    for one in jobs:
        if one.nodes:
            ends = JobState.COMPLETING in one.states
            states[one.nodes] = "ALLOCATED+COMPLETING" if ends else "ALLOCATED"
    nodes = " ".join(f"{name}:{state}" for name, state in states.items())
    settings = LeaseSettings(partition="freetrain", mode=LeaseMode.YIELD, careful=False)
    site = structs.replace(SITE, lease=settings, rules=rules or SITE.rules)
    seen = view_of(site, CONFIG, cluster(nodes, *jobs))
    return claims_of(site, replace(world.environment, uid=owner), seen)


def four_each() -> list[JobRecord]:
    return [lease(ANN if k <= 4 else BEN, f"n{k}") for k in range(1, 9)]


def given_by(claims: Claims, jobs: Iterable[JobRecord]) -> dict[int, int]:
    """How many leases each owner gives."""
    owners = [job.uid or 0 for job in jobs if job.nodes in claims.leased]
    return {owner: owners.count(owner) for owner in sorted(set(owners))}


@pytest.mark.parametrize(
    ("nodes", "given"),
    [(6, {ANN: 3, BEN: 3}), (3, {ANN: 2, BEN: 1}), (8, {ANN: 4, BEN: 4})],
)
def test_two_brokers_give_together_what_one_job_needs_and_no_more(
    world: TickWorld, nodes: int, given: dict[int, int]
) -> None:
    jobs = [*four_each(), job(nodes)]
    found = [claims_by(world, owner, jobs) for owner in (ANN, BEN)]
    assert found[0] == found[1]
    assert given_by(found[0], jobs) == given


def test_a_part_that_was_carried_out_changes_nothing_of_the_rest(
    world: TickWorld,
) -> None:
    jobs = [*four_each(), job(6)]
    called = claims_by(world, BEN, jobs).leased
    ends = {"states": frozenset({JobState.CANCELLED, JobState.COMPLETING})}
    for gone in (ends | {"end_s": NOW_S - 2}, None):  # on their way, and then idle
        after = [
            replace(one, **gone) if gone else None  # type: ignore[arg-type]
            for one in jobs
            if one.uid == ANN and one.nodes in called
        ]
        rest = [one for one in jobs if one.uid != ANN or one.nodes not in called]
        again = claims_by(world, BEN, [*filter(None, after), *rest])
        assert set(again.leased) == {n for n in called if int(n[1:]) > 4}


def test_a_lease_that_hangs_in_its_end_is_no_free_node(world: TickWorld) -> None:
    states = frozenset({JobState.CANCELLED, JobState.COMPLETING})
    jobs = [*four_each()[1:], job(8)]
    stuck = replace(lease(ANN, "n1"), states=states, end_s=NOW_S - 300)
    assert not claims_by(world, BEN, [stuck, *jobs]).leased
    young = replace(stuck, end_s=NOW_S - 3)
    assert len(claims_by(world, BEN, [young, *jobs]).leased) == 7


def test_leases_of_versions_that_know_no_pool_are_immovable_and_harm_nobody_else(
    world: TickWorld,
) -> None:
    jobs = [*four_each(), job(3)]
    jobs[4:8] = [lease(BEN, f"n{k}", is_pooled=False) for k in range(5, 9)]
    assert given_by(claims_by(world, ANN, jobs), jobs) == {ANN: 3}
    # Its own broker gives them up as ever.
    assert given_by(claims_by(world, BEN, jobs), jobs) == {ANN: 2, BEN: 1}
    assert not claims_by(world, ANN, [*jobs[:8], job(6)]).leased


def test_others_step_in_for_a_broker_that_is_silent(world: TickWorld) -> None:
    jobs = [*four_each(), job(3)]
    for k in range(4, 8):
        comment = jobs[k].comment.replace(f"{NOW_S - 10:.0f}", f"{NOW_S - 121:.0f}")
        jobs[k] = replace(jobs[k], comment=comment)
    assert given_by(claims_by(world, ANN, jobs), jobs) == {ANN: 3}


def test_weights_of_the_site_decide_who_gives(world: TickWorld) -> None:
    jobs = [*four_each(), job(2)]
    rules = SiteRules(weights=((f"u{ANN}", 2.0),))
    assert given_by(claims_by(world, BEN, jobs, rules), jobs) == {BEN: 2}


def test_a_job_of_several_nodes_is_no_lease_whatever_its_name(
    world: TickWorld,
) -> None:
    wide = replace(lease(BEN, "n5"), node_count=2)
    jobs = [*four_each()[:4], wide, job(8)]
    assert not claims_by(world, ANN, jobs).leased
    assert math.isinf(
        leases_in([replace(wide, node_count=1, end_s=None)], now_s=NOW_S)[0].end_s
    )


def test_where_others_jobs_are_hidden_leases_that_yield_are_refused(
    world: TickWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.change("lease", mode=LeaseMode.YIELD)
    world.submit()
    monkeypatch.setitem(programs._CONFIG, "PrivateData", "jobs,usage")  # noqa: SLF001
    hidden = replace(world.environment, uid=UID or 1000)

    with pytest.raises(BadConfigurationError, match="hides other users' jobs") as said:
        tick(world.site, hidden)

    assert exit_code(said.value) == 78
    assert "preempt" in str(said.value)
    assert not world.slurm.calls("sbatch")
    assert hidden_queue(Mode.YIELD, sees_all=lambda: False)
    assert not hidden_queue(Mode.PREEMPT, sees_all=lambda: False)
    assert not hidden_queue(Mode.YIELD, sees_all=lambda: True)


@pytest.mark.parametrize(
    ("uid", "is_hidden"),
    [(0, False), (64030, False), (1000, True)],
    ids=["root", "SlurmUser", "another"],
)
def test_slurm_user_and_root_see_all_jobs_and_are_not_asked_for(
    world: TickWorld, uid: int, *, is_hidden: bool
) -> None:
    private = replace(CONFIG, private_data=("jobs",), slurm_uid=64030)
    backend = world.connect(1)

    sees_all = sees_all_jobs(private, backend, uid=uid, user=world.environment.user)

    assert (not sees_all, backend.requests > 0) == (is_hidden, is_hidden)
    assert sees_all_jobs(CONFIG, backend, uid=uid, user="")


@pytest.mark.parametrize("level", ["Operator", "Administrator"])
def test_operators_of_slurm_see_all_jobs_and_may_yield(
    world: TickWorld, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    world.change("lease", mode=LeaseMode.YIELD)
    monkeypatch.setitem(programs._CONFIG, "PrivateData", "jobs,usage")  # noqa: SLF001
    with keeping.opened(world.slurm.folder) as cluster:
        cluster.admin_level = level
        user = cluster.user
    ours = replace(world.environment, uid=UID or 1000, user=user)

    def room() -> Room:
        backend = world.connect(99)
        return make_room(world.site, ours, backend, is_dry=False, notified_before={})

    assert room().seen.config.private_data == ("jobs", "usage")
    with keeping.opened(world.slurm.folder) as cluster:
        cluster.shows_limits = False  # where it cannot be known
    with pytest.raises(BadConfigurationError, match="adminlevel=operator"):
        room()


# Leases that end sooner.


class Ends:
    """Slurm's ends of jobs; what was set, in order."""

    def __init__(self) -> None:
        self.set: list[tuple[list[int], float]] = []

    def end_by(self, jobs: Sequence[JobKey], end_s: float) -> None:
        self.set.append(([job.job_id for job in jobs], end_s - NOW_S))


def test_a_look_sets_eight_ends_of_our_leases_and_the_next_the_others(
    world: TickWorld,
) -> None:
    ours = [lease(ANN, f"n{k}", start_s=NOW_S - 60 * k) for k in range(1, 11)]
    jobs = (*ours, lease(BEN, "n11"))
    ends = {job.nodes: SoonerEnd(NOW_S + 600.0 + k, 1) for k, job in enumerate(jobs)}
    claims = replace(NO_CLAIMS, sooner_ends=ends)
    seen = view_of(SITE, CONFIG, cluster("n1:ALLOCATED", *jobs))
    slurm = Ends()
    room = Room(
        seen=seen,
        claims=claims,
        environment=replace(world.environment, uid=ANN),
        backend=cast("SlurmBackend", slurm),
        is_dry=False,
    )
    dry = replace(room, is_dry=True, new_ends_s={})

    def look(room: Room) -> list[tuple[list[int], float]]:
        before = len(slurm.set)
        set_sooner_ends(room, claims)
        return slurm.set[before:]

    assert look(dry) == []
    assert len(dry.new_ends_s) == MOST_ENDS_SET
    sent = [([job.job_id], 600.0 + k) for k, job in enumerate(ours)]
    assert look(room) == sent[:8]
    assert look(room) == sent[8:]
    assert len(room.new_ends_s) == len(ours)


def test_where_ends_cannot_be_moved_our_leases_go_and_others_users_do_not() -> None:
    ends = {name: SoonerEnd(NOW_S + 600.0, 1) for name in ("n1", "n2")}
    claims = replace(NO_CLAIMS, sooner_ends=ends).without_sooner_ends(["n1"])
    assert (set(claims.leased), set(claims.sooner_ends)) == ({"n1"}, {"n2"})
