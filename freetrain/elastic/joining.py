"""Join a run: the one thing that a training program calls first."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.elastic.ahead import wait_for_predecessor
from freetrain.elastic.begin import begin, begin_nothing
from freetrain.elastic.clock import Clock
from freetrain.elastic.end import end, fail
from freetrain.elastic.find_world import find_world
from freetrain.elastic.launch import SPARE, read_launch
from freetrain.elastic.run_dir import RunDir
from freetrain.elastic.setting import Setting
from freetrain.elastic.stop import StopSignals

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from freetrain.elastic.fragment import Fragment
    from freetrain.elastic.launch import Launch
    from freetrain.elastic.world import World

_DEFAULT_RUN_DIR = "freetrain-run"
_CLOCK = Clock()


@contextmanager
def join(  # noqa: PLR0913  # all of them have defaults
    *,
    run_dir: str | os.PathLike[str] = _DEFAULT_RUN_DIR,
    commit_every_s: float = 60.0,
    progress_every_s: float = 1.0,
    world: World | None = None,
    environment: Mapping[str, str] = os.environ,
    clock: Clock = _CLOCK,
) -> Iterator[Fragment]:
    """Join the run that the launcher set up, or train alone; collective.

    A clean end of the block commits what is not committed and writes the outcome;
    an exception writes the outcome "failed" and ends every rank. Call it on the
    main thread, where Python lets signals be handled.

    Args:
        run_dir: Where checkpoints and progress go; the launcher's word counts more.
        commit_every_s: Time between two commits, the most work that a crash
            costs; likewise. 0 commits every step.
        progress_every_s: Least time between two progress lines; likewise.
        world: The ranks, where it is not MPI that connects them.
        environment: The process' variables.
        clock: The clocks to go by.

    Yields:
        The context of this fragment.

    Raises:
        LaunchError: The launch is wrong; nothing was trained.
        NotCommittedError: The training is over, but its end could not be kept.
    """
    _spare(environment)
    launch = read_launch(environment)
    setting = Setting(
        launch=launch,
        run=RunDir(Path(launch.run_dir or run_dir).absolute()),
        commit_every_s=_first(launch.commit_every_s, commit_every_s),
        progress_every_s=_first(launch.progress_every_s, progress_every_s),
        clock=clock,
    )
    ranks, fragment = world, None
    try:
        ranks = find_world(launch, environment, given=world)
        with _heard(launch) as signals:
            stop, why = wait_for_predecessor(setting, ranks, signals)
            fragment = (
                begin_nothing(setting, ranks, stop=stop, why=why)
                if stop
                else begin(setting, ranks, signals)
            )
            try:
                yield fragment
            except SystemExit as leaving:
                if leaving.code:
                    raise
                end(setting, fragment)
                raise
            end(setting, fragment)
    except BaseException as error:
        if not isinstance(error, SystemExit) or error.code:
            fail(setting, ranks, fragment, error)
        raise


def _spare(environment: Mapping[str, str]) -> None:
    """Where this process is a spare, go on only in the ranks that it becomes."""
    if environment.get(SPARE) and environment is os.environ:
        # Imported here: only spares need it.
        from freetrain.elastic.spare import become_a_rank  # noqa: PLC0415

        become_a_rank(os.environ)


def _first(launcher: float | None, program: float) -> float:
    return program if launcher is None else launcher


@contextmanager
def _heard(launch: Launch) -> Iterator[StopSignals]:
    signals = StopSignals(launch.stop_signals)
    try:
        yield signals
    finally:
        # Under a launcher the process is about to end, and a late signal must not
        # kill it on its way out.
        if launch.generation is None:
            signals.close()
        else:
            signals.ignore()
