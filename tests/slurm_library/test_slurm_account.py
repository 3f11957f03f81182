"""Our user name is what Slurm calls us, also where a host knows us by number only."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys

import pytest

from slurm.runner import user_name

_UNKNOWN = 4_000_000
_SAY = f"import os, slurm.runner as a; os.setuid({_UNKNOWN}); print(a.user_name())"


def test_we_have_the_name_that_the_host_knows() -> None:
    assert user_name() == pwd.getpwuid(os.getuid()).pw_name


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become somebody else")
def test_somebody_without_a_name_is_called_by_number() -> None:
    said = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", _SAY], capture_output=True, text=True, check=True
    )

    assert said.stdout.strip() == str(_UNKNOWN)
