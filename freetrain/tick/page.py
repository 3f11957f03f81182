"""The state page: what the last tick saw, did, and why; for people's commands.

``status`` and ``explain`` show nothing else, so that they ask Slurm for nothing.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from freetrain.exchange.errors import UnreadableFileError
from freetrain.forecast.delays import Interval
from freetrain.forecast.interface import Expected
from freetrain.store.trainers import TrainerState
from freetrain.tick.came import CameLine

if TYPE_CHECKING:
    from pathlib import Path

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerLine:
    """A trainer, and why it has what it has.

    Attributes:
        name: Its name.
        state: What is to become of it, or became of it.
        message: Why, where it ended; else empty. Hostile text.
        reason: Why it has the nodes it has, empty where it wants none.
        nodes: Nodes of its newest generation.
        planned_nodes: Nodes that the plan gives it.
        usable_nodes: Nodes that meet its requirement, others' included.
        generation: Its newest generation, 0 for none.
        changed_s: When that was made, Unix time; None for never.
        node_names: Its nodes, the head's first.
        shape: What its leases ask of their nodes.
        sizes: Node counts that it can use.
        brake: What keeps leases for it from being asked for, empty for nothing.
        problem: Why nothing can be done about it, empty where something can.
        rating: Why the priority values it as it does, empty where it wants no nodes.
        is_background: Whether it gets only what the others leave.
        is_diverging: Whether its metric has gone wrong.
    """

    name: str
    state: str
    message: str = ""
    reason: str = ""
    nodes: int = 0
    planned_nodes: int = 0
    usable_nodes: int = 0
    generation: int = 0
    changed_s: float | None = None
    node_names: tuple[str, ...] = ()
    shape: str = ""
    sizes: tuple[int, ...] = ()
    brake: str = ""
    problem: str = ""
    rating: str = ""
    is_background: bool = False
    is_diverging: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HoleLine:
    """A hole, and what it is used for.

    Attributes:
        node: NodeName.
        reason: What for.
        refusal: Why it cannot be planned with, empty where it can.
        brake: What keeps leases from being asked for, empty for nothing.
        end_s: When it ends, Unix time; None where that is not known, or never.
        ends_by: Why it ends then.
        blocker: The job or reservation that ends it, empty for none.
        trainer: Who trains there, empty for nobody.
        expected: What is expected of the node; None where nobody looks ahead.
    """

    node: str
    reason: str
    refusal: str = ""
    brake: str = ""
    end_s: float | None = None
    ends_by: str = ""
    blocker: str = ""
    trainer: str = ""
    expected: Expected | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLine:
    """A lease that waits, runs or ends.

    Attributes:
        name: Its name, as files have it.
        job: What scancel calls its job.
        state: Where it is.
        node: Its node, empty before it runs.
        start_s: When it started, Unix time, None before.
        end_s: When its limit ends it, Unix time, None before it runs.
        limit_min: Its time limit, whole minutes.
        shape: What it asked of its node.
        agent: What its agent is about, empty where none is heard.
        is_silent: Whether nothing can be planned on its agent now.
        trainer: Who trains there, empty for nobody.
    """

    name: str
    job: str
    state: str
    node: str
    start_s: float | None
    end_s: float | None
    limit_min: int
    shape: str
    agent: str
    is_silent: bool
    trainer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What one tick saw, did, and why.

    Attributes:
        at_s: When the look was taken, by slurmctld's clock, Unix time.
        took_s: How long the tick took, seconds.
        cluster: ClusterName.
        release: slurmctld's release.
        partition: Where leases are submitted unless a trainer says otherwise.
        mode: Who makes room for others.
        is_torn: Whether backfill was at work during the look.
        is_plan_known: Whether its plans could be trusted all the same.
        requests: Slurm commands run.
        planner: How far the plan can be trusted to be the best.
        planner_reason: Why, where there is more to say.
        planner_gap: How far the plan is below what any could gain at most, by the
            objective that it was made by (``milp.gap``), 0 to 2; None on pages of
            before that was told.
        is_by_lives: Whether that objective goes by expected lives of nodes.
        planner_s: How long deciding took, seconds.
        brake: What keeps all leases from being asked for, empty for nothing.
        paused_until_s: Until when failed starts make it pause, Unix time; None for
            no pause.
        churned: Leases asked for and given up by choice in the last hour.
        caps: The most there may be, by name.
        done: What was done, by what.
        problems: What went wrong, for people. Hostile text.
        trainers: In order of submission.
        holes: In Slurm's order, those that cannot be used last.
        leases: Those that are not gone.
        priority: Who rated the trainers.
        came: What had been expected of leases that ended last, the newest first.
        promises: What came against what was promised.
        forecaster: Who says how long nodes stay; empty where nobody looks ahead.
        leaves: Leaf switches, or blocks, whose nodes are taken to be close; 0 for
            none known.
        leaf_rate: How often two idle nodes below one of them left together, of the
            times that either did, 0 to 1; None where none are known.
        version: Of this format.
    """

    at_s: float
    took_s: float
    cluster: str
    release: str
    partition: str
    mode: str
    is_torn: bool
    is_plan_known: bool
    requests: int
    planner: str
    planner_reason: str
    planner_s: float
    brake: str
    paused_until_s: float | None
    churned: int
    caps: dict[str, int]
    done: dict[str, int]
    problems: tuple[str, ...]
    trainers: tuple[TrainerLine, ...]
    holes: tuple[HoleLine, ...]
    leases: tuple[LeaseLine, ...]
    priority: str = ""
    came: tuple[CameLine, ...] = ()
    promises: tuple[Interval, ...] = ()
    leaves: int = 0
    leaf_rate: float | None = None
    planner_gap: float | None = None
    is_by_lives: bool = False
    forecaster: str = ""
    version: int = VERSION

    @property
    def held_back(self) -> str:
        """What keeps leases from those who want nodes; empty where nobody does."""
        is_wanted = any(one.state == TrainerState.WANTED for one in self.trainers)
        return self.brake if is_wanted else ""


def rendered(page: Page) -> str:
    """Return *page* as JSON that every reader takes: no infinity, no surrogates."""
    return json.dumps(record_of(page), indent=1, allow_nan=False) + "\n"


def record_of(page: Page) -> dict[str, object]:
    """Return *page* as plain values for JSON; what is infinite is None."""
    return {name: _plain(value) for name, value in asdict(page).items()}


def read_page(path: Path) -> Page | None:
    """Return the page of the last tick; None before the first.

    Raises:
        UnreadableFileError: It is no such page, or another version's.
        OSError: It cannot be read.
    """
    try:
        fields = _versioned(json.loads(path.read_bytes()))
        trainers = tuple(_line(TrainerLine, one) for one in fields.pop("trainers"))
        holes = tuple(map(_hole, fields.pop("holes")))
        leases = tuple(_line(LeaseLine, one) for one in fields.pop("leases"))
        came = tuple(_line(CameLine, one) for one in fields.pop("came", ()))
        promises = tuple(_line(Interval, one) for one in fields.pop("promises", ()))
        problems = tuple(fields.pop("problems"))
        return Page(
            trainers=trainers,
            holes=holes,
            leases=leases,
            problems=problems,
            came=came,
            promises=promises,
            **fields,
        )
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnreadableFileError(path, error) from error


def _versioned(fields: dict[str, Any]) -> dict[str, Any]:
    if fields["version"] != VERSION:
        raise ValueError(f"version {fields['version']}, expected {VERSION}")
    return fields


def _hole(fields: dict[str, Any]) -> HoleLine:
    expected = fields.pop("expected", None)
    line: HoleLine = _line(HoleLine, fields)
    if expected is None:
        return line
    return replace(line, expected=_line(Expected, expected))


def _line(kind: type[Any], fields: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
    tuples = {k: tuple(v) for k, v in fields.items() if isinstance(v, list)}
    return kind(**{**fields, **tuples})


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
