"""The broker over random histories of a model of Slurm."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freetrain.broker.lease import job_name
from freetrain.broker.limits import Limits, Mode
from freetrain.broker.pool import Trainer
from milp.problem import throughput
from tests.broker.model_broker import SHAPE, Answer, ModelBroker
from tests.broker.model_slurm import OTHER_UID, UID, ModelSlurm

NODES = tuple(f"n{i}" for i in range(6))
EVENTS = (
    "wait",
    "preempt",
    "theirs",
    "their wait",
    "their end",
    "close",
    "open",
    "hide",
)


def trainer(name: str, most: int, sizes: tuple[int, ...] | None = None) -> Trainer:
    curve = throughput([10.0 * n**0.9 for n in range(most + 1)], sizes)
    return Trainer(name, curve, SHAPE, 5.0, 5.0, 5.0)


def broker(*, gpus: int = 1, **limits: object) -> ModelBroker:
    preempts = limits.get("mode") is not Mode.YIELD
    slurm = ModelSlurm(NODES, preempts=preempts, gpus=gpus)
    trainers = (trainer("a", 4), trainer("b", 4, (2, 4)))
    settled = replace(Limits(most_leases=5), **limits)  # type: ignore[arg-type]
    return ModelBroker(slurm, trainers, settled)


def happen(data: st.DataObject, slurm: ModelSlurm) -> None:
    """Let something happen in the world."""
    event = data.draw(st.sampled_from(EVENTS))
    node = data.draw(st.sampled_from(NODES))
    slurm.unseen.clear()
    if event == "preempt":
        slurm.preempt(node)
    elif event == "theirs" and slurm.free(node):
        slurm.other(node, gpus=slurm.free(node))
    elif event == "their wait":
        gpus = data.draw(st.integers(1, slurm.gpus))
        slurm.other(node, is_waiting=True, gpus=gpus)
    elif event == "their end":
        for job in slurm.holding(node):
            if job.uid != UID:
                job.end_s = slurm.now_s
    elif event == "close":
        slurm.ends_s[node] = slurm.now_s + data.draw(st.sampled_from([100.0, 900.0]))
    elif event == "open":
        slurm.ends_s.pop(node, None)
    elif event == "hide":
        slurm.unseen = {job.job_id for job in slurm.ours()}
    slurm.pass_time(data.draw(st.sampled_from([1.0, 20.0, 70.0])))


def check(world: ModelBroker, *, was_whole: bool = True) -> None:
    """What must hold after each tick, however it went."""
    slurm, leases = world.slurm, world.leases.values()
    live = Counter((job.name, job.task) for job in slurm.ours())
    assert all(count == 1 for count in live.values()), live
    # Before Slurm has shown a task, its lease has no job number.
    gone = {(job_name(one.key.uuid), one.key.task) for one in leases if not one.is_live}
    lost = gone & live.keys()
    assert not lost or slurm.unseen
    # The cap binds what is asked for: what was lost and comes back stays beyond it.
    world.lost |= lost
    assert len(live.keys() - world.lost) <= world.limits.most_leases
    ours = [job for job in slurm.ours() if (job.name, job.task) not in world.lost]
    staying = [job for job in ours if not job.was_told]
    # What came late, or was adopted by a tick that was killed, the next gives back.
    most = len(NODES) * slurm.gpus
    assert not was_whole or len(staying) <= most, "more leases than nodes"
    held = Counter(key for one in world.assignments.values() for key in one.leases)
    assert all(count == 1 for count in held.values()), held


def settle(world: ModelBroker) -> None:
    """Let the world stand still until the broker must have put it right.

    A lease may end by its limit at the last moment: then until it has been replaced.
    """
    world.answer = Answer.GOOD
    world.slurm.unseen.clear()
    world.slurm.ends_s.clear()
    for ticks in range(24):
        world.slurm.pass_time(30.0)
        done = world.tick()
        check(world)
        if ticks >= 11 and done is not None and not done.actions:
            return


@pytest.mark.parametrize(
    ("mode", "gpus"), [(Mode.PREEMPT, 1), (Mode.YIELD, 1), (Mode.PREEMPT, 3)]
)
@settings(max_examples=120)
@given(data=st.data())
def test_whatever_happens_the_broker_puts_it_right(
    mode: Mode, gpus: int, data: st.DataObject
) -> None:
    cap = data.draw(st.sampled_from([5, 64]))
    world = broker(mode=mode, most_leases=cap, gpus=gpus)

    for _ in range(data.draw(st.integers(1, 8))):
        happen(data, world.slurm)
        world.answer = data.draw(st.sampled_from(Answer))
        world.steps_left = data.draw(st.none() | st.integers(0, 9))
        done = world.tick(
            sees_queue=data.draw(st.booleans()), sees_jobs=data.draw(st.booleans())
        )
        check(world, was_whole=done is not None)
    theirs = [job for job in world.slurm.jobs if job.uid == OTHER_UID]
    settle(world)

    assert world.slurm.late == []
    assert {job.state.value for job in theirs} <= {"COMPLETED"}
    trained_on = sum(len(one.leases) for one in world.assignments.values())
    wanted = 6 if gpus == 1 else 8  # of six nodes, or of all that trainers can use
    assert min(wanted, cap) <= trained_on <= min(wanted, cap + len(world.lost))
    assert {job.job_id for job in world.slurm.ours()} == {
        lease.job_id for lease in world.leases.values() if lease.is_live
    }
    again = world.tick()
    assert again is not None
    assert again.actions == ()


@settings(max_examples=60)
@given(data=st.data())
def test_ticks_in_the_same_moment_repeat_nothing(data: st.DataObject) -> None:
    world = broker(most_calls=100)
    for _ in range(data.draw(st.integers(1, 6))):
        happen(data, world.slurm)
        world.slurm.unseen.clear()

        # Cancelling what waits for too long a hole makes room for one that fits.
        done = [world.tick() for _ in range(3)]

        actions = [tick.actions for tick in done if tick is not None]
        assert not set(actions[0]) & set(actions[1])
        assert actions[2] == ()


@pytest.mark.parametrize("answer", list(Answer))
@pytest.mark.parametrize("steps", range(12))
def test_a_broker_killed_at_any_step_is_put_right_by_the_next(
    steps: int, answer: Answer
) -> None:
    world = broker(most_array_tasks=2)
    world.answer = answer
    world.steps_left = steps
    world.tick()
    check(world)
    settle(world)
    assert len(world.slurm.ours()) == 5
    assert sum(len(one.leases) for one in world.assignments.values()) == 5
