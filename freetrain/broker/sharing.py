"""Leases of all users as one pool: which go first, whose broker is deaf, who gets more.

No broker talks to another. All read the same queue, and from the same queue
``pool_order``, the order in which leases give way to other jobs, and ``share_of``, how
many nodes each user may have, are the same for every broker. ``CallMemory`` finds the
brokers that do not answer, so that others step in for them, by the queues that its own
broker saw. Brokers know users by number: the *owner* of a lease.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import TYPE_CHECKING

from freetrain.broker.backfill import startable_tasks
from freetrain.broker.lease import is_lease, parse_comment
from slurm.records import JobState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from freetrain.broker.lease import Lease
    from slurm.records import JobRecord

    Weights = Mapping[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledLease:
    """A lease of any user's FreeTrain, as the queue shows it; times are Unix seconds.

    Attributes:
        job_id: Its raw number.
        owner: Its user's number.
        node: The node it holds; empty while it waits.
        submit_s: When it was submitted.
        end_s: When its time limit ends it; ``math.inf`` where that is unknown.
        is_pooled: Whether its comment says that its broker gives it up for the pool.
        is_leaving: Whether it has ended and its node comes free in a moment.
        want: Nodes that its owner's trainers could use, as its comment says.
        beat_s: When its owner's broker last ticked, as its comment says.
        recent_node_s: Its owner's recent use by then, node-seconds, as its comment
            says (``recent_use``).
    """

    job_id: int
    owner: int
    node: str = ""
    submit_s: float = 0.0
    end_s: float = math.inf
    is_pooled: bool = True
    is_leaving: bool = False
    want: int | None = None
    beat_s: float | None = None
    recent_node_s: float | None = None

    @property
    def runs(self) -> bool:
        """Whether it holds a node, and may go on doing so."""
        return bool(self.node) and not self.is_leaving


OVERDUE_S = 60.0
"""A lease that ended longer ago and still holds its node holds it for long: an epilog
hangs, or the node does not answer."""


def leases_in(jobs: Iterable[JobRecord], *, now_s: float) -> tuple[PooledLease, ...]:
    """Return the leases of all users among *jobs*, each waiting task by itself.

    A job of several nodes is none, whatever its name.
    """
    return tuple(
        lease
        for job in jobs
        if is_lease(job) and job.uid is not None
        for lease in _leases_of(job, job.uid, now_s)
    )


def _leases_of(job: JobRecord, owner: int, now_s: float) -> Iterator[PooledLease]:
    if not job.is_pending and not (job.holds_nodes and job.node_count <= 1):
        return
    said = parse_comment(job.comment)
    is_leaving = JobState.COMPLETING in job.states
    if is_leaving and (job.end_s is None or now_s - job.end_s > OVERDUE_S):
        return
    if not job.is_pending and not is_leaving and JobState.RUNNING not in job.states:
        return
    lease = PooledLease(
        job_id=job.job_id,
        owner=owner,
        node="" if job.is_pending else job.nodes,
        submit_s=job.submit_s or 0.0,
        end_s=math.inf if job.end_s is None else job.end_s,
        is_pooled=said is not None and said.is_pooled,
        is_leaving=is_leaving,
        want=None if said is None else said.want,
        beat_s=None if said is None else said.beat_s,
        recent_node_s=None if said is None else said.recent_node_s,
    )
    waiting = startable_tasks(job, most=MOST_WAITING) if job.is_pending else 1
    yield from repeat(lease, waiting)


def movable(
    leases: Iterable[PooledLease], *, owner: int, deaf: Collection[int]
) -> tuple[PooledLease, ...]:
    """Return the leases on nodes that give way when they are called.

    *owner*'s own always do. Those of deaf brokers, and of versions that know of no
    pool, are like any other job that runs.
    """
    return tuple(
        lease
        for lease in leases
        if lease.node
        and (lease.owner == owner or (lease.is_pooled and lease.owner not in deaf))
    )


def pool_order(
    leases: Iterable[PooledLease], weights: Weights
) -> tuple[PooledLease, ...]:
    """Return *leases* in the order in which they give way.

    The owner with most leases left, by its weight, gives the one that ends soonest,
    again and again. So whatever part of a call was carried out, the rest of it stays
    the same. Those that leave already are left out.
    """
    order = []
    by_owner: dict[int, list[PooledLease]] = {}
    for lease in leases:
        if lease.runs:
            by_owner.setdefault(lease.owner, []).append(lease)
    for own in by_owner.values():
        own.sort(key=_soonest_end, reverse=True)
    heap = [
        (-len(own) / _weight(weights, owner), owner) for owner, own in by_owner.items()
    ]
    heapq.heapify(heap)
    while heap:
        owner = heapq.heappop(heap)[1]
        own = by_owner[owner]
        order.append(own.pop())
        if own:
            heapq.heappush(heap, (-len(own) / _weight(weights, owner), owner))
    return tuple(order)


def _soonest_end(lease: PooledLease) -> tuple[float, int]:
    return (lease.end_s, lease.job_id)


def _weight(weights: Weights, owner: int) -> float:
    return weights.get(owner, 1.0)


# Brokers that do not answer.

OWNER_ANSWERS_S = 80.0
"""A broker that only ticks answers within so long: cron's minute, and 20 s by which one
tick may take longer than another."""

LOOK_SLACK_S = 15.0
"""A broker that looks before each cycle of backfill answers within a cycle and so long:
its look comes up to 5 s before, and a lease may take 10 s to commit and end."""

OWNER_SILENT_S = OWNER_ANSWERS_S + 20.0
"""Beats older than this come from no living broker. The 20 s beyond a tick are for
cron, whose minutes are not exact (systemd's timers, a login node under load), and for
the commands between a tick's snapshot and its beat."""


def signs_of(leases: Iterable[PooledLease], *, now_s: float) -> dict[int, float]:
    """Return when each owner's broker last showed that it lives, Unix time.

    It does so by a beat or by submitting. A beat from the future counts as of now.
    """
    signs: dict[int, float] = {}
    for lease in leases:
        if lease.is_pooled:
            beat_s = lease.submit_s if lease.beat_s is None else lease.beat_s
            sign_s = min(now_s, max(beat_s, lease.submit_s))
            signs[lease.owner] = max(sign_s, signs.get(lease.owner, -math.inf))
    return signs


def silent_owners(leases: Iterable[PooledLease], *, now_s: float) -> frozenset[int]:
    """Return the owners whose last sign is older than a living broker's."""
    signs = signs_of(leases, now_s=now_s)
    return frozenset(owner for owner, s in signs.items() if now_s - s > OWNER_SILENT_S)


@dataclass(frozen=True, slots=True)
class SeenOwner:
    """What was seen of one owner's broker.

    Attributes:
        sign_s: Its last sign of life, Unix time.
        gap_s: Time between its last two signs, between which it had leases: how often
            it beats. None before there were two.
        deaf_s: Since when it counts as deaf, Unix time; None where it does not.
        want: Nodes that its trainers could use, as it said last.
        kept_until_s: Until when its share is kept though it has no leases, Unix time;
            None while it has some.
    """

    sign_s: float
    gap_s: float | None = None
    deaf_s: float | None = None
    want: int = 0
    kept_until_s: float | None = None


@dataclass(frozen=True, slots=True)
class CallMemory:
    """Which leases of others were called, and who did not answer; kept between ticks.

    Attributes:
        called_s: By a lease's raw number: since when others wait for its node, Unix
            time.
        owners: What was seen of each owner's broker.
    """

    called_s: Mapping[int, float] = field(default_factory=dict)
    owners: Mapping[int, SeenOwner] = field(default_factory=dict)

    @property
    def deaf(self) -> frozenset[int]:
        """Owners whose brokers did not answer a call, and showed no sign since."""
        return frozenset(
            o for o, seen in self.owners.items() if seen.deaf_s is not None
        )

    @property
    def away(self) -> dict[int, int]:
        """What owners want whose share is kept for them, by owner."""
        return {
            owner: seen.want
            for owner, seen in self.owners.items()
            if seen.kept_until_s is not None
        }

    def after_signs(self, leases: Iterable[PooledLease], *, now_s: float) -> CallMemory:
        """Return the memory with all signs of life; a new sign ends deafness.

        An owner whose leases all went, as other jobs needed their nodes, will ask again
        as soon as nodes are idle: its share is kept for as long as a tick may take.
        Otherwise the first to tick would take all, and give it up again.
        """
        leases = tuple(leases)
        wants = _wants(leases)
        owners = {
            owner: replace(_seen(self.owners.get(owner), sign_s), want=wants[owner])
            for owner, sign_s in signs_of(leases, now_s=now_s).items()
        }
        for owner, seen in self.owners.items():
            until_s = seen.kept_until_s
            if (
                until_s is None
                and seen.deaf_s is None
                and now_s - seen.sign_s <= OWNER_SILENT_S
            ):
                until_s = now_s + OWNER_ANSWERS_S
            if owner not in owners and until_s is not None and now_s <= until_s:
                owners[owner] = replace(seen, kept_until_s=until_s)
        return CallMemory(self.called_s, owners)

    def with_shares_kept(self, *, now_s: float) -> CallMemory:
        """Return the memory after a look at which no broker may ask for a node.

        The time for which shares are kept has not begun.
        """
        owners = {
            owner: seen
            if seen.kept_until_s is None
            else replace(seen, kept_until_s=now_s + OWNER_ANSWERS_S)
            for owner, seen in self.owners.items()
        }
        return CallMemory(self.called_s, owners)

    def after_calls(
        self,
        called: Iterable[PooledLease],
        *,
        now_s: float,
        bf_interval_s: float,
    ) -> CallMemory:
        """Return the memory after *called* leases of others were seen to be in the way.

        An owner is deaf whose lease has stayed for longer than its broker may take.

        Args:
            called: Leases of other owners on whose nodes jobs could start now.
            now_s: Time of the snapshot, Unix time.
            bf_interval_s: Seconds between two cycles of backfill.
        """
        called_s: dict[int, float] = {}
        owners = dict(self.owners)
        for lease in called:
            since_s = min(now_s, self.called_s.get(lease.job_id, now_s))
            called_s[lease.job_id] = since_s
            seen = owners.get(lease.owner, SeenOwner(lease.submit_s))
            if now_s - since_s >= _patience_s(seen, bf_interval_s):
                owners[lease.owner] = replace(seen, deaf_s=now_s)
        return CallMemory(called_s, owners)


def _wants(leases: Iterable[PooledLease]) -> dict[int, int]:
    wants: dict[int, int] = {}
    for lease in leases:
        wants[lease.owner] = max(wants.get(lease.owner, 0), lease.want or 0)
    return wants


def _seen(before: SeenOwner | None, sign_s: float) -> SeenOwner:
    if before is None:
        return SeenOwner(sign_s)
    if sign_s <= before.sign_s:
        return before
    deaf_s = before.deaf_s
    if deaf_s is not None and sign_s > deaf_s:
        deaf_s = None
    was_away = before.kept_until_s is not None
    return SeenOwner(sign_s, None if was_away else sign_s - before.sign_s, deaf_s)


def _patience_s(seen: SeenOwner, bf_interval_s: float) -> float:
    """Return how long a living broker takes to answer a call, by how often it beats."""
    look_s = bf_interval_s + LOOK_SLACK_S
    looks = seen.gap_s is not None and seen.gap_s <= look_s
    return min(look_s, OWNER_ANSWERS_S) if looks else OWNER_ANSWERS_S


# Shares.

MOST_WAITING = 8
"""Leases that wait where nothing is idle: enough to show others what is lacking, few
enough not to burden Slurm's queue."""

DWELL_S = 25.0
"""Requests younger than this are given nothing: a lease that finds a node by itself
starts sooner, and asking and cancelling should cost others nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasePool:
    """The leases of all users, and the nodes that they share.

    Attributes:
        leases: Those that run and those that wait.
        idle: How many nodes are idle, or about to be, that no other job claims.
        now_s: Time of the snapshot, Unix time.
        deaf: Owners whose brokers do not answer.
        weights: By owner; 1 where there is none.
        most: Leases that all users together may have; None for any number.
        away: Owners without leases whose share is kept for them, and what they want.
    """

    leases: tuple[PooledLease, ...]
    idle: int
    now_s: float
    deaf: frozenset[int] = frozenset()
    weights: Weights = field(default_factory=dict)
    most: int | None = None
    away: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How many nodes one owner may have, as all brokers work it out.

    Attributes:
        nodes: Its fair share.
        may_ask: How many leases it may ask for now beyond those that run and wait.
        may_wait: How many of its leases may wait; more would take what others lack.
        is_full: Whether nothing is idle, so that leases wait for what others give.
        gives: How many of its leases it gives to others.
        binds: Whether it may have fewer than it wants, or all together are capped.
    """

    nodes: int
    may_ask: int
    may_wait: int = 0
    is_full: bool = False
    gives: int = 0
    binds: bool = True


@dataclass(slots=True)
class _Owner:
    """One living owner; ``asks`` are its leases that have waited for long enough."""

    have: int = 0
    waits: int = 0
    asks: int = 0
    want: int = 0
    share: int = 0
    gives: int = 0
    gets: int = 0
    beat_s: float = -math.inf
    recent_node_s: float | None = 0.0


def share_of(pool: LeasePool, *, owner: int, want: int) -> Share | None:
    """Return the share of *owner*; None where nothing is to be shared.

    What all living owners hold, and the idle nodes, are dealt out by what each wants
    (``dealt``); whole nodes that cannot be split go around, by recent use.
    Owners that have more than their shares give leases to those that have less and have
    waited for a while.

    Args:
        pool: All leases.
        owner: Whose share is asked for.
        want: Nodes that its trainers could use.
    """
    alive = [
        lease
        for lease in pool.leases
        if lease.owner == owner or (lease.is_pooled and lease.owner not in pool.deaf)
    ]
    owners = _owners(alive, now_s=pool.now_s)
    for number, wants in pool.away.items():
        owners.setdefault(number, _Owner(want=wants))
    mine = owners.setdefault(owner, _Owner())
    mine.want = want
    if len(owners) == 1 and pool.most is None:
        return None
    have = sum(one.have for one in owners.values())
    capacity = have + pool.idle
    if pool.most is not None:
        beside = sum(lease.runs for lease in pool.leases) - have
        capacity = min(capacity, max(0, pool.most - beside))
    is_capped = capacity < have + pool.idle
    goes_around = _deal(owners, capacity, pool.weights)
    _give(
        owners,
        pool.weights,
        room=capacity - have,
        is_capped=is_capped,
        goes_around=goes_around,
    )
    lacks = max(0, mine.share - mine.have)
    may_ask = _within_cap(pool, mine, max(0, lacks - mine.waits))
    is_full = pool.idle == 0
    if is_full:
        may_ask = min(may_ask, max(0, MOST_WAITING - mine.waits))
    return Share(
        nodes=mine.share,
        may_ask=may_ask,
        may_wait=min(lacks, MOST_WAITING) if is_full else lacks,
        is_full=is_full,
        gives=mine.gives,
        binds=mine.share < want or pool.most is not None,
    )


def _owners(alive: Iterable[PooledLease], *, now_s: float) -> dict[int, _Owner]:
    owners: dict[int, _Owner] = {}
    for lease in alive:
        one = owners.setdefault(lease.owner, _Owner(recent_node_s=None))
        one.want = max(one.want, lease.want or 0)
        beat_s = lease.beat_s or 0.0
        if lease.recent_node_s is not None and beat_s >= one.beat_s:
            one.beat_s, one.recent_node_s = beat_s, lease.recent_node_s
        if lease.runs:
            one.have += 1
        elif not lease.node:
            one.waits += 1
            one.asks += now_s - lease.submit_s >= DWELL_S
    for one in owners.values():
        one.want = max(one.want, one.have + one.waits)
    return owners


RECENT_S = 900.0
"""Recent use is that of the last quarter of an hour: it decides who gets the nodes that
cannot be split evenly. Chosen on seeds 11 to 14 and 21 to 32 of the simulation of
``tests/broker/test_many_brokers.py``; with five minutes more users fall behind."""

HANDOVER_S = 120.0
"""An owner keeps such a node until it is this many node-seconds ahead, or a tenth of
the owners' mean recent use: each handover stops two trainers for a moment."""


def recent_use(leases: Iterable[Lease], *, now_s: float) -> float:
    """Return node-seconds of our *leases*, ended ones too, in the last ``RECENT_S``."""
    recent_node_s = 0.0
    for lease in leases:
        if lease.start_s is not None:
            ends_s = (lease.end_s, lease.missed_s, now_s)
            until_s = min(end_s for end_s in ends_s if end_s is not None)
            since_s = max(lease.start_s, now_s - RECENT_S)
            recent_node_s += max(0.0, until_s - since_s)
    return recent_node_s


def _deal(owners: Mapping[int, _Owner], capacity: int, weights: Weights) -> bool:
    """Set all shares; return whether nodes go around by recent use.

    They do where all brokers announce theirs; those of the version before do not.
    """
    used_s = {
        number: one.recent_node_s
        for number, one in owners.items()
        if one.recent_node_s is not None
    }
    goes_around = used_s.keys() == owners.keys()
    mean_s = sum(used_s.values()) / max(1, len(used_s))
    ahead_s = max(HANDOVER_S, mean_s / 10)

    def counted_s(number: int, nodes: int) -> float:
        if not goes_around:
            return 0.0
        keeps_s = ahead_s if owners[number].have >= nodes else 0.0
        return (used_s[number] - keeps_s) / _weight(weights, number)

    wants = {number: one.want for number, one in owners.items()}
    for number, share in dealt(capacity, wants, weights, counted_s).items():
        owners[number].share = share
    return goes_around


def dealt(
    capacity: int,
    wants: Mapping[int, int],
    weights: Weights,
    counted_s: Callable[[int, int], float] = lambda _owner, _nodes: 0.0,
) -> dict[int, int]:
    """Deal *capacity* nodes out, one by one, to those who have least by their weight.

    This is max-min fairness in whole nodes: no owner gets more than it wants, and what
    it leaves goes to the others.

    Args:
        capacity: How many nodes.
        wants: How many each owner could use.
        weights: By owner.
        counted_s: An owner's recent use, given how many nodes it would have with the
            next; of equals it decides, and then the smaller number.
    """
    shares = dict.fromkeys(wants, 0)

    def turn(owner: int) -> tuple[float, float, int]:
        nodes = shares[owner] + 1
        return (nodes / _weight(weights, owner), counted_s(owner, nodes), owner)

    heap = [turn(owner) for owner, want in wants.items() if want > 0]
    heapq.heapify(heap)
    for _ in range(capacity):
        if not heap:
            break
        owner = heapq.heappop(heap)[-1]
        shares[owner] += 1
        if shares[owner] < wants[owner]:
            heapq.heappush(heap, turn(owner))
    return shares


def _give(
    owners: Mapping[int, _Owner],
    weights: Weights,
    *,
    room: int,
    is_capped: bool,
    goes_around: bool,
) -> None:
    """Work out how many leases each owner gives, and who gets them.

    Args:
        owners: All living ones, with their shares.
        weights: By owner.
        room: Nodes that are dealt out and that no owner holds; below 0 where more are
            held than may be.
        is_capped: Whether all together may have no more; then waiting takes no node
            that comes free, and wants count in place of requests.
        goes_around: Whether a node is given also where that evens nothing out.
    """
    while room < 0:
        donor = _donor(owners, weights)
        if donor is None:
            return
        owners[donor].gives += 1
        room += 1
    for number in _hungry(owners, weights, is_capped=is_capped):
        if room > 0:
            room -= 1
            owners[number].gets += 1
            continue
        donor = _donor(owners, weights)
        if donor is None:
            return
        if not goes_around and not _evens_out(owners, weights, donor, number):
            return
        owners[donor].gives += 1
        owners[number].gets += 1


def _hungry(
    owners: Mapping[int, _Owner], weights: Weights, *, is_capped: bool
) -> Iterator[int]:
    """Yield the owner that has least and lacks a node, again and again."""
    while True:
        lacking = [
            number
            for number, one in owners.items()
            if one.have + one.gets < one.share and (is_capped or one.gets < one.asks)
        ]
        if not lacking:
            return
        yield min(
            lacking,
            key=lambda n: (_level(owners[n], weights, n, more=owners[n].gets), n),
        )


def _donor(owners: Mapping[int, _Owner], weights: Weights) -> int | None:
    """Return the owner with most leases, by its weight, of those above their shares."""
    above = [n for n, one in owners.items() if one.have - one.gives > one.share]
    if not above:
        return None
    return max(
        above, key=lambda n: (_level(owners[n], weights, n, more=-owners[n].gives), -n)
    )


def _evens_out(
    owners: Mapping[int, _Owner], weights: Weights, donor: int, number: int
) -> bool:
    """Tell whether *donor* has no less than *number* once it gave one more.

    With equal weights it holds at least two more now.
    """
    left = _level(owners[donor], weights, donor, more=-owners[donor].gives - 1)
    got = _level(owners[number], weights, number, more=owners[number].gets + 1)
    return left >= got


def _level(one: _Owner, weights: Weights, number: int, *, more: int) -> float:
    return (one.have + more) / _weight(weights, number)


def _within_cap(pool: LeasePool, mine: _Owner, may_ask: int) -> int:
    """Return how many of *may_ask* leases fit under the cap on all users together.

    An owner with none may ask for one all the same: others see by it that it is there,
    and give up what is above their shares.
    """
    if pool.most is None:
        return may_ask
    fits = max(0, pool.most - sum(not lease.is_leaving for lease in pool.leases))
    if mine.have + mine.waits == 0:
        fits = max(1, fits)
    return min(may_ask, fits)
