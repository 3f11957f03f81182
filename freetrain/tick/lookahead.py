"""Forecasts of how long nodes stay idle, in a tick: learned, planned by, and saved.

``foresee`` goes on from what the last tick saved, and learns from what this one
observed. A saved forecast that cannot be used is discarded and reported. Which leaf
switch nodes are below is asked once an hour, and saved with the forecasts.

While trainers take pieces of nodes, a second forecast learns how long each GPU of a
node stays free. GPUs of one node stand below one leaf there, so how often they leave
together is learned as for leaf switches.
"""

from __future__ import annotations

import json
import math
import traceback
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from freetrain.broker.lease import LeaseKey, LeaseState
from freetrain.broker.pool import (
    Foresight,
    is_piece,
    node_of_piece,
    piece_name,
)
from freetrain.lookahead.affinity import KEPT, RecentAffinity
from freetrain.lookahead.live import IdleSnapshot, LiveForecast, validate_forecast
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
from slurm.errors import SlurmError
from slurm.holes import find_free_gpus, find_idle
from slurm.records import Leaf, leaf_by_node, may_have_leaves, must_have_leaves

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import (
        Callable,
        Collection,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from freetrain.broker.lease import Lease
    from freetrain.broker.pool import Situation
    from freetrain.config.site import PlannerSettings
    from freetrain.lookahead.base import NodeForecast, Prospect
    from freetrain.state.files import AssignedLease
    from freetrain.tick.environment import TickContext
    from freetrain.tick.observe import Observed
    from slurm.backend import SlurmBackend
    from slurm.records import ClusterConfig, JobRecord


WAIT_S = 30.0
"""How long an idle node trains nothing: its lease starts in seconds, and the tick after
that gives it to a trainer."""

LEASE_FORECASTS_KEPT_S = 7 * 86_400.0
"""Forecasts of leases are kept for a week."""

MOST_ENDED = 20
"""Ended leases on the status report; the store has many more."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeForecasts:
    """How long nodes are expected to stay idle, as of this tick.

    Attributes:
        forecast: The forecast, this tick's snapshot included.
        pairs: Its departures.
        known_names: How many of its names the store has.
        lease_forecasts: Forecasts of leases that run or ended last, as the store has
            them.
        ended: The latter, the newest first.
        leaves: Which leaf switches nodes are below; None where there are none.
        pieces: The forecast of pieces of nodes; None where no trainer has taken any.
        takes_whole: Whether any trainer takes whole nodes.
        problem: Why the saved forecast could not be used; empty if it could.
        text: The state to save, JSON; empty until it is ``settled``.
        changes: New and changed forecasts of leases, to save likewise.
    """

    forecast: LiveForecast
    pairs: RecentAffinity
    known_names: int
    lease_forecasts: Mapping[LeaseKey, LeaseForecast]
    ended: tuple[LeaseForecast, ...]
    leaves: LeafSwitches | None = None
    pieces: LiveForecast | None = None
    takes_whole: bool = True
    problem: str = ""
    text: str = ""
    changes: tuple[LeaseForecast, ...] = ()

    def settled(self, observed: Observed) -> NodeForecasts:
        """Return the same with the state to save, once plans were made by it.

        A forecaster that cannot be saved fails here, before anything relies on it.

        Raises:
            TypeError: JSON cannot hold its state.
        """
        saved = {"cluster": observed.config.cluster, **self.forecast.to_state()}
        if self.leaves is not None:
            saved["topology"] = self.leaves.to_state()
        if self.pieces is not None:
            saved["pieces"] = {"names": self.pieces.names, **self.pieces.to_state()}
        try:
            text = json.dumps(saved, separators=(",", ":"))
        except TypeError as error:
            raise TypeError(
                f"to_state of the forecaster {saved['forecaster']!r} is no JSON: "
                f"{error}"
            ) from error
        return replace(self, text=text, changes=tuple(_changes(self, observed)))

    @property
    def weighing(self) -> LiveForecast:
        """The forecast whose weights and reach plans go by.

        That of pieces where all trainers take pieces; else trainers of whole nodes have
        most to lose.
        """
        if self.pieces is None or self.takes_whole:
            return self.forecast
        return self.pieces

    def expected(self, node: str, piece: str) -> NodeForecast | None:
        """Return what is expected of *node*, or of a *piece* of it; None if unknown."""
        if not piece:
            return self.forecast.expected(node)
        return None if self.pieces is None else self.pieces.expected(piece)

    @property
    def known_leaves(self) -> int:
        """How many leaf switches, or blocks, are known."""
        return 0 if self.leaves is None else len(self.leaves.leaves)

    @property
    def problems(self) -> tuple[str, ...]:
        """What could not be taken into account, for people."""
        of_leaves = "" if self.leaves is None else self.leaves.problem
        return tuple(filter(None, (self.problem, of_leaves)))


def foresee(
    context: TickContext,
    observed: Observed,
    *,
    is_ours: Callable[[JobRecord], bool],
    situation: Situation,
) -> NodeForecasts:
    """Return forecasts, from the saved one and from what this tick observed.

    Args:
        context: The tick.
        observed: What it observed.
        is_ours: Tells our own leases from other jobs.
        situation: What is decided by; says which trainers take pieces of nodes.

    Raises:
        StoreError: The state cannot be read.
        UnreadableOutputError: Slurm's lists of nodes cannot be read.
    """
    state, now_s = context.state, observed.now_s
    saved, problem = load_saved(state, observed.config.cluster)
    topology = None if saved is None else saved.get("topology")
    leaves = leaf_switches_of(context.backend, observed.config, topology, now_s=now_s)
    widths = situation.widths
    of_pieces = {
        lease.key: widths[lease.shape]
        for lease in situation.belief.leases
        if lease.shape in widths
    }
    snapshot = _pool_snapshot(observed, is_ours, of_pieces)

    def begin(
        saved: Saved | None,
    ) -> tuple[LiveForecast, RecentAffinity, int, LiveForecast | None]:
        names = () if saved is None else node_names(state)
        pairs = (
            RecentAffinity()
            if saved is None
            else RecentAffinity(partial(departures, state))
        )
        forecast = LiveForecast(
            HORIZON_S,
            names=names,
            pairs=pairs,
            state=saved,
            leaf_of=None if leaves is None else leaves.by_node,
            forecaster=context.site.planner.forecaster,
        )
        forecast.look(now_s, snapshot)
        if saved is not None:
            validate_forecast(forecast, snapshot.idle, horizon_s=HORIZON_S)
        return forecast, pairs, len(names), pieces_from(saved)

    def pieces_from(saved: Saved | None) -> LiveForecast | None:
        state = None if saved is None else saved.get("pieces")
        if not widths and state is None:
            return None
        known = () if state is None else [str(name) for name in state["names"]]
        seen = _piece_snapshot(observed, is_ours, of_pieces, known)
        forecast = LiveForecast(
            HORIZON_S,
            names=known,
            state=state,
            leaf_of={name: node_of_piece(name) for name in (*known, *seen.idle)},
            forecaster=context.site.planner.forecaster,
        )
        if widths:
            forecast.look(now_s, seen)
        if widths and state is not None:
            validate_forecast(forecast, seen.idle, horizon_s=HORIZON_S)
        return forecast

    (forecast, pairs, known_names, pieces), dropped = restored(saved, begin)
    ended = ended_lease_forecasts(state, most=MOST_ENDED)
    lease_forecasts = (*pending_lease_forecasts(state), *ended)
    return NodeForecasts(
        forecast=forecast,
        pairs=pairs,
        known_names=known_names,
        lease_forecasts={LeaseKey(f.uuid, f.task): f for f in lease_forecasts},
        ended=ended,
        leaves=leaves,
        pieces=pieces,
        takes_whole=not widths
        or any(own.shape not in widths for own in situation.trainers),
        problem=problem or dropped,
    )


def _pool_snapshot(
    observed: Observed,
    is_ours: Callable[[JobRecord], bool],
    of_pieces: Collection[LeaseKey],
) -> IdleSnapshot:
    """Return the idle nodes, and those that leases of whole nodes have."""
    idle = find_idle(observed.snapshot, is_ours=is_ours)
    return IdleSnapshot(
        idle=idle.nodes,
        unclear=idle.unclear,
        promised={
            name: Promise(plan.start_s, str(plan.job_id))
            for name, plan in idle.planned.items()
        },
        held={
            name: frozenset(m.node for m in members if m.key not in of_pieces)
            for name, members in _members(observed)
        },
    )


def _piece_snapshot(
    observed: Observed,
    is_ours: Callable[[JobRecord], bool],
    of_pieces: Mapping[LeaseKey, int],
    known: Iterable[str],
) -> IdleSnapshot:
    """Return the GPUs that no job of others has, each as a piece, and leased ones.

    Which of a node's GPUs a trainer has changes with the leases beside its own; so it
    counts as holding the lowest ones, as many as it has there. Where backfill plans a
    start, holes end: nothing is promised here besides.

    Args:
        observed: What the tick observed.
        is_ours: Tells our own leases from other jobs.
        of_pieces: GPUs of each lease that is a piece.
        known: Names of pieces that the forecast knows.
    """
    free, unclear = find_free_gpus(observed.snapshot, is_ours=is_ours)
    return IdleSnapshot(
        idle=frozenset(
            piece_name(node, gpu)
            for node, gpus in free.items()
            for gpu in range(1, gpus + 1)
        ),
        unclear=frozenset(name for name in known if node_of_piece(name) in unclear),
        promised={},
        held={
            name: frozenset(_lowest(members, of_pieces))
            for name, members in _members(observed)
        },
    )


def _lowest(
    members: Iterable[AssignedLease], of_pieces: Mapping[LeaseKey, int]
) -> Iterator[str]:
    """Yield the lowest pieces of each node, as many as leases have GPUs there."""
    gpus: Counter[str] = Counter()
    for member in members:
        gpus[member.node] += of_pieces.get(member.key, 0)
    for node, count in gpus.items():
        yield from (piece_name(node, gpu) for gpu in range(1, count + 1))


def _members(observed: Observed) -> Iterator[tuple[str, Sequence[AssignedLease]]]:
    """Yield the leases of every trainer that wants nodes and has had some."""
    for trainer in observed.trainers:
        if trainer.is_wanted and trainer.newest is not None:
            yield trainer.row.name, trainer.newest.members


@dataclass(frozen=True, slots=True)
class _NodesAndPieces:
    """Forecasts of nodes and of pieces, each asked by its names."""

    nodes: LiveForecast
    pieces: LiveForecast

    def group(self, node: str) -> str:
        """Return the name of the group that is expected to leave with *node*."""
        return self._of(node).group(node)

    def size(self, node: str) -> int:
        """Return how many idle nodes, or GPUs, that group has."""
        return self._of(node).size(node)

    def prospect(self, node: str, usable_s: float) -> Prospect:
        """Return what is expected of the group of *node*, usable for so long."""
        return self._of(node).prospect(node, usable_s)

    def _of(self, node: str) -> LiveForecast:
        return self.pieces if is_piece(node) else self.nodes


def foresight_of(settings: PlannerSettings, forecasts: NodeForecasts) -> Foresight:
    """Return what the broker sorts and plans by.

    Until enough has been watched a change costs what it costs, and plans reach as far
    as published ones, so that the published plan is the best there is.
    """
    weighing, nodes = forecasts.weighing, forecasts.forecast
    is_learning = weighing.is_learning
    pieces = forecasts.pieces
    return Foresight(
        forecast=nodes if pieces is None else _NodesAndPieces(nodes, pieces),
        horizon_s=min(settings.t_fwd_s, HORIZON_S) if is_learning else HORIZON_S,
        stay_s=weighing.stay_s,
        hit_weight=weighing.hit_weight,
        change_weight=weighing.change_weight,
        wait_s=0.0 if is_learning else WAIT_S,
    )


def save(
    state: sqlite3.Connection, forecasts: NodeForecasts, observed: Observed
) -> None:
    """Save settled forecasts, inside the caller's transaction."""
    if forecasts.problem:
        forget_forecasts(state)
    put_forecast(state, forecasts.text)
    add_node_names(state, forecasts.forecast.names, known=forecasts.known_names)
    add_departures(state, forecasts.pairs.fresh, keep=KEPT)
    put_lease_forecasts(state, forecasts.changes)
    drop_lease_forecasts(state, before_s=observed.now_s - LEASE_FORECASTS_KEPT_S)


def _changes(forecasts: NodeForecasts, observed: Observed) -> Iterator[LeaseForecast]:
    """Yield forecasts of leases first seen to run, and outcomes of others."""
    before = forecasts.lease_forecasts
    leases = {lease.key: lease for lease in observed.belief.leases}
    for key, lease in leases.items():
        if lease.state is not LeaseState.RUNNING or not lease.node or key in before:
            continue
        expected = forecasts.forecast.expected(lease.node)
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
    for key, pending in before.items():
        ended = leases.get(key)
        if pending.ended_s is None and (ended is None or not ended.is_live):
            yield _with_outcome(pending, ended, observed.now_s)


def _with_outcome(
    pending: LeaseForecast, lease: Lease | None, now_s: float
) -> LeaseForecast:
    """Return *pending* with its outcome; the end may be long before this tick."""
    outcome, end_s = "gone", now_s
    if lease is not None:
        outcome = str(lease.ended or outcome)
        end_s = now_s if lease.end_s is None else min(now_s, lease.end_s)
    # max(): clocks go back.
    return replace(pending, ended_s=max(pending.at_s, end_s), outcome=outcome)


# The forecast that the last tick saved.

Saved = dict[str, Any]
Begun = TypeVar("Begun")


def load_saved(state: sqlite3.Connection, cluster: str) -> tuple[Saved | None, str]:
    """Load the saved forecast of *cluster*.

    Returns:
        Its state, None where there is none or it cannot be used; and why it cannot.

    Raises:
        StoreError: The state cannot be read.
    """
    text = forecast_state(state)
    if text is None:
        return None, ""
    try:
        saved: Saved = json.loads(text, parse_constant=_no_number)
        if saved["cluster"] != cluster:
            raise ValueError(f"it is of cluster {saved['cluster']!r}")
    except FAULTS as error:
        return None, _dropped(error)
    return saved, ""


def restored(
    saved: Saved | None, begin: Callable[[Saved | None], Begun]
) -> tuple[Begun, str]:
    """Return what *begin* makes of the saved state, or anew; and why, where anew.

    Args:
        saved: The saved state; None where there is none.
        begin: Goes on from a state and validates the result; None to begin anew.
    """
    if saved is not None:
        try:
            return begin(saved), ""
        except FAULTS as error:
            return begin(None), _dropped(error)
    return begin(None), ""


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _dropped(error: Exception) -> str:
    """Return the line of the report about a forecast that was discarded."""
    return (
        f"the saved forecast of nodes cannot be used ({said_of(error)}); learning "
        f"begins anew, and until then plans go by speed alone"
    )


FAULTS = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError),
    *(RuntimeError, MemoryError),  # the former is too deep a text as well
)
"""What a defect raises, ours or a forecaster's, or input that cannot be."""

_MOST_CHARACTERS = 200
"""Of an error's text, which may quote all of its input."""


def said_of(error: Exception) -> str:
    """Return *error* and the line of code that raised it, for a bug report."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    place = f"{frame.f_globals.get('__name__')}, line {line}"
    return f"{error!r:.{_MOST_CHARACTERS}}, in {place}"


# Leaf switches.

ASKED_EVERY_S = 3_600.0
"""Racks are rewired seldom; nodes that a site adds wait that long."""

SILENCES = 3
"""So many ticks in a row at which Slurm names no leaf of an optional topology, having
named some before, mean that there is no topology any more. Fewer may be a time-out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafSwitches:
    """Which leaf switch, or block, each node is below, as far as that is known.

    Attributes:
        plugin: The topology plugin that the configuration named then.
        asked_s: When Slurm was asked last, Unix time.
        leaves: What Slurm answered.
        by_node: The leaf of each node.
        problem: Why they are not known now; empty where they are, or there are none.
        silences: Ticks in a row at which Slurm named none, having named some before.
    """

    plugin: str
    asked_s: float
    leaves: tuple[Leaf, ...] = ()
    by_node: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    silences: int = 0

    def to_state(self) -> dict[str, Any]:
        """Return it as JSON has it; node lists as Slurm wrote them, which is short."""
        return {
            "plugin": self.plugin,
            "asked_s": self.asked_s,
            "told": [[leaf.name, leaf.nodes] for leaf in self.leaves],
            "problem": self.problem,
            "silences": self.silences,
        }


def leaf_switches_of(
    backend: SlurmBackend, config: ClusterConfig, state: object, *, now_s: float
) -> LeafSwitches | None:
    """Return the leaf switches of nodes, asking Slurm once an hour.

    Where Slurm names none of those that it named before, it is asked again at the next
    tick.

    Args:
        backend: Slurm.
        config: How the cluster is set up; another topology is asked for at once.
        state: What ``to_state`` returned; anything else counts as nothing.
        now_s: Unix time.

    Returns:
        None where there can be none, and nothing was asked.
    """
    if not may_have_leaves(config):
        return None
    last = _leaf_switches_from(state)
    if last is None or last.plugin != config.topology_plugin:
        last = LeafSwitches(plugin=config.topology_plugin, asked_s=-math.inf)
    if 0.0 <= now_s - last.asked_s < ASKED_EVERY_S and not last.silences:
        return last
    return _asked(backend, config, last, now_s)


def _asked(
    backend: SlurmBackend, config: ClusterConfig, last: LeafSwitches, now_s: float
) -> LeafSwitches:
    """Ask Slurm; where that fails, its *last* answer holds for an hour more."""
    problem, silences = "", 0
    try:
        leaves = backend.topology()
        if not leaves and must_have_leaves(config):
            problem = f"{config.topology_plugin} is configured, and Slurm names no leaf"
        elif not leaves and last.leaves and last.silences + 1 < SILENCES:
            silences = last.silences + 1
            problem = "Slurm names none of those that it named before"
    except SlurmError as error:
        leaves, problem = (), str(error)
    if problem:
        leaves = last.leaves
        problem = f"the leaf switches of nodes are not known now: {problem}"
    return LeafSwitches(
        plugin=config.topology_plugin,
        asked_s=now_s,
        leaves=leaves,
        by_node=leaf_by_node(leaves),
        problem=problem,
        silences=silences,
    )


def _leaf_switches_from(state: Any) -> LeafSwitches | None:  # noqa: ANN401 - JSON
    try:
        leaves = tuple(Leaf(str(name), str(nodes)) for name, nodes in state["told"])
        return LeafSwitches(
            plugin=str(state["plugin"]),
            asked_s=float(state["asked_s"]),
            leaves=leaves,
            by_node=leaf_by_node(leaves),
            problem=str(state.get("problem", "")),
            silences=int(state.get("silences", 0)),
        )
    except (ValueError, TypeError, KeyError, ArithmeticError, SlurmError):
        return None
