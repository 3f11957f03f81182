"""Ticks beside another user's FreeTrain, on the fake Slurm: Bob's leases are pooled."""

from dataclasses import replace

import pytest
from msgspec import structs

from freetrain.broker.lease import LeaseComment, job_name, parse_comment, render_comment
from freetrain.broker.reasons import Brake, EndReason
from freetrain.broker.sharing import MOST_WAITING, OWNER_ANSWERS_S
from freetrain.config.site import LeaseMode, SiteCaps, SiteRules
from freetrain.demo.fake_slurm.cluster import FakeJob
from freetrain.state.tables import call_memory
from freetrain.tick.tick import tick
from slurm.backend import CommandLine, SlurmBackend
from slurm.errors import SlurmRefusedError
from tests.tick.tick_worlds import FakeRunner, TickWorld, running, theirs

BOB = "bob"


@pytest.fixture(autouse=True)
def yields(world: TickWorld) -> None:
    world.change("lease", mode=LeaseMode.YIELD, careful=False)


def said_by_bob(world: TickWorld, number: int) -> dict[str, object]:
    uuid = f"{number:032x}"
    said = LeaseComment(uuid=uuid, is_pooled=True, want=8, beat_s=world.now_s)
    return {"name": job_name(uuid), "comment": render_comment(said)}


def bobs(world: TickWorld, *nodes: str) -> None:
    """Let leases of Bob's run on *nodes*, for as long as he likes."""
    leases = [
        theirs(
            world,
            partition="main",
            run_s=9_000.0,
            limit_s=9_000.0,
            due_s=world.now_s,
            wanted=[node],
            **said_by_bob(world, number),
        )
        for number, node in enumerate(nodes, start=1)
    ]
    world.slurm.standin.add(leases)


def ours(world: TickWorld) -> list[FakeJob]:
    return [job for job in world.live() if job.user != BOB]


def told(world: TickWorld) -> int:
    return sum(bool(job.signals) for job in ours(world))


def test_each_tick_says_in_a_comment_that_it_lives_and_what_it_wants(
    world: TickWorld,
) -> None:
    running(world, most=3)
    world.now_s += 50.0
    world.tick()

    comments = {job.comment for job in ours(world)}
    (said,) = map(parse_comment, comments)
    assert said is not None
    assert (said.is_pooled, said.want) == (True, 3)
    assert said.beat_s is not None
    assert 0 <= world.now_s - said.beat_s <= 10.0


def test_the_comment_says_what_the_user_held_in_the_last_minutes(
    world: TickWorld,
) -> None:
    running(world, most=3)
    world.now_s += 50.0
    world.tick()
    world.now_s += 100.0
    world.tick()

    (said,) = {parse_comment(job.comment) for job in ours(world)}
    assert said is not None
    assert said.recent_node_s is not None
    assert 450.0 <= said.recent_node_s <= 600.0, (
        "three nodes, each for 150 s and a little"
    )


def test_after_a_job_of_all_nodes_another_users_share_is_left_idle_for_a_tick(
    world: TickWorld,
) -> None:
    bobs(world, "n5", "n6", "n7", "n8")
    running(world, most=8)
    assert len(ours(world)) == 4
    world.end_jobs()
    every = [f"n{k}" for k in range(1, 9)]
    job = theirs(world, partition="main", run_s=600.0, limit_s=600.0, wanted=every)
    world.slurm.standin.add([replace(job, due_s=world.now_s)])

    counts = []
    for _ in range(20):
        world.go_on(1, every_s=40.0)
        counts.append(len(ours(world)))

    assert set(counts) == {0, 4, 8}
    assert counts == sorted(counts)
    assert 1 <= counts.count(4) <= 4, "Bob did not ask within a tick"


def test_a_comment_that_slurm_refuses_is_told_and_changes_nothing_else(
    world: TickWorld,
) -> None:
    running(world, most=1)

    def connect(most: int) -> SlurmBackend:
        return Refusing(
            FakeRunner(world.slurm.folder, lambda: world.now_s), max_requests=most
        )

    environment = replace(world.environment, connect=connect)
    status = tick(world.site, environment).status

    (problem,) = status.problems
    assert "the plugin says no" in problem
    assert "wants 1 nodes" in problem
    assert status.trainers[0].nodes == 1


class Refusing(CommandLine):
    """A site whose plugin lets nobody change jobs."""

    def set_comment(self, job_id: int, comment: str) -> None:
        raise SlurmRefusedError(f"the plugin says no to {job_id} and {comment}")


def test_others_step_in_for_a_broker_that_leaves_a_call_unanswered(
    world: TickWorld,
) -> None:
    bobs(world, *(f"n{k}" for k in range(3, 9)))
    running(world, most=2)
    world.slurm.standin.add([theirs(world, run_s=9e3, limit_s=9e3)])

    world.go_on(1)
    assert told(world) == 0, "Bob holds most, and is to give"
    with world.reading() as state:
        assert len(call_memory(state).called_s) == 1
    world.go_on(1, every_s=OWNER_ANSWERS_S - 30.0)
    assert told(world) == 0
    world.go_on(1, every_s=40.0)

    assert told(world) == 1


def test_a_newcomer_on_a_full_machine_waits_for_its_share(world: TickWorld) -> None:
    bobs(world, *(f"n{k}" for k in range(1, 9)))
    world.submit(most=8)

    world.tick()
    status = world.status()

    waiting = [job for job in ours(world) if job.is_pending]
    assert len(waiting) == 4, "half of eight, and not asked for twice"
    assert len(waiting) <= MOST_WAITING
    assert status.brake == str(Brake.SHARE)


def test_what_is_above_our_share_goes_to_those_who_wait_for_theirs(
    world: TickWorld,
) -> None:
    running(world, most=8)
    asks = [
        theirs(world, nodes=[], run_s=9e3, limit_s=3e3, **said_by_bob(world, 50 + k))
        for k in range(8)
    ]
    world.slurm.standin.add(asks)
    world.go_on(1)
    assert told(world) == 0, "they have not waited for long yet"
    world.go_on(1, every_s=30.0)

    assert told(world) == 4
    assert len(world.newest().members) == 4, "the trainer left them first"
    uuid = ours(world)[0].name.removeprefix("freetrain-")
    gave = [e for e in world.events(uuid) if e.detail == str(EndReason.SHARED)]
    assert [(event.kind, event.leases) for event in gave] == [
        ("gave up leases by choice", 4)
    ]


def test_a_cap_for_all_users_together_is_kept(world: TickWorld) -> None:
    rules = SiteRules(caps=SiteCaps(leases=5))
    world.site = structs.replace(world.site, rules=rules)
    bobs(world, "n1", "n2", "n3")
    world.submit(most=8)

    for _ in range(3):
        world.go_on(1, every_s=30.0)

    assert len(ours(world)) == 2


def test_a_small_trainer_waits_with_no_more_leases_than_it_wants(
    world: TickWorld,
) -> None:
    bobs(world, *(f"n{k}" for k in range(1, 9)))
    world.submit(most=2)

    for _ in range(3):
        world.go_on(1, every_s=10.0)

    assert len(ours(world)) == 2
    assert world.status().brake != str(Brake.SHARE), "nothing binds it"
