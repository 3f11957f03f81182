"""Single calls that fail: exactly one, of the right process, and only when told to."""

import subprocess
from pathlib import Path
from random import Random

from tests.soak.call_faults import ERRORS, CallFaults, make_python

LOOK = """
import os, sys
from pathlib import Path

folder, failed = Path(sys.argv[1]), []
for _ in range(2_000):
    try:
        (folder / "file").read_bytes()
        os.stat(folder / "file")
        os.stat(folder.parent)
    except OSError as error:
        failed.append(error.errno)
print(len(failed))
"""


def failures(python: Path, folder: Path, *words: str) -> str:
    """Run the script as a process with *words*; return how many calls failed."""
    return subprocess.run(  # noqa: S603 -- our own words
        [python, "-c", LOOK, str(folder), *words],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def test_a_process_that_is_told_to_fails_one_call(tmp_path: Path) -> None:
    watched = tmp_path / "watched"
    watched.mkdir()
    (watched / "file").touch()
    python = make_python(tmp_path / "injected", watched=watched)
    faults, random = CallFaults(tmp_path / "injected"), Random(1)  # noqa: S311
    tick = ("freetrain", "tick")

    before = failures(python, watched, *tick)
    assert faults.order("tick", random)
    assert not faults.order("tick", random), "one waits already"
    agents = failures(python, watched, "freetrain.agent")
    ticks = failures(python, watched, *tick), failures(python, watched, *tick)

    assert (before, agents, ticks) == ("0", "0", ("1", "0"))
    (done,) = faults.done()
    assert done.split()[0] == "tick"
    assert done.split()[1] in ERRORS
