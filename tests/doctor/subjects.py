"""Somebody to examine: a site in a folder, and a Slurm or none."""

import itertools
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from freetrain.config.site import LeaseSettings, Site
from freetrain.cron import Programs
from freetrain.doctor.findings import Finding, Subject
from slurm.backend import CommandLine
from slurm.runner import SubprocessRunner

NOW_S = 1_900_000_000.0


def a_subject(
    folder: Path,
    environ: Mapping[str, str],
    *,
    may_run: bool = True,
    real_time: bool = False,
) -> Subject:
    """Return a subject whose state is in *folder*; time passes only if *real_time*."""
    import time  # noqa: PLC0415

    ticks = itertools.count()
    runner = SubprocessRunner(environ)
    site = Site(
        state_directory=folder / "state", lease=LeaseSettings(partition="freetrain")
    )
    return Subject(
        site=site,
        environ={"HOME": str(folder)} | dict(environ),
        uid=os.getuid(),
        python=Path(sys.executable),
        programs=Programs(environ),
        runner=runner,
        backend=CommandLine(runner),
        now_s=time.time,  # noqa: TID251 -- files are stamped by the real clock
        clock=time.monotonic if real_time else lambda: float(10 * next(ticks)),
        sleep=time.sleep if real_time else lambda _: None,
        new_uuid=lambda: "5a4e0b5e-0000-4000-8000-000000000001",
        may_run=may_run,
    )


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    """Return *findings* by what they are about; each is there once."""
    named = {found.name: found for found in findings}
    assert len(named) == len(findings)
    return named
