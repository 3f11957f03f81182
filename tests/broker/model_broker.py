"""A broker over the model of Slurm: its disk, its ticks, and how they go wrong."""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from freetrain.broker.backfill import BackfillState
from freetrain.broker.belief import Sources, believe
from freetrain.broker.decide import Decision, decide_leases
from freetrain.broker.lease import (
    Assignment,
    Intent,
    IntentState,
    Lease,
    LeaseKey,
    job_name,
    submitted_leases,
)
from freetrain.broker.limits import Limits, Mode
from freetrain.broker.pool import Situation, Trainer
from freetrain.broker.reconcile import (
    Action,
    EndLeases,
    Submit,
    intent_of,
    marked_ending,
)
from freetrain.broker.yielding import NO_CLAIMS, Claims, find_claims
from freetrain.planning.freetrain import FreeTrain
from freetrain.planning.policy import Policy
from slurm.records import JobRecord, Node
from tests.broker.model_slurm import UID, ModelSlurm
from tests.planning.requests import TOOLS

SHAPE = "any"


class Answer(StrEnum):
    """How sbatch behaves."""

    GOOD = "good"
    LOST = "taken at once, but the answer is lost"
    LATE = "taken a while after the time-out"
    NEVER = "never taken, and no answer"
    REFUSED = "refused"


class KilledError(Exception):
    """The broker died here."""


@dataclass(slots=True)
class ModelBroker:
    """The broker's disk, and what it does with it.

    Attributes:
        slurm: The cluster.
        trainers: Trainers that want nodes; their assignments are the disk's.
        limits: Caps.
        steps_left: Steps until the broker is killed; None for never.
        answer: How sbatch behaves.
        lost: Jobs, by name and task, that were believed gone while they were there.
    """

    slurm: ModelSlurm
    trainers: tuple[Trainer, ...]
    limits: Limits
    intents: dict[str, Intent] = field(default_factory=dict)
    leases: dict[LeaseKey, Lease] = field(default_factory=dict)
    assignments: dict[str, Assignment] = field(default_factory=dict)
    policy: Policy = field(default_factory=lambda: FreeTrain(TOOLS))
    steps_left: int | None = None
    answer: Answer = Answer.GOOD
    submitted: int = 0
    lost: set[tuple[str, int]] = field(default_factory=set)

    def tick(
        self, *, sees_queue: bool = True, sees_jobs: bool = True
    ) -> Decision | None:
        """Run one tick; None where it stopped or was killed."""
        if not sees_queue:
            return None  # no snapshot: nothing is decided
        try:
            return self._tick(sees_jobs=sees_jobs)
        except KilledError:
            return None
        finally:
            self.steps_left = None

    def _tick(self, *, sees_jobs: bool) -> Decision:
        look = self.look(sees_jobs=sees_jobs)
        self.leases = {lease.key: lease for lease in look.belief.leases}
        self.intents = {intent.uuid: intent for intent in look.belief.intents}
        decision = decide_leases(look, self.policy, self.limits, t_fwd_s=1_000.0)
        for action in decision.actions:
            self._do(action)
        return decision

    def look(self, *, sees_jobs: bool = True) -> Situation:
        queue = self.slurm.queue()
        lookup = self.slurm.lookup() if sees_jobs else None
        belief = believe(
            self.leases.values(),
            self.intents.values(),
            Sources(UID, queue, lookup),
            now_s=self.slurm.now_s,
            limits=self.limits,
        )
        return Situation(
            now_s=self.slurm.now_s,
            holes={SHAPE: self.slurm.holes()},
            widths={SHAPE: 1} if self.slurm.gpus > 1 else {},
            belief=belief,
            trainers=tuple(
                replace(trainer, assignment=self.assignments.get(trainer.name))
                for trainer in self.trainers
            ),
            assignments=tuple(self.assignments.values()),
            claims=self._claims(queue),
        )

    def _claims(self, queue: tuple[JobRecord, ...]) -> Claims:
        if self.limits.mode is Mode.PREEMPT:
            return NO_CLAIMS
        leased = frozenset(job.node for job in self.slurm.ours() if job.node)
        nodes = {name: _node(name) for name in self.slurm.nodes}
        ground = BackfillState(self.slurm.holes(), nodes, leased)
        now_s = self.slurm.now_s
        return find_claims(queue, ground, is_ours=_is_ours, now_s=now_s)

    def _step(self) -> None:
        """One step that reaches the world; the broker may die before it."""
        if self.steps_left is not None:
            self.steps_left -= 1
            if self.steps_left < 0:
                raise KilledError

    def _do(self, action: Action) -> None:
        if isinstance(action, Assignment):
            self._step()
            self.assignments[action.trainer] = action
        elif isinstance(action, EndLeases):
            self._cancel(action)
        else:
            self._submit(action)

    def _cancel(self, cancel: EndLeases) -> None:
        self._step()
        self.slurm.cancel(cancel.display_ids, gentle=cancel.by_notice)
        self._step()
        for key in cancel.leases:
            self.leases[key] = marked_ending(self.leases[key], cancel, self.slurm.now_s)

    def _submit(self, submit: Submit) -> None:
        self.submitted += 1
        uuid = f"{self.submitted:032x}"
        intent = intent_of(submit, uuid, self.slurm.now_s)
        self._step()
        self.intents[uuid] = intent
        self._step()
        job_id = self._sbatch(intent)
        self._step()
        if self.answer is Answer.REFUSED:
            self.intents[uuid] = replace(intent, state=IntentState.REFUSED)
        if job_id is not None:
            taken = replace(intent, state=IntentState.SUBMITTED, job_id=job_id)
            self.intents[uuid] = taken
            new = submitted_leases(taken, job_id)
            self.leases |= {lease.key: lease for lease in new}

    def _sbatch(self, intent: Intent) -> int | None:
        name, limit_s = job_name(intent.uuid), 60.0 * intent.limit_min
        asked = (name, intent.tasks, limit_s, intent.deadline_s)
        if self.answer is Answer.LATE:
            self.slurm.submit_late(40.0, *asked)
        if self.answer is Answer.LOST:
            self.slurm.submit(*asked)
        return self.slurm.submit(*asked) if self.answer is Answer.GOOD else None


def _is_ours(job: JobRecord) -> bool:
    return job.uid == UID


def _node(name: str) -> Node:
    return Node(name=name, states=frozenset(), partitions=("p",))
