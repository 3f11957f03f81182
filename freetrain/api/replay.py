"""``ft.replay``: policies compared on one log, with results as frames and drawings."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.api.context import UserContext, member_named
from freetrain.api.logs import Log, read_log
from freetrain.api.request import ReplayRequest
from freetrain.errors import UsageError
from freetrain.losscurve.forecast import MetricDirection
from freetrain.planning.settings import Solver
from freetrain.replay.settings import DEFAULT_PRIORITY, Accounting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pandas as pd
    import plotly.graph_objects as go

    from freetrain.api.logs import MethodName, PassesName
    from freetrain.report.summary import Comparison


def replay(  # noqa: PLR0913 - the options of `freetrain replay`
    log: Log | str | Path | None = None,
    *,
    pool: int | None = None,
    trainers: str | Path = "hps",
    policies: str | Sequence[str] = (),
    priorities: str | Sequence[str] = (),
    settings: Mapping[str, float] | None = None,
    forecasters: str | Sequence[str] = (),
    against: str | None = None,
    accounting: str = "real",
    schedule: MethodName = "recorded",
    passes: PassesName = "moment",
    nodes: int | None = None,
    start: float = 0.0,
    days: float | None = None,
    load: float = 1.0,
    curves: str | Path | None = None,
    better: str = "higher",
    parallel: int | None = None,
    every: float | None = None,
    requeue: bool = False,
    learned: bool = False,
    topology: str | Path | None = None,
    t_fwd: float = 120.0,
    cost_factor: float = 1.0,
    solver: str = "exact",
    seed: int = 0,
    gpus_per_lease: int | None = None,
    forecasts: bool = False,
) -> Replay:
    """Replay a log and compare policies for training in its holes.

    Each parameter but ``forecasts`` is the option of `freetrain replay` of that name;
    options that may
    be repeated are lists: ``policies=["lookahead", "scavenger"]``.

    Args:
        log: A log, or the file of one.
        pool: N nodes of its own instead of a log.
        trainers: ``hps``, ``imagenet``, ``quality:N`` or a TOML file.
        policies: Which to compare; empty for all.
        priorities: Which trainers come first; empty for ``throughput``.
        settings: Settings of the priorities that have them, by name.
        forecasters: Those of ``lookahead``; empty for the default one.
        against: A priority or policy that the others are held against.
        accounting: How costs count: ``real``, ``published`` or ``published+c``.
        schedule: Who starts jobs: ``recorded``, ``easy`` or ``slurm``.
        passes: Simulated schedulers look once a ``moment``, or at each ``event``.
        nodes: The first N nodes only.
        start: Second of the log to begin at.
        days: Days to replay; None for all of a log, or 90 of ``pool``.
        load: ``quality:N``: work that arrives, over what the nodes can do.
        curves: ``quality:N``: a folder of quality curves to draw from.
        better: Whether ``higher`` or ``lower`` values of these curves are good.
        parallel: Trainers that may run at a time; None for 10, all of ``quality:N``.
        every: Ask the policy at least so often, in seconds.
        requeue: Whether trainers that finish start over.
        learned: Whether policies learn speeds, and believe no user.
        topology: A file of leaf switches, as scontrol show topology prints it.
        t_fwd: Look-ahead of the planner, in seconds.
        cost_factor: Multiplies the costs of changing nodes.
        solver: What finds plans: ``exact``, ``cbc`` or ``highs``.
        seed: Of what is drawn.
        gpus_per_lease: Leases of N GPUs, several on one node, of a log that counts
            GPUs; None for whole nodes.
        forecasts: Whether to score what policies that look ahead forecast, for the
            report's page on it; a replay takes about a tenth longer.

    Returns:
        Results with a row, or rows, for each policy.

    Raises:
        FreeTrainError, LogError, MilpError: As the command says it.

    Example:
        >>> import freetrain as ft
        >>> result = ft.replay(pool=4, days=0.1, policies=["freetrain", "equal"])
        >>> list(result.summary.index)
        ['freetrain', 'equal']
    """
    from freetrain.api.compare import compare  # noqa: PLC0415 - SciPy

    if log is not None and not isinstance(log, Log):
        log = read_log(log)
    request = ReplayRequest(
        log=None if log is None else log.path,
        named="" if log is None else log.named,
        pool=pool,
        trainers=str(trainers),
        policies=_several(policies),
        priorities=_several(priorities) or (DEFAULT_PRIORITY,),
        priority_settings=tuple((settings or {}).items()),
        forecasters=_several(forecasters),
        against=against,
        accounting=member_named(Accounting, accounting, "--accounting"),
        schedule=schedule,
        passes=passes,
        nodes=nodes,
        start_s=start,
        days=days,
        load=load,
        curves=None if curves is None else str(curves),
        better=member_named(MetricDirection, better, "--better"),
        parallel=parallel,
        every_s=every,
        requeue=requeue,
        learned=learned,
        topology=None if topology is None else str(topology),
        t_fwd_s=t_fwd,
        cost_factor=cost_factor,
        solver=member_named(Solver, solver, "--solver"),
        seed=seed,
        cores_per_node=None if log is None else log.cores_per_node,
        gpus_per_node=None if log is None else log.gpus_per_node,
        gpus_per_lease=gpus_per_lease,
        skip_bad=0 if log is None else log.skip_bad,
        record_forecasts=forecasts,
    ).checked()
    return Replay(*compare(request, UserContext.of_process(), log=log))


def _several(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


@dataclass(frozen=True, eq=False, repr=False)
class Replay:
    """Policies compared on one log: frames, drawings, and the report.

    Times are seconds from the start of the replay. ``policy`` in all frames is the
    policy's name, or that of the priority or forecaster in which results differ.
    Each frame is made once, when it is first asked for: change a copy of it.

    Attributes:
        comparison: All figures.
        load_s: Seconds that reading the log and finding its holes took.
    """

    comparison: Comparison
    load_s: float

    def __repr__(self) -> str:
        """Return the command that shows the same again, in place of all figures."""
        return f"<Replay: {self.command}>"

    @property
    def cautions(self) -> tuple[str, ...]:
        """A sentence each for what of the log was not used, or inflates figures."""
        return (*self.comparison.log_cautions, *self.comparison.figure_cautions)

    @property
    def command(self) -> str:
        """The command line that shows the same again."""
        return self.comparison.command

    @cached_property
    def summary(self) -> pd.DataFrame:
        """A row a policy: the figures of `freetrain replay --json`.

        A figure of several parts has a column for each, as ``slowdown_p50``.
        """
        import pandas as pd  # noqa: PLC0415 - commands do without

        from freetrain.report.quality import quality_records  # noqa: PLC0415 - NumPy
        from freetrain.report.summary import full_record  # noqa: PLC0415 - NumPy

        own = self.comparison
        frame = pd.json_normalize(
            [
                {"name": own.name(result)}
                | full_record(result, load_s=self.load_s)
                | quality_records(own, result)
                for result in own.results
            ],
            sep="_",
        )
        frame = frame.set_index("name").rename_axis("policy").drop(columns="policy")
        unknown = [column for column in frame if frame[column].isna().all()]
        in_parts = [
            column
            for column in unknown
            if any(other.startswith(f"{column}_") for other in frame)
        ]
        kinds = dict.fromkeys(unknown, "float64")
        return frame.astype(kinds).drop(columns=in_parts)

    @cached_property
    def timeline(self) -> pd.DataFrame:
        """A row an event: ``policy``, ``time_s``, ``idle_nodes``, ``used_nodes``."""
        import pandas as pd  # noqa: PLC0415 - commands do without

        from freetrain.report.page import STEP_COLUMNS, step_rows  # noqa: PLC0415

        rows = (row[:4] for row in step_rows(self.comparison))
        return pd.DataFrame(rows, columns=STEP_COLUMNS[:4]).astype(
            {
                "policy": "category",
                "time_s": "float64",
                "idle_nodes": "int64",
                "used_nodes": "int64",
            }
        )

    @cached_property
    def trainers(self) -> pd.DataFrame:
        """A row a policy and trainer: when it came, started and finished.

        The columns are those of ``completions.csv``; nan and never are one.
        """
        import pandas as pd  # noqa: PLC0415 - commands do without

        from freetrain.report.page import (  # noqa: PLC0415 - Plotly
            COMPLETION_COLUMNS,
            completion_rows,
        )

        policy, trainer, *numbers = COMPLETION_COLUMNS
        frame = pd.DataFrame(
            completion_rows(self.comparison), columns=COMPLETION_COLUMNS
        )
        kinds = {policy: "category", trainer: "str"}
        return frame.astype(kinds | dict.fromkeys(numbers, "float64"))

    @cached_property
    def events(self) -> pd.DataFrame:
        """A row for each trainer that an event resized or finished.

        The columns are ``policy``, ``time_s``, ``trainer``, ``event`` (``resized`` or
        ``finished``) and ``nodes``, which it has from then on.
        """
        import pandas as pd  # noqa: PLC0415 - commands do without

        columns = ("policy", "time_s", "trainer", "event", "nodes")
        return pd.DataFrame(self._events(), columns=columns).astype(
            {
                "policy": "category",
                "time_s": "float64",
                "trainer": "str",
                "event": "category",
                "nodes": "int64",
            }
        )

    def _events(self) -> Iterator[tuple[str, float, str, str, int]]:
        for result in self.comparison.results:
            policy = self.comparison.name(result)
            for step in result.steps:
                for trainer, nodes in step.resized:
                    yield policy, step.time_s, trainer, "resized", nodes
                for trainer in step.finished:
                    yield policy, step.time_s, trainer, "finished", 0

    def plot(self, drawing: str = "samples") -> go.Figure:
        """Return a drawing of the report as a Plotly figure.

        Args:
            drawing: ``samples``, ``losses``, ``pool``, ``bands``, ``holes``,
                ``completions``, ``slowdowns`` or ``quality``.

        Raises:
            UsageError: There is no such drawing.
        """
        from freetrain.report.drawings import DRAWINGS  # noqa: PLC0415 - Plotly

        if drawing not in DRAWINGS:
            known = ", ".join(DRAWINGS)
            raise UsageError(f"there is no drawing {drawing!r}; choose of {known}.")
        return DRAWINGS[drawing](self.comparison)

    def report(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the folder that `freetrain replay --out` writes.

        Its page on forecasts needs a replay with ``forecasts``.

        Args:
            path: The folder; report.html in it is the page to open.
            force: Replace the files of an earlier report.

        Returns:
            The page.

        Raises:
            CannotWriteError: The folder is not empty, or cannot be written.
        """
        from freetrain.api.writing import check_folder, write_folder  # noqa: PLC0415
        from freetrain.report.page import report_files  # noqa: PLC0415 - Plotly

        folder = Path(path)
        check_folder(folder, force=force)
        write_folder(folder, report_files(self.comparison))
        return folder / "report.html"
