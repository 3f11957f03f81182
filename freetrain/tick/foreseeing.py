"""What is expected of nodes: learned from this look, and kept for the next.

All of it is in the store, and written in the transaction of the look: a tick that is
killed before has seen nothing, one that is killed after has told it all.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from freetrain.broker.lease import LeaseKey, LeaseState
from freetrain.forecast.first_questions import check_answers
from freetrain.forecast.live import LiveForecast, Sight
from freetrain.forecast.promises import Promise
from freetrain.forecast.recent import KEPT, RecentAffinity
from freetrain.replay.policies.lookahead import HORIZON_S
from freetrain.store.forecasts import (
    Foreseen,
    add_departures,
    add_node_names,
    departures,
    drop_foreseen,
    foreseen_ended,
    foreseen_running,
    forget_forecasts,
    node_names,
    put_forecast,
    put_foreseen,
)
from freetrain.tick.leaves import leaves_of
from freetrain.tick.lookahead import Ahead, Foresight
from freetrain.tick.planners import InOrder
from freetrain.tick.recalling import recalled, taken_up
from milp.planner import Planner, SolverName
from slurm.idle import find_idle

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Mapping

    from freetrain.broker.lease import Lease
    from freetrain.tick.deserts import Deserts
    from freetrain.tick.leaves import Leaves
    from freetrain.tick.observe import Observed
    from freetrain.tick.run import Run
    from slurm.records import JobRecord

WAIT_S = 30.0
"""A lease starts in seconds, and is given to a trainer by the tick after: about so long
idle nodes train nobody, which those with a lease do at once."""

KEPT_S = 7 * 86_400.0
"""What was expected of leases is kept for a week."""

MOST_ENDED = 20
"""Leases that ended last are told on the page; the store has many more."""

LONGEST_S = 2.0
"""Longer than a search needs; whatever a proof would bring, others wait for ticks."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outlook:
    """What is expected of nodes at this look.

    Attributes:
        forecast: What was learned, this look included.
        pairs: Its departures.
        known_names: How many of its names the store has.
        told: What was expected of leases that run or ended last, as the store has it.
        ended: The latter, the newest first.
        leaves: Which leaf switches nodes are below; None where there are none.
        problem: Why what was kept could not be used; empty if it could.
        text: What is to be kept, JSON; empty until that is ``settled``.
        changes: What is told anew of leases, likewise.
    """

    forecast: LiveForecast
    pairs: RecentAffinity
    known_names: int
    told: Mapping[LeaseKey, Foreseen]
    ended: tuple[Foreseen, ...]
    leaves: Leaves | None = None
    problem: str = ""
    text: str = ""
    changes: tuple[Foreseen, ...] = ()

    def settled(self, observed: Observed) -> Outlook:
        """Return the same with what is to be kept, once plans were made by it.

        Whatever a forecaster fails at it fails at here, before others must rely on it.

        Raises:
            TypeError: What it would keep is nothing that JSON has.
        """
        kept = {"cluster": observed.config.cluster, **self.forecast.to_state()}
        if self.leaves is not None:
            kept["topology"] = self.leaves.to_state()
        try:
            text = json.dumps(kept, separators=(",", ":"))
        except TypeError as error:
            raise TypeError(
                f"to_state of the forecaster {kept['forecaster']!r} is no JSON: {error}"
            ) from error
        return replace(self, text=text, changes=tuple(_changes(self, observed)))

    @property
    def known_leaves(self) -> int:
        """How many leaf switches, or blocks, nodes are known to be below."""
        return 0 if self.leaves is None else len(self.leaves.told)

    @property
    def problems(self) -> tuple[str, ...]:
        """What could not be taken into account, for people."""
        of_leaves = "" if self.leaves is None else self.leaves.problem
        return tuple(filter(None, (self.problem, of_leaves)))


def foresee(
    run: Run, observed: Observed, *, is_ours: Callable[[JobRecord], bool]
) -> Outlook:
    """Return what is expected of nodes, learned from what was kept and from this look.

    Raises:
        StoreError: The state cannot be read.
        UnreadableOutputError: Slurm's lists of nodes cannot be read.
    """
    last, now_s = recalled(run.state, observed.config.cluster), observed.now_s
    topology = None if last.kept is None else last.kept.get("topology")
    leaves = leaves_of(run.backend, observed.config, topology, now_s=now_s)
    sight = _sight(observed, is_ours)

    def begin(kept: Mapping[str, Any] | None) -> _Begun:
        by_node = None if leaves is None else leaves.by_node
        begun = _begin(run.site.planner.forecaster, by_node, run.state, kept)
        begun.forecast.look(now_s, sight)
        if kept is not None:
            check_answers(begun.forecast, sight.idle, horizon_s=HORIZON_S)
        return begun

    begun, problem = taken_up(last, begin)
    ended = foreseen_ended(run.state, most=MOST_ENDED)
    every = (*foreseen_running(run.state), *ended)
    return Outlook(
        forecast=begun.forecast,
        pairs=begun.pairs,
        known_names=begun.known_names,
        told={LeaseKey(one.uuid, one.task): one for one in every},
        ended=ended,
        leaves=leaves,
        problem=problem,
    )


def foresight(run: Run, outlook: Outlook, deserts: Deserts) -> Foresight:
    """Return what sorts nodes and plans by *outlook*.

    Until enough has been watched a change costs what it costs, and plans reach as far
    as published ones, so that the published plan is the best there is.

    Raises:
        SolverUnavailableError: The solver asked for is not installed.
    """
    settings, is_learning = run.site.planner, outlook.forecast.is_learning
    ahead = Ahead(
        horizon_s=min(settings.t_fwd_s, HORIZON_S) if is_learning else HORIZON_S,
        hit_weight=outlook.forecast.hit_weight,
        change_weight=outlook.forecast.change_weight,
        losses_s=deserts.losses_s,
        limit_s=min(LONGEST_S, settings.solver_limit_s),
        clock=run.outside.clock,
        wait_s=0.0 if is_learning else WAIT_S,
    )
    published = Planner(SolverName(settings.solver), limit_s=settings.solver_limit_s)
    in_order = partial(InOrder, background=deserts.background)
    return Foresight(outlook.forecast, ahead, published, in_order)


def keep(state: sqlite3.Connection, outlook: Outlook, observed: Observed) -> None:
    """Keep what was learned and is settled, inside the caller's transaction."""
    if outlook.problem:
        forget_forecasts(state)
    put_forecast(state, outlook.text)
    add_node_names(state, outlook.forecast.names, known=outlook.known_names)
    add_departures(state, outlook.pairs.fresh, keep=KEPT)
    put_foreseen(state, outlook.changes)
    drop_foreseen(state, before_s=observed.now_s - KEPT_S)


def _sight(observed: Observed, is_ours: Callable[[JobRecord], bool]) -> Sight:
    idle = find_idle(observed.snapshot, is_ours=is_ours)
    return Sight(
        idle=idle.nodes,
        unclear=idle.unclear,
        promised={
            name: Promise(plan.start_s, str(plan.job_id))
            for name, plan in idle.planned.items()
        },
        held={
            one.row.name: frozenset(member.node for member in one.newest.members)
            for one in observed.trainers
            if one.is_wanted and one.newest is not None
        },
    )


class _Begun(NamedTuple):
    """A forecast, its departures, and how many of its names the store has."""

    forecast: LiveForecast
    pairs: RecentAffinity
    known_names: int


def _begin(
    forecaster: str,
    leaf_of: Mapping[str, str] | None,
    state: sqlite3.Connection,
    kept: Mapping[str, Any] | None,
) -> _Begun:
    """Return a forecast that goes on from what was *kept*; None to begin anew."""
    names = () if kept is None else node_names(state)
    load = partial(departures, state)
    pairs = RecentAffinity() if kept is None else RecentAffinity(load)
    forecast = LiveForecast(
        HORIZON_S,
        names=names,
        pairs=pairs,
        state=kept,
        leaf_of=leaf_of,
        forecaster=forecaster,
    )
    return _Begun(forecast, pairs, len(names))


def _changes(outlook: Outlook, observed: Observed) -> Iterator[Foreseen]:
    """Yield what is expected of leases seen to run first, and what came of others."""
    live = {one.key: one for one in observed.belief.leases if one.is_live}
    for key, lease in live.items():
        if lease.state is LeaseState.RUNNING and lease.node and key not in outlook.told:
            expected = outlook.forecast.expected(lease.node)
            if expected is not None:
                yield Foreseen(
                    uuid=key.uuid,
                    task=key.task,
                    node=lease.node,
                    at_s=observed.now_s,
                    horizon_s=expected.horizon_s,
                    leaves=expected.leaves,
                    even_s=expected.even_s,
                    promised_s=expected.promised_s,
                )
    gone = {one.key: one for one in observed.belief.leases if not one.is_live}
    for key, told in outlook.told.items():
        if told.ended_s is None and key not in live:
            yield _over(told, gone.get(key), observed.now_s)


def _over(told: Foreseen, lease: Lease | None, now_s: float) -> Foreseen:
    """Return *told* with what came of it; its end may be long before this look."""
    if lease is None:
        return replace(told, ended_s=max(told.at_s, now_s), came="gone")
    end_s = now_s if lease.end_s is None else min(now_s, lease.end_s)
    ended_s = max(told.at_s, end_s)  # clocks go back
    return replace(told, ended_s=ended_s, came=str(lease.ended or "gone"))
