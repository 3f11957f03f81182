"""What a replay is asked for, and the options that do not go together."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from freetrain.broker.limits import Mode
from freetrain.config.document import ROOT, MismatchError
from freetrain.config.site import NUMBERS
from freetrain.errors import UsageError
from freetrain.lookahead.base import DEFAULT_FORECASTER
from freetrain.losscurve.forecast import Better
from freetrain.planning.settings import POLICIES, RATED_POLICIES
from freetrain.priority.base import (
    check_settings,
    priority_named,
    priority_names,
    settings_of,
)
from freetrain.replay.settings import (
    DEFAULT_PRIORITY,
    IN_THE_LOOP,
    LoopSettings,
    ReplaySettings,
    check_policy,
    usual_settings,
)
from freetrain.text import one_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from freetrain.cli.context import MethodName
    from freetrain.replay.trainers import TrainerSpec


POLICY_NAMES = tuple(POLICIES)

DRAWN = "quality:"
"""How the name of a set of trainers begins that is drawn; its size follows."""


def is_drawn(trainers: str) -> bool:
    """Tell whether *trainers* names a set that is drawn."""
    return trainers.startswith(DRAWN)


Settings = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """One log, several policies, everything else the same.

    Attributes:
        log: The log's file; None for dedicated nodes.
        named: How the user named it.
        pool: Dedicated nodes instead of a log's idle ones; None with a log.
        trainers: A built-in set, ``quality:N`` or a TOML file, as the user named it.
        load: Of a drawn set: the work that arrives, over what the nodes can do.
        curves: Of a drawn set: the folder of its curves; None for the recorded ones.
        better: Which of their values are good.
        topology: The file of the leaf switches that nodes are below; None for none.
        policies: At least one, each once.
        priorities: What the policies of ``RATED_POLICIES`` go by, at least one, each
            once; ``static`` goes by the first.
        priority_settings: Settings of these by name; each has those that are its own.
        forecasters: By whom ``lookahead`` looks ahead, each once; empty for the usual
            one.
        against: Which of these the others are held against, trainer by trainer.
        schedule: How jobs of a job log got their nodes.
        nodes: The first nodes that take part; None for all.
        start_s: Second of the log to begin at.
        days: Days to replay; None to the end.
        skip_bad: Bad lines that may be passed over.
        seed: Seed of whatever is drawn.
        settings: Everything else; its policy and priority are replaced.
        by: The command line of another verb that asked for this; empty for ``replay``.
    """

    log: Path | None
    named: str
    pool: int | None = None
    trainers: str
    load: float = 1.0
    curves: str | None = None
    better: Better = Better.HIGHER
    topology: str | None = None
    policies: tuple[str, ...]
    priorities: tuple[str, ...] = (DEFAULT_PRIORITY,)
    priority_settings: tuple[tuple[str, float], ...] = ()
    forecasters: tuple[str, ...] = ()
    against: str | None = None
    schedule: MethodName
    nodes: int | None
    start_s: float
    days: float | None
    skip_bad: int
    seed: int
    settings: ReplaySettings
    by: str = ""

    @property
    def entrants(self) -> tuple[ReplaySettings, ...]:
        """What is replayed: each policy, the rated ones by each priority.

        ``lookahead`` also by each forecaster.

        Raises:
            UsageError: There is no such priority, or none of them has such a setting.
        """
        own = own_settings(self.priorities, self.priority_settings)
        return tuple(
            replace(
                self.settings,
                policy=policy,
                priority=priority,
                priority_settings=own[priority],
                forecaster=forecaster,
            )
            for policy in self.policies
            for priority in (
                self.priorities if policy in RATED_POLICIES else self.priorities[:1]
            )
            for forecaster in self._asked(policy)
        )

    @property
    def looks_ahead(self) -> bool:
        """Whether forecasts count for any of its policies."""
        return "lookahead" in self.policies

    def _asked(self, policy: str) -> tuple[str, ...]:
        """Return by whom *policy* looks ahead; one for those that do not, unused."""
        usual = (DEFAULT_FORECASTER,)
        return self.forecasters or usual if policy == "lookahead" else usual

    @property
    def _told(self) -> tuple[str, ...]:
        return self._asked("lookahead") if self.looks_ahead else ()

    @property
    def command(self) -> str:
        """The command line that asks for the same again, defaults spelled out."""
        return self.by or self._replay

    @property
    def _replay(self) -> str:
        settings, every_s = self.settings, self.settings.look_every_s
        given: list[tuple[str, object]] = [
            ("--pool", self.pool),
            ("--trainers", self.trainers),
            ("--load", None if self.load == 1.0 else f"{self.load:.15g}"),
            ("--curves", self.curves),
            ("--better", self.better if self.better is Better.LOWER else None),
            *(("--policy", policy) for policy in self.policies),
            *(("--priority", priority) for priority in self.priorities),
            *(("--set", f"{k}={value:.15g}") for k, value in self.priority_settings),
            ("--against", self.against),
            ("--topology", self.topology),
            *(("--forecaster", name) for name in self._told),
            ("--every", None if every_s is None else f"{every_s:.15g}"),
            ("--accounting", settings.accounting),
            ("--schedule", self.schedule),
            ("--nodes", self.nodes),
            ("--start", f"{self.start_s:.15g}"),
            ("--days", None if self.days is None else f"{self.days:.15g}"),
            ("--parallel", settings.parallel),
            ("--t-fwd", f"{settings.t_fwd_s:.15g}"),
            ("--cost-factor", f"{settings.cost_factor:.15g}"),
            ("--solver", settings.solver),
            ("--seed", self.seed),
            ("--skip-bad", self.skip_bad or None),
        ]
        words = ["freetrain", "replay", *([] if self.log is None else [self.named])]
        words += [str(w) for pair in given if pair[1] is not None for w in pair]
        words += ["--requeue"] if settings.requeue else []
        words += ["--learned"] if settings.learns_speeds else []
        return shlex.join(words)


def refuse_name_as_log(log: Path | None, cwd: Path) -> None:
    """Refuse the second word of ``--priority slaq fair``, which stands for a log.

    Raises:
        UsageError: It names a policy or a priority, and no file.
    """
    name = str(log)
    if log is None or (cwd / log).exists():
        return
    option = "--priority" if name in priority_names() else "--policy"
    if name in priority_names() or name in POLICY_NAMES:
        raise UsageError(
            f"{name!r} stands where the log does, and there is no such file; nothing "
            f"was replayed. To compare by it, write {option} {name}: the option takes "
            f"one name each time."
        )


def with_baseline_policy(
    policies: Sequence[str], against: str | None
) -> tuple[str, ...]:
    """Return *policies*, and the one that they are held against.

    Raises:
        UsageError: They are held against a priority that none of them goes by.
    """
    if against is not None and against in POLICY_NAMES:
        return tuple(dict.fromkeys([*policies, against]))
    if against is not None and not set(RATED_POLICIES).intersection(policies):
        raise UsageError(
            f"--against {against} is no policy, and only the policies "
            f"{' and '.join(RATED_POLICIES)} go by priorities; nothing was replayed. "
            f"Add --policy {RATED_POLICIES[0]}."
        )
    return tuple(policies)


def with_baseline_priority(
    priorities: Sequence[str], against: str | None
) -> tuple[str, ...]:
    """Return *priorities*, each once, and the one that they are held against."""
    also = [] if against is None or against in POLICY_NAMES else [against]
    return tuple(dict.fromkeys([*priorities, *also]))


def given_settings(words: Iterable[str]) -> Settings:
    """Return the settings that *words* give, by name, as freetrain.toml has them.

    Raises:
        UsageError: A word is not ``NAME=VALUE`` with a finite number, or a name is
            given twice.
    """
    found: dict[str, float] = {}
    for word in words:
        ((name, value),) = _setting(word)
        if name in found:
            raise UsageError(
                f"--set {name} is given twice, as {found[name]:g} and {value:g}. "
                f"Nothing was replayed. Give it once, or replay twice."
            )
        found[name] = value
    return tuple(sorted(found.items()))


def _setting(word: str) -> Settings:
    name, _, value = word.partition("=")
    try:
        return NUMBERS.read({name.strip(): float(value)}, ROOT)
    except (ValueError, MismatchError) as error:
        raise UsageError(
            f"--set {word}: expected NAME=VALUE with a finite number, as in "
            f"--set horizon_s=600. Nothing was replayed."
        ) from error


def own_settings(
    priorities: Sequence[str], settings: Settings
) -> Mapping[str, Settings]:
    """Return the settings of each of *priorities*: those of *settings* that it has.

    Raises:
        UsageError: There is no such priority, or none of them has such a setting, or
            its value means nothing.
    """
    own = {}
    try:
        check_settings(priorities, dict(settings))
        for name in priorities:
            known = settings_of(name)
            own[name] = tuple(pair for pair in settings if pair[0] in known)
            priority_named(name, dict(own[name]))
    except UsageError as error:
        raise UsageError(f"{error} Nothing was replayed.") from error
    return own


def refuse_unused(request: ReplayRequest) -> None:
    """Refuse what *request* was given beside what would make use of it.

    Raises:
        UsageError: There is such an option.
    """
    for needed, given in _unused(request).items():
        for option, is_given in given.items():
            if is_given:
                raise UsageError(
                    f"{option} is for {needed}; nothing was replayed. Leave it out."
                )


def _unused(request: ReplayRequest) -> dict[str, dict[str, bool]]:
    """Return by what is missing which options, that need it, are given."""
    has_log, has_draw = request.log is not None, is_drawn(request.trainers)
    has_curves, is_lower = request.curves is not None, request.better is Better.LOWER
    rates = not set(RATED_POLICIES).isdisjoint(request.policies)
    plans = rates or "static" in request.policies
    return {
        "replays of a log": {
            "--schedule": not has_log and request.schedule != "recorded",
            "--nodes": not has_log and request.nodes is not None,
            "--start": not has_log and request.start_s > 0,
            "--skip-bad": not has_log and request.skip_bad > 0,
            "--topology": not has_log and request.topology is not None,
        },
        "the policy lookahead": {
            "--topology": not request.looks_ahead and request.topology is not None,
            "--forecaster": not request.looks_ahead and bool(request.forecasters),
        },
        "--trainers quality:N": {
            "--load": not has_draw and request.load != 1.0,
            "--curves": not has_draw and has_curves,
        },
        "--curves": {"--better": is_lower and not has_curves},
        f"the policies {', '.join((*RATED_POLICIES, 'static'))}": {
            "--priority": not plans and request.priorities != (DEFAULT_PRIORITY,)
        },
        f"the policies {', '.join(RATED_POLICIES)}": {
            "a second --priority": not rates and len(request.priorities) > 1,
            "--learned": not rates and request.settings.learns_speeds,
        },
    }


def refuse_against(request: ReplayRequest, trainers: Iterable[TrainerSpec]) -> None:
    """Refuse a baseline where none of *trainers* has what is held against it.

    Raises:
        UsageError: None has a quality curve.
    """
    if request.against is None or any(one.quality is not None for one in trainers):
        return
    raise UsageError(
        f"--against is for trainers with quality curves, and of "
        f"{one_line(request.trainers)} none has one; nothing was replayed. Leave it "
        f"out, or say --trainers {DRAWN}20."
    )


def check_sweep(
    request: ReplayRequest, loads: Collection[float] | None, *, in_the_loop: bool
) -> None:
    """Refuse what a replay over seeds and loads cannot do.

    Raises:
        UsageError: Something of it does not go with several seeds.
    """
    if request.priorities == (request.against,):
        raise UsageError(
            f"{request.against} would be held against itself; nothing was replayed. "
            f"Name another --priority, or another --against."
        )
    refused = {
        "--in-the-loop": in_the_loop,
        f"--policy {request.policies[-1]}: it holds priorities of the policy "
        f"freetrain against each other": request.policies != ("freetrain",),
        f"--trainers {one_line(request.trainers)}: it draws trainers. Say --trainers "
        f"{DRAWN}40": not is_drawn(request.trainers),
        "both --load and --loads": bool(loads) and request.load != 1.0,
    }
    for what, is_asked in refused.items():
        if is_asked:
            raise UsageError(
                f"a replay over --seeds and --loads does not go with {what}. Nothing "
                f"was replayed."
            )


_OF_PREEMPT = ("--notice", "--commit")


_OF_YIELD = ("--lead", "--last", "--careful", "--careless")


def loop_settings(
    mode: Mode | None,
    given: Mapping[str, float | None],
    *,
    careful: bool | None,
    blind: bool,
) -> LoopSettings | None:
    """Return the settings of the loop; None where none is asked for.

    Args:
        mode: What ``--in-the-loop`` says.
        given: ``--tick``, ``--lead``, ``--last``, ``--notice``, ``--commit`` and
            ``--margin`` by name, None where they are not given.
        careful: What ``--careful`` or ``--careless`` says; None without either.
        blind: Whether ``--blind`` is.

    Raises:
        UsageError: Options of a loop without one, or of the other mode.
    """
    named = [f"--{name}" for name, value in given.items() if value is not None]
    named += [] if careful is None else [_care(careful)]
    named += ["--blind"] * blind
    if mode is None:
        if named:
            fits = Mode.YIELD if named[0] in _OF_YIELD else Mode.PREEMPT
            raise UsageError(
                f"{named[0]} is for replays with --in-the-loop; nothing was replayed. "
                f"Add --in-the-loop {fits.value}, or leave it out."
            )
        return None
    for option in _OF_PREEMPT:
        if mode is Mode.YIELD and option in named:
            raise UsageError(
                f"{option} is for --in-the-loop preempt: under yield jobs wait for the "
                f"next tick. Nothing was replayed. Leave it out."
            )
    for option in _OF_YIELD:
        if mode is Mode.PREEMPT and option in named:
            raise UsageError(
                f"{option} is for --in-the-loop yield: under preempt jobs wait for no "
                f"tick. Nothing was replayed. Leave it out."
            )
    chosen: dict[str, Any] = {
        f"{name}_s": value for name, value in given.items() if value is not None
    }
    usual = usual_settings(mode)
    if careful is not None:
        chosen["is_careful"] = careful
    return replace(usual, knows_plans=not blind, **chosen)


def _care(is_careful: bool) -> str:  # noqa: FBT001 - a word for it
    return "--careful" if is_careful else "--careless"


def loop_words(loop: LoopSettings) -> list[str]:
    """Return the options that ask for *loop*, defaults spelled out."""
    words = ["--in-the-loop", loop.mode.value, "--tick", f"{loop.tick_s:.15g}"]
    if loop.lead_s is not None:
        words += ["--lead", f"{loop.lead_s:.15g}"]
    if loop.last_s is not None:
        words += ["--last", f"{loop.last_s:.15g}"]
    if loop.mode is Mode.PREEMPT:
        words += ["--notice", f"{loop.notice_s:.15g}"]
        words += ["--commit", f"{loop.commit_s:.15g}"]
    if loop.margin_s is not None:
        words += ["--margin", f"{loop.margin_s:.15g}"]
    if loop.mode is Mode.YIELD:
        words += [_care(loop.is_careful)]
    return words if loop.knows_plans else [*words, "--blind"]


def check_loop(request: ReplayRequest) -> None:
    """Refuse what a loop cannot do.

    Args:
        request: What is to be replayed.

    Raises:
        UsageError: Something of it does not go with a loop.
    """
    refused = {
        "--pool: there are no jobs there": request.pool is not None,
        "--schedule recorded: that starts jobs whoever is there. Add --schedule slurm "
        "or easy": request.pool is None and request.schedule == "recorded",
        "--nodes: jobs need the whole machine": request.nodes is not None,
        "--every: it decides at ticks": request.settings.look_every_s is not None,
        "--against": request.against is not None,
        "--topology: nodes of a log of jobs are any": request.topology is not None,
        "quality:N: a load needs a known pool": is_drawn(request.trainers),
    }
    for what, is_asked in refused.items():
        if is_asked:
            raise UsageError(
                f"--in-the-loop does not go with {what}. Nothing was replayed."
            )


def policies_in_the_loop(policies: tuple[str, ...]) -> tuple[str, ...]:
    """Return *policies*; all that can be in the loop where all there are is asked for.

    Raises:
        UsageError: One of them cannot be.
    """
    if policies == POLICY_NAMES:
        return IN_THE_LOOP
    for name in policies:
        check_policy(name)
    return policies
