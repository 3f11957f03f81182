"""The planner ``lookahead`` in a tick: plans by what is expected of nodes, in time."""

from __future__ import annotations

import json
import math
import traceback
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from freetrain.broker.lease import LeaseKey, LeaseState
from freetrain.broker.pool import Foresight
from freetrain.lookahead.affinity import KEPT, RecentAffinity
from freetrain.lookahead.live import LiveForecast, PoolSnapshot, validate_forecast
from freetrain.lookahead.promises import Promise
from freetrain.planning.settings import HORIZON_S
from freetrain.state.tables import (
    LeaseForecast,
    add_departures,
    add_node_names,
    departures,
    drop_lease_forecasts,
    ended_lease_forecasts,
    forecast_state,
    forget_forecasts,
    node_names,
    pending_lease_forecasts,
    put_forecast,
    put_lease_forecasts,
)
from slurm.config import Leaf, leaf_by_node, may_have_leaves, must_have_leaves
from slurm.errors import SlurmError
from slurm.holes import find_idle

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Mapping

    from freetrain.broker.lease import Lease
    from freetrain.config.site import PlannerSettings
    from freetrain.tick.context import TickContext
    from freetrain.tick.observe import Observed
    from slurm.backend import SlurmBackend
    from slurm.config import ClusterConfig
    from slurm.records import JobRecord


# ----------------------------------------------------------------------
# Whether a tick looks ahead, and with what; cheap where it does not.

FAULTS = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError),
    *(RuntimeError, MemoryError),  # the former is too deep a text as well
)
"""What a program raises that has a defect, or was given what cannot be."""

_MOST_CHARACTERS = 200
"""Of an error: it may name all that it found, which may be everything."""


def said_of(error: Exception) -> str:
    """Return *error* and its place; who reads it may have to mend what is ours."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    place = f"{frame.f_globals.get('__name__')}, line {line}"
    return f"{error!r:.{_MOST_CHARACTERS}}, in {place}"


# ----------------------------------------------------------------------
# Which leaf switch nodes are below: asked once an hour, kept with the forecasts.

ASKED_EVERY_S = 3_600.0
"""Racks are rewired seldom; nodes that a site adds wait so long."""

SILENCES = 3
"""Looks in a row at which Slurm answers all else and tells no leaf of a topology that
it need not have. A request that came too late looks like one of them; after so many
there is none any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaves:
    """What is known of leaf switches, or blocks.

    Attributes:
        plugin: What the configuration named then.
        asked_s: When Slurm was asked last, Unix time.
        told: What it told; nothing where it told nothing.
        by_node: The leaf of each node, from that.
        problem: Why it is not known now; empty where it is, or there is none.
        silences: Looks in a row at which nothing was told, where something had been.
    """

    plugin: str
    asked_s: float
    told: tuple[Leaf, ...] = ()
    by_node: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    silences: int = 0

    def to_state(self) -> dict[str, Any]:
        """Return it as JSON has it; node lists as Slurm wrote them, which is short."""
        return {
            "plugin": self.plugin,
            "asked_s": self.asked_s,
            "told": [[leaf.name, leaf.nodes] for leaf in self.told],
            "problem": self.problem,
            "silences": self.silences,
        }


def leaves_of(
    backend: SlurmBackend, config: ClusterConfig, state: object, *, now_s: float
) -> Leaves | None:
    """Return what is known of leaves, asking Slurm once an hour.

    And at the next look where it told nothing of what it had told before.

    Args:
        backend: Slurm, which has just told *config*.
        config: How the cluster is set up; another topology is asked for at once.
        state: What ``to_state`` gave; whatever else is asked for anew.
        now_s: Unix time.

    Returns:
        None where there can be none, and nothing was asked.
    """
    if not may_have_leaves(config):
        return None
    last = _kept(state)
    if last is None or last.plugin != config.topology_plugin:
        last = Leaves(plugin=config.topology_plugin, asked_s=-math.inf)
    if 0.0 <= now_s - last.asked_s < ASKED_EVERY_S and not last.silences:
        return last
    return _asked(backend, config, last, now_s)


def _asked(
    backend: SlurmBackend, config: ClusterConfig, last: Leaves, now_s: float
) -> Leaves:
    """Ask; where that fails, what was told *last* holds for an hour more."""
    problem, silences = "", 0
    try:
        told = backend.topology()
        if not told and must_have_leaves(config):
            problem = f"it names {config.topology_plugin} and tells no leaf of it"
        elif not told and last.told and last.silences + 1 < SILENCES:
            silences = last.silences + 1
            problem = "it tells nothing of those that it told before"
    except SlurmError as error:
        told, problem = (), str(error)
    if problem:
        told = last.told
        problem = f"what switches nodes are below was not told: {problem}"
    return Leaves(
        plugin=config.topology_plugin,
        asked_s=now_s,
        told=told,
        by_node=leaf_by_node(told),
        problem=problem,
        silences=silences,
    )


def _kept(state: Any) -> Leaves | None:  # noqa: ANN401 - JSON
    try:
        told = tuple(Leaf(str(name), str(nodes)) for name, nodes in state["told"])
        return Leaves(
            plugin=str(state["plugin"]),
            asked_s=float(state["asked_s"]),
            told=told,
            by_node=leaf_by_node(told),
            problem=str(state.get("problem", "")),
            silences=int(state.get("silences", 0)),
        )
    except (ValueError, TypeError, KeyError, ArithmeticError, SlurmError):
        return None


# ----------------------------------------------------------------------
# What was learned of nodes, taken up again; where that fails it is dropped, and told.

Kept = dict[str, Any]
Begun = TypeVar("Begun")


class Recalled(NamedTuple):
    """What came of what was kept.

    Attributes:
        kept: What it says; None for nothing, or nothing of use.
        problem: Why it is of no use, for people; empty where it is, or there is none.
    """

    kept: Kept | None
    problem: str = ""


def recalled(state: sqlite3.Connection, cluster: str) -> Recalled:
    """Return what was kept of *cluster*.

    Raises:
        StoreError: The state cannot be read.
    """
    text = forecast_state(state)
    if text is None:
        return Recalled(None)
    try:
        kept: Kept = json.loads(text, parse_constant=_no_number)
        if kept["cluster"] != cluster:
            raise ValueError(f"it is of cluster {kept['cluster']!r}")
    except FAULTS as error:
        return Recalled(None, _dropped(error))
    return Recalled(kept)


def taken_up(
    last: Recalled, begin: Callable[[Kept | None], Begun]
) -> tuple[Begun, str]:
    """Return what *begin* makes of what was kept, or else of nothing; and why of that.

    Args:
        last: What was kept.
        begin: Goes on from that, and tries what it made; None to begin anew.
    """
    if last.kept is not None:
        try:
            return begin(last.kept), last.problem
        except FAULTS as error:
            last = Recalled(None, _dropped(error))
    return begin(None), last.problem


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _dropped(error: Exception) -> str:
    """Return the line of the report."""
    return (
        f"what was learned of nodes cannot be used ({said_of(error)}); it is learned "
        f"anew, and until then plans go by speed alone"
    )


# ----------------------------------------------------------------------
# What is expected of nodes: learned from this look, and kept for the next.

WAIT_S = 30.0
"""A lease starts in seconds, and is given to a trainer by the tick after: about so long
idle nodes train nobody, which those with a lease do at once."""

KEPT_S = 7 * 86_400.0
"""What was expected of leases is kept for a week."""

MOST_ENDED = 20
"""Leases that ended last are told on the page; the store has many more."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeForecasts:
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
    told: Mapping[LeaseKey, LeaseForecast]
    ended: tuple[LeaseForecast, ...]
    leaves: Leaves | None = None
    problem: str = ""
    text: str = ""
    changes: tuple[LeaseForecast, ...] = ()

    def settled(self, observed: Observed) -> NodeForecasts:
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
    context: TickContext, observed: Observed, *, is_ours: Callable[[JobRecord], bool]
) -> NodeForecasts:
    """Return what is expected of nodes, learned from what was kept and from this look.

    Raises:
        StoreError: The state cannot be read.
        UnreadableOutputError: Slurm's lists of nodes cannot be read.
    """
    last, now_s = recalled(context.state, observed.config.cluster), observed.now_s
    topology = None if last.kept is None else last.kept.get("topology")
    leaves = leaves_of(context.backend, observed.config, topology, now_s=now_s)
    sight = _sight(observed, is_ours)

    def begin(kept: Mapping[str, Any] | None) -> _Begun:
        by_node = None if leaves is None else leaves.by_node
        begun = _begin(context.site.planner.forecaster, by_node, context.state, kept)
        begun.forecast.look(now_s, sight)
        if kept is not None:
            validate_forecast(begun.forecast, sight.idle, horizon_s=HORIZON_S)
        return begun

    begun, problem = taken_up(last, begin)
    ended = ended_lease_forecasts(context.state, most=MOST_ENDED)
    every = (*pending_lease_forecasts(context.state), *ended)
    return NodeForecasts(
        forecast=begun.forecast,
        pairs=begun.pairs,
        known_names=begun.known_names,
        told={LeaseKey(one.uuid, one.task): one for one in every},
        ended=ended,
        leaves=leaves,
        problem=problem,
    )


def foresight_of(settings: PlannerSettings, outlook: NodeForecasts) -> Foresight:
    """Return what sorts nodes and plans by *outlook*.

    Until enough has been watched a change costs what it costs, and plans reach as far
    as published ones, so that the published plan is the best there is.
    """
    is_learning = outlook.forecast.is_learning
    return Foresight(
        forecast=outlook.forecast,
        horizon_s=min(settings.t_fwd_s, HORIZON_S) if is_learning else HORIZON_S,
        hit_weight=outlook.forecast.hit_weight,
        change_weight=outlook.forecast.change_weight,
        wait_s=0.0 if is_learning else WAIT_S,
    )


def keep(state: sqlite3.Connection, outlook: NodeForecasts, observed: Observed) -> None:
    """Keep what was learned and is settled, inside the caller's transaction."""
    if outlook.problem:
        forget_forecasts(state)
    put_forecast(state, outlook.text)
    add_node_names(state, outlook.forecast.names, known=outlook.known_names)
    add_departures(state, outlook.pairs.fresh, keep=KEPT)
    put_lease_forecasts(state, outlook.changes)
    drop_lease_forecasts(state, before_s=observed.now_s - KEPT_S)


def _sight(observed: Observed, is_ours: Callable[[JobRecord], bool]) -> PoolSnapshot:
    idle = find_idle(observed.snapshot, is_ours=is_ours)
    return PoolSnapshot(
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


def _changes(outlook: NodeForecasts, observed: Observed) -> Iterator[LeaseForecast]:
    """Yield what is expected of leases seen to run first, and what came of others."""
    live = {one.key: one for one in observed.belief.leases if one.is_live}
    for key, lease in live.items():
        if lease.state is LeaseState.RUNNING and lease.node and key not in outlook.told:
            expected = outlook.forecast.expected(lease.node)
            if expected is not None:
                yield LeaseForecast(
                    uuid=key.uuid,
                    task=key.task,
                    node=lease.node,
                    at_s=observed.now_s,
                    horizon_s=expected.horizon_s,
                    departure_probability=expected.leaves,
                    median_s=expected.even_s,
                    promised_s=expected.promised_s,
                )
    gone = {one.key: one for one in observed.belief.leases if not one.is_live}
    for key, told in outlook.told.items():
        if told.ended_s is None and key not in live:
            yield _over(told, gone.get(key), observed.now_s)


def _over(told: LeaseForecast, lease: Lease | None, now_s: float) -> LeaseForecast:
    """Return *told* with what came of it; its end may be long before this look."""
    if lease is None:
        return replace(told, ended_s=max(told.at_s, now_s), outcome="gone")
    end_s = now_s if lease.end_s is None else min(now_s, lease.end_s)
    ended_s = max(told.at_s, end_s)  # clocks go back
    return replace(told, ended_s=ended_s, outcome=str(lease.ended or "gone"))
