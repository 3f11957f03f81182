"""Shadow mode on nodes that jobs share: leases of GPUs beside jobs and each other."""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freetrain.api.shadow import look_at
from freetrain.config.document import BaseFolders
from freetrain.config.job import parse_job
from freetrain.config.site import (
    NO_RULES,
    Caps,
    LeaseMode,
    LeaseSettings,
    PlannerSettings,
    Site,
    SiteRules,
)
from freetrain.state.database import open_store
from freetrain.state.files import StateDir
from freetrain.state.tables import KnownLimits, forecast_state, put_known_limits
from freetrain.tick.environment import TickContext, real_environment
from slurm.associations import AccountingLimits, Association
from slurm.backend import CommandLine
from slurm.records import ClusterConfig, Gres, JobRecord, JobState, Node, NodeState
from slurm.text import parse_config
from tests.slurm.clusters import NOW_S, recorded, snapshot_of, statistics

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from freetrain.api.shadow_looks import ShadowLook
    from freetrain.config.job import TrainerJob
    from slurm.holes import Snapshot

CONFIG = parse_config(recorded("gpus", "config.txt"))
GPUS = 4
NODES = ("n1", "n2", "n3")


class NoSlurm:
    """A runner that nobody may ask."""

    def run(self, argv: Sequence[str], *, timeout_s: float) -> str:
        raise AssertionError(f"{argv} was asked within {timeout_s} s")


def trainer(
    name: str, *, most: int, nodes: str = "", weight: float = 1.0
) -> TrainerJob:
    speeds = ", ".join(f'"{n}" = {100.0 * n}' for n in (1, most))
    text = (
        f'name = "{name}"\ncommand = "true"\nweight = {weight}\n'
        f"scaling = {{ {speeds} }}\n"
        f"[nodes]\nmax = {most}\n{nodes}\n"
        f'[launch]\nlauncher = "srun"\n[costs]\nstart = "10s"\n'
    )
    return parse_job(text.encode(), path="job.toml", places=BaseFolders(Path("/")))


SINGLE = trainer("single", most=6, nodes="gpus_per_lease = 1")
DOUBLE = trainer("double", most=2, nodes="gpus_per_lease = 2")
WHOLE = trainer("whole", most=2)


def shared_node(name: str, used: int) -> Node:
    states = {0: NodeState.IDLE, GPUS: NodeState.ALLOCATED}
    return Node(
        name=name,
        states=frozenset({states.get(used, NodeState.MIXED)}),
        gres=(Gres("gpu", "a100", GPUS),),
        cpus=16,
        memory_mib=16_000,
        partitions=("freetrain",),
        allocated_gres=(Gres("gpu", "a100", used),) if used else (),
        allocated_cpus=4 * used,
        allocated_memory_mib=4_000 * used,
    )


def their_job(number: int, used: int, **more: object) -> JobRecord:
    job = JobRecord(
        job_id=number,
        display_id=str(number),
        states=frozenset({JobState.RUNNING}),
        user="bob",
        uid=12_345,
        name="theirs",
        partitions=("freetrain",),
        start_s=NOW_S - 60.0,
        end_s=NOW_S + 36_000.0,
        node_count=1,
        cpu_count=4 * used,
        least_cpus=4 * used,
        least_memory_mib=4_000 * used,
        gres_per_node=f"gres:gpu:a100:{used}",
    )
    return replace(job, **more)  # type: ignore[arg-type]


def seen(used: Mapping[str, int], *others: JobRecord, after_s: float = 0.0) -> Snapshot:
    """Return a snapshot of nodes of which jobs have so many GPUs, and *others*."""
    jobs = (
        their_job(number, used[name], nodes=name)
        for number, name in enumerate(NODES, start=1)
        if used.get(name) and name not in {job.nodes for job in others}
    )
    return snapshot_of(
        nodes=[shared_node(name, used.get(name, 0)) for name in NODES],
        jobs=(*jobs, *others),
        statistic=statistics(taken_s=NOW_S + after_s),
    )


@dataclass
class Shadow:
    """Looks a minute apart, at clusters that a test makes."""

    context: TickContext
    jobs: Mapping[str, TrainerJob]
    last: ShadowLook | None = None
    after_s: float = -60.0

    def look(
        self,
        used: Mapping[str, int],
        *others: JobRecord,
        config: ClusterConfig = CONFIG,
    ) -> ShadowLook:
        self.after_s += 60.0
        snapshot = seen(used, *others, after_s=self.after_s)
        self.last = look_at(self.context, config, snapshot, self.jobs, self.last)
        return self.last


@contextmanager
def shadow_of(  # noqa: PLR0913 -- settings of a site
    folder: Path,
    *jobs: TrainerJob,
    planner: PlannerSettings | None = None,
    mode: LeaseMode = LeaseMode.PREEMPT,
    most: int = 100,
    most_new: int = 100,
    rules: SiteRules = NO_RULES,
) -> Iterator[Shadow]:
    site = Site(
        state_directory=folder,
        lease=LeaseSettings(partition="freetrain", mode=mode),
        planner=planner or PlannerSettings(learn=False),
        caps=Caps(leases=most, leases_per_tick=most_new),
        rules=rules,
    )
    environment = replace(
        real_environment({}), user="ada", clock=itertools.count().__next__
    )
    with open_store(folder / "shadow", uid=environment.uid) as state:
        context = TickContext(
            site=site,
            environment=environment,
            folder=StateDir(folder / "shadow"),
            state=state,
            backend=CommandLine(NoSlurm()),
            turn=None,
        )
        yield Shadow(context, {job.name: job for job in jobs})


WIDTHS = {"single": 1, "double": 2, "whole": GPUS}


def gpus_leased(look: ShadowLook) -> Counter[str]:
    found: Counter[str] = Counter()
    for lease in look.leases:
        found[lease.node] += WIDTHS[lease.trainer]
    return found


def test_leases_of_gpus_are_planned_beside_jobs_and_stay(tmp_path: Path) -> None:
    used = {"n1": 2, "n2": 4}
    with shadow_of(tmp_path, SINGLE) as shadow:
        first, second = shadow.look(used), shadow.look(used)

    assert gpus_leased(first) == {"n1": 2, "n3": 4}
    assert (second.leases, second.ended) == (first.leases, ())
    assert dict(first.holes).keys() == {"n[1,3]"}
    done = second.trained["single"]
    assert (done.lease_s, done.samples) == (6 * 60.0, (60.0 - 10.0) * 600.0)


def test_a_job_takes_the_pieces_that_it_needs_and_no_others(tmp_path: Path) -> None:
    with shadow_of(tmp_path, SINGLE) as shadow:
        shadow.look({"n1": 2, "n2": 4})
        second = shadow.look({"n1": 3, "n2": 4})

    assert [(end.node, end.why) for end in second.ended] == [("n1", "taken")]
    assert gpus_leased(second) == {"n1": 1, "n3": 4}
    assert second.trained["single"].lease_s == 5 * 60.0


def test_others_take_the_oldest_pieces_of_a_node_first(tmp_path: Path) -> None:
    with shadow_of(tmp_path, SINGLE) as shadow:
        shadow.look({"n1": 3, "n2": 4, "n3": 4})
        second = shadow.look({"n1": 2, "n2": 4, "n3": 4})
        third = shadow.look({"n1": 3, "n2": 4, "n3": 4})

    old, new = sorted(second.leases, key=lambda lease: lease.start_s)
    assert (old.start_s, new.start_s) == (NOW_S, NOW_S + 60.0)
    assert [lease.start_s for lease in third.leases] == [new.start_s]
    assert [(end.start_s, end.why) for end in third.ended] == [(NOW_S, "taken")]


def test_pieces_and_whole_nodes_are_planned_together_and_kept_apart(
    tmp_path: Path,
) -> None:
    without_memory = replace(CONFIG, select_type_parameters="CR_CPU")
    many = trainer("single", most=12, nodes="gpus_per_lease = 1")
    heavy = trainer("whole", most=2, weight=100.0)
    with shadow_of(tmp_path, many, heavy) as shadow:
        for _ in range(2):
            look = shadow.look({"n1": 1}, config=without_memory)

            whole = {own.node for own in look.leases if own.trainer == "whole"}
            single = {own.node for own in look.leases if own.trainer == "single"}
            assert whole
            assert single
            assert whole.isdisjoint(single | {"n1"})


@settings(max_examples=15)
@given(
    st.lists(
        st.fixed_dictionaries(dict.fromkeys(NODES, st.integers(0, GPUS))),
        min_size=2,
        max_size=4,
    )
)
def test_leases_never_have_more_than_jobs_leave(looks: list[dict[str, int]]) -> None:
    with (
        TemporaryDirectory() as folder,
        shadow_of(Path(folder), SINGLE, DOUBLE, WHOLE) as shadow,
    ):
        before: Counter[tuple[str, float]] = Counter()
        for used in looks:
            look = shadow.look(used)
            leased = gpus_leased(look)
            assert all(used[name] + leased[name] <= GPUS for name in NODES), look
            now = Counter((lease.trainer, lease.start_s) for lease in look.leases)
            ended = Counter((end.trainer, end.start_s) for end in look.ended)
            assert before == {
                own: count for own, count in (now + ended).items() if own[1] < look.at_s
            }
            before = now


def waiting_job(gpus: int, **more: object) -> JobRecord:
    fields: dict[str, object] = {
        "states": frozenset({JobState.PENDING}),
        "reason": "Resources",
        "priority": 1_000,
        "eligible_s": NOW_S - 60.0,
        "start_s": None,
        "end_s": None,
        "limit_s": 3_600.0,
        "task_count": 1,
        "oversubscribe": "OK",
    }
    return their_job(9, gpus, **fields | more)


@pytest.mark.parametrize(
    ("used", "gpus", "left"),
    [
        ({"n1": 3, "n2": 4}, 4, {"n1": 1}),
        ({"n1": 1, "n2": 4, "n3": 4}, 2, {"n1": 1}),
    ],
)
def test_leases_give_way_to_a_job_that_could_start_on_their_gpus(
    tmp_path: Path, used: dict[str, int], gpus: int, left: dict[str, int]
) -> None:
    with shadow_of(tmp_path, SINGLE, mode=LeaseMode.YIELD) as shadow:
        first = shadow.look(used)
        second = shadow.look(used, waiting_job(gpus))

    assert gpus_leased(first).total() == 3 * GPUS - sum(used.values())
    assert gpus_leased(second) == left
    assert Counter(end.why for end in second.ended) == {"taken": gpus}


def test_leases_end_by_their_time_before_a_job_is_planned_there(
    tmp_path: Path,
) -> None:
    start_s = NOW_S + 600.0
    planned = waiting_job(GPUS, planned_nodes="n3", start_s=start_s)
    used = {"n1": 4, "n2": 4}
    with shadow_of(tmp_path, SINGLE) as shadow:
        first = shadow.look(used, planned)
        later = [shadow.look(used, planned) for _ in range(9)]

    assert len(first.leases) == GPUS
    assert all(start_s - 180.0 < own.until_s < start_s for own in first.leases)
    ended = [end for look in later for end in look.ended if end.start_s == NOW_S]
    assert Counter(end.why for end in ended) == {"time": GPUS}


def test_no_more_leases_are_new_than_a_tick_may_ask_for(tmp_path: Path) -> None:
    with shadow_of(tmp_path, SINGLE, most_new=2) as shadow:
        looks = [shadow.look({}), shadow.look({})]

    assert [len(look.leases) for look in looks] == [2, 4]


def test_the_cap_holds_for_all_leases_that_there_would_be(tmp_path: Path) -> None:
    with shadow_of(tmp_path, SINGLE, most=3) as shadow:
        looks = [shadow.look({}), shadow.look({})]

    assert [len(look.leases) for look in looks] == [3, 3]
    assert looks[0].leases == looks[1].leases


def test_no_more_leases_are_planned_than_fit_below_limits(tmp_path: Path) -> None:
    own = Association("physics", user="ada", is_default=True)
    above = Association("physics", limits={"GrpTRES=cpu": 8})
    known = KnownLimits(AccountingLimits(associations=(above, own)), read_s=NOW_S)
    limited = replace(CONFIG, enforces_limits=True)
    with shadow_of(tmp_path, SINGLE) as shadow:
        put_known_limits(shadow.context.state, known)
        looks = [shadow.look({}, config=limited) for _ in range(2)]

    assert [len(look.leases) for look in looks] == [2, 2]
    assert looks[0].leases == looks[1].leases


def test_what_the_rules_of_the_site_forbid_is_said(tmp_path: Path) -> None:
    rules = SiteRules(partitions=("main",))
    with shadow_of(tmp_path, SINGLE, rules=rules) as shadow:
        look = shadow.look({})

    assert look.leases == ()
    (said,) = look.problems
    assert "may not go to partition freetrain" in said


def test_leases_that_ticks_have_meanwhile_are_jobs_like_others(tmp_path: Path) -> None:
    with shadow_of(tmp_path, WHOLE) as shadow:
        shadow.look({"n2": 4, "n3": 4})
        real = their_job(
            7,
            GPUS,
            nodes="n1",
            uid=shadow.context.environment.uid,
            name="freetrain-00000000-0000-0000-0000-000000000000",
        )
        second = shadow.look({"n1": 4, "n2": 4, "n3": 4}, real)

    assert [(end.node, end.why) for end in second.ended] == [("n1", "taken")]
    assert (second.leases, second.holes) == ((), ())


def test_forecasts_are_learned_from_look_to_look(tmp_path: Path) -> None:
    planner = PlannerSettings(policy="lookahead", learn=False)
    with shadow_of(tmp_path, SINGLE, WHOLE, planner=planner) as shadow:
        for used in [{"n1": 1}, {"n1": 1}, {"n1": 2, "n3": 4}]:
            look = shadow.look(used)
            assert look.problems == ()
        learned = forecast_state(shadow.context.state)

    assert learned is not None
    assert '"pieces"' in learned
    leased = gpus_leased(look)
    assert leased["n1"] <= 2
    assert leased["n3"] == 0
