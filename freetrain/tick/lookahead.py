"""The planner ``lookahead`` in a tick: plans by what is expected of nodes, in time."""

from __future__ import annotations

import json
import math
import traceback
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from freetrain.broker.lease import LeaseKey, LeaseState
from freetrain.broker.pool import classify_by, rank_by
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
from freetrain.tick.planners import InOrder
from milp.planner import Answer, Judged, Outcome, Planner, SolverName
from milp.problem import NodeClass, Plan, Problem
from milp.verify import constraint_violations, loose_bound, plan_gain
from milp.window import Window, WindowTrainer
from milp.window_planner import answer_window
from slurm.config import Leaf, leaf_by_node, may_have_leaves, must_have_leaves
from slurm.errors import SlurmError
from slurm.holes import find_idle

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from freetrain.broker.decide import Plans
    from freetrain.broker.lease import Lease
    from freetrain.broker.pool import Classes, Forecast, Foreseen, Pool, PoolNode
    from freetrain.tick.context import TickContext
    from freetrain.tick.observe import Observed
    from freetrain.tick.rate import Ratings
    from milp.problem import TrainerState
    from milp.window import WindowClass
    from milp.window_planner import WindowAnswer
    from slurm.backend import SlurmBackend
    from slurm.config import ClusterConfig
    from slurm.records import JobRecord


# ----------------------------------------------------------------------
# Whether a tick looks ahead, and with what; cheap where it does not.

Made = TypeVar("Made")

FAULTS = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError),
    *(RuntimeError, MemoryError),  # the former is too deep a text as well
)
"""What a program raises that has a defect, or was given what cannot be."""

_MOST_CHARACTERS = 200
"""Of an error: it may name all that it found, which may be everything."""


def look_ahead(
    context: TickContext,
    observed: Observed,
    ratings: Ratings,
    *,
    is_ours: Callable[[JobRecord], bool],
) -> tuple[NodeForecasts | None, Foresight | None]:
    """Return what is expected of nodes and what plans by that; nothing elsewhere.

    Raises:
        StoreError: The state cannot be read.
        SolverUnavailableError: The solver asked for is not installed.
        UnreadableOutputError: Slurm's lists of nodes cannot be read.
    """
    if context.site.planner.policy != "lookahead":
        return None, None
    # Imported here: forecasts need NumPy, and most sites' ticks none of them.

    outlook = foresee(context, observed, is_ours=is_ours)
    return outlook, foresight(context, outlook, ratings)


def tried(ahead: Callable[[], Made], instead: Callable[[], Made]) -> tuple[Made, str]:
    """Return what *ahead* makes, or else *instead*; and for people why that."""
    try:
        return ahead(), ""
    except FAULTS as error:
        why = f"looking ahead failed ({said_of(error)}); plans go by speed alone"
    return instead(), why


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
# The planner ``lookahead`` in a tick: plans by what is expected of nodes, in time.

if TYPE_CHECKING:
    Counts = list[list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """What looking ahead takes beside the forecasts.

    Attributes:
        horizon_s: How far it looks.
        hit_weight: [κ] What a foreseeable loss counts.
        change_weight: [η] What a change counts.
        losses_s: [D_j] Seconds of its work that losing nodes costs each trainer.
        limit_s: Seconds that planning may take.
        clock: Seconds that only go up.
        wait_s: How long idle nodes wait for a lease that answers.
    """

    horizon_s: float
    hit_weight: float
    change_weight: float
    losses_s: Mapping[str, float]
    limit_s: float
    clock: Callable[[], float]
    wait_s: float = 0.0


class Foresight:
    """Sorts nodes by what is expected of them, and plans by that.

    Args:
        forecast: What is expected.
        ahead: How to plan with it.
        published: Plans where looking ahead cannot, and gives the counts that the
            search starts from besides the present ones.
        in_order: Makes a planner serve some trainers after the others.
    """

    def __init__(
        self,
        forecast: Forecast,
        ahead: Ahead,
        published: Plans,
        in_order: Callable[[Plans], Plans],
    ) -> None:
        self._forecast = forecast
        self._ahead = ahead
        self._published = published
        self._in_order = in_order

    def rank(self, nodes: Sequence[PoolNode], *, now_s: float) -> Sequence[PoolNode]:
        """Sort idle nodes, those that are expected to last longest first."""
        return rank_by(
            self._forecast, nodes, now_s=now_s, horizon_s=self._ahead.horizon_s
        )

    def prepare(self, pool: Pool, *, now_s: float) -> tuple[Classes, Plans]:
        """Return the classes of *pool*, and what plans with these."""
        foreseen = classify_by(
            self._forecast,
            pool,
            now_s=now_s,
            horizon_s=self._ahead.horizon_s,
            wait_s=self._ahead.wait_s,
        )
        planner = Lookahead(foreseen, self._ahead, self._published)
        return foreseen.classes, self._in_order(planner)


class Lookahead:
    """Plans with classes of nodes whose prospects are known; a ``Plans``.

    Args:
        foreseen: The classes, and what is expected of them.
        ahead: How to plan with that.
        published: Plans where this cannot.
    """

    def __init__(self, foreseen: Foreseen, ahead: Ahead, published: Plans) -> None:
        self._foreseen = foreseen
        self._ahead = ahead
        self._published = published
        self._until_s = ahead.clock() + ahead.limit_s

    def plan(self, problem: Problem) -> Answer:
        """Return a verified plan; the published one where this cannot be planned.

        Raises:
            MalformedProblemError: The problem contradicts itself.
        """
        parts = _parts(problem)
        if parts is None:
            return self._instead(problem, "trainers share some kinds of node, not all")
        counts = [[0] * len(problem.classes) for _ in problem.trainers]
        filled = [self._fill(problem, *part, counts) for part in parts]
        return self._answer(problem, counts, filled)

    def _answer(
        self, problem: Problem, counts: Counts, parts: Sequence[WindowAnswer]
    ) -> Answer:
        rows = tuple(map(tuple, counts))
        broken = constraint_violations(problem, rows)
        if broken:
            return self._instead(problem, f"its plan was refused: {'; '.join(broken)}")
        kinds = {one.outcome for one in parts}
        outcome = kinds.pop() if len(kinds) == 1 else Outcome.INCUMBENT
        gain = plan_gain(problem, rows)
        return Answer(
            plan=Plan(rows, gain, max(gain, loose_bound(problem))),
            outcome=outcome,
            reason="; ".join(one.reason for one in parts if one.reason),
            # By expected lives; how far it is from the best by M0 nobody asked.
            by_own=Judged(
                sum(one.gain for one in parts), sum(one.bound for one in parts)
            ),
        )

    def _instead(self, problem: Problem, why: str) -> Answer:
        """Return the published plan, and say that it is one."""
        answer = self._published.plan(problem)
        said = f"Looking ahead was left out: {why}."
        return replace(answer, reason=f"{said} {answer.reason}".strip())

    def _fill(
        self,
        problem: Problem,
        places: Sequence[int],
        usable: Sequence[int],
        counts: Counts,
    ) -> WindowAnswer:
        """Plan for the trainers at *places*, who may use the classes *usable*."""
        trainers = [problem.trainers[place] for place in places]
        window = self._window(problem, trainers, usable)
        starts = [self._start(problem, trainers, usable)]
        left_s = max(0.0, self._until_s - self._ahead.clock())
        answer = answer_window(window, starts, limit_s=left_s, clock=self._ahead.clock)
        for place, holding in zip(places, answer.holdings, strict=True):
            for k, nodes in holding.items():
                counts[place][k] = nodes
        return answer

    def _window(
        self, problem: Problem, trainers: Sequence[TrainerState], usable: Sequence[int]
    ) -> Window:
        free = {
            k: problem.classes[k].nodes - sum(one.held[k] for one in trainers)
            for k in usable
        }
        stays = {k: self._stay(k, problem) for k in usable if problem.classes[k].nodes}
        return Window(
            classes=stays,
            free={k: nodes for k, nodes in free.items() if nodes},
            trainers=tuple(self._holder(one, free) for one in trainers),
            hit_weight=self._ahead.hit_weight,
            change_weight=self._ahead.change_weight,
        )

    def _stay(self, k: int, problem: Problem) -> WindowClass:
        """Return what is expected of a class, however many of it are to be had.

        Who is served after others sees what they left of it: as many leave at once.
        """
        stay = self._foreseen.stays[k]
        hits = stay.hits()[problem.classes[k].nodes]
        return stay._replace(nodes=problem.classes[k].nodes, hit=hits)

    def _holder(self, trainer: TrainerState, free: Mapping[int, int]) -> WindowTrainer:
        held = {k: nodes for k, nodes in enumerate(trainer.held) if nodes}
        return WindowTrainer(
            curve=trainer.curve,
            held=held,
            up_s=trainer.up_s,
            down_s=trainer.down_s,
            start_s=trainer.start_s,
            loss_s=self._ahead.losses_s.get(trainer.name, trainer.down_s),
            new_hit_share=self._foreseen.fresh(held, free),
        )

    def _start(
        self, problem: Problem, trainers: Sequence[TrainerState], usable: Sequence[int]
    ) -> list[int]:
        """Return the published counts, as if all nodes were alike until the horizon."""
        states = tuple(
            replace(one, held=(sum(one.held),), usable=None) for one in trainers
        )
        nodes = sum(problem.classes[k].nodes for k in usable)
        alike = Problem((NodeClass("alike", nodes),), states, self._ahead.horizon_s)
        answer = self._published.plan(alike)
        return [sum(row) for row in answer.plan.counts]


def _parts(problem: Problem) -> list[tuple[list[int], list[int]]] | None:
    """Split trainers by what they may use: places, and classes; None if these overlap.

    The window knows no unusable classes (M5), so each part must have its own.
    """
    every = frozenset(range(len(problem.classes)))
    by: dict[frozenset[int], list[int]] = {}
    for place, trainer in enumerate(problem.trainers):
        usable = every if trainer.usable is None else trainer.usable
        held = {k for k, nodes in enumerate(trainer.held) if nodes}
        if not held <= usable:
            return None
        by.setdefault(usable, []).append(place)
    used = [k for usable in by for k in usable]
    if len(used) > len(set(used)):
        return None
    return [(places, sorted(usable)) for usable, places in by.items()]


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

LONGEST_S = 2.0
"""Longer than a search needs; whatever a proof would bring, others wait for ticks."""


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


def foresight(
    context: TickContext, outlook: NodeForecasts, ratings: Ratings
) -> Foresight:
    """Return what sorts nodes and plans by *outlook*.

    Until enough has been watched a change costs what it costs, and plans reach as far
    as published ones, so that the published plan is the best there is.

    Raises:
        SolverUnavailableError: The solver asked for is not installed.
    """
    settings, is_learning = context.site.planner, outlook.forecast.is_learning
    ahead = Ahead(
        horizon_s=min(settings.t_fwd_s, HORIZON_S) if is_learning else HORIZON_S,
        hit_weight=outlook.forecast.hit_weight,
        change_weight=outlook.forecast.change_weight,
        losses_s=ratings.losses_s,
        limit_s=min(LONGEST_S, settings.solver_limit_s),
        clock=context.environment.clock,
        wait_s=0.0 if is_learning else WAIT_S,
    )
    published = Planner(SolverName(settings.solver), limit_s=settings.solver_limit_s)
    in_order = partial(InOrder, background=ratings.background)
    return Foresight(outlook.forecast, ahead, published, in_order)


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
