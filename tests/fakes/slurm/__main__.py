"""One fake program: ``python -m tests.fakes.slurm PROGRAM FOLDER ARGUMENT…``.

The stand-in for Slurm that ships with FreeTrain does what is asked; here it is made
to misbehave, as scripted.
"""

import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from freetrain.demo.fake_slurm import cluster as keeping
from freetrain.demo.fake_slurm import commands as programs
from freetrain.demo.fake_slurm import commands as telling
from freetrain.demo.fake_slurm.commands import ComplaintError
from tests.fakes.slurm.state import Act, opened

_NOTHING_DONE = {Act.HANG, Act.LOSE, Act.REFUSE, Act.UNREACHABLE}
_IN_BACKFILL = (
    "Backfilling stats (WARNING: data obtained in the middle of backfilling execution.)"
)


def main(program: str, folder: Path, argv: Sequence[str]) -> int:
    """Be *program* once and return its exit status."""
    with opened(folder) as script:
        script.calls.append([program, *argv])
        act = script.take_act(program)
    if program == "srun" and act not in _NOTHING_DONE:
        return programs.main(folder, program, argv)
    try:
        answer = "" if act in _NOTHING_DONE else _do(folder, program, argv, act)
    except ComplaintError as complaint:
        sys.stderr.write(f"{complaint}\n")
        return 1
    if act in {Act.HANG, Act.HANG_AFTER}:
        signal.pause()
    if act is Act.REFUSE:
        sys.stderr.write(f"{program}: error: Access/permission denied\n")
    if act is Act.UNREACHABLE:
        sys.stderr.write(f"{program}: error: Unable to contact slurm controller\n")
    sys.stdout.buffer.write(_spoilt(answer, act).encode("utf-8", "surrogateescape"))
    return int(act in {Act.REFUSE, Act.UNREACHABLE})


def _do(folder: Path, program: str, argv: Sequence[str], act: Act) -> str:
    answer = programs.answer(folder, program, argv)
    if act is not Act.MID_BACKFILL:
        return answer
    if program == "squeue":
        return _queue_without_plans(folder, argv)
    return answer.replace("Backfilling stats", _IN_BACKFILL)


def _queue_without_plans(folder: Path, argv: Sequence[str]) -> str:
    """Tell the queue as in mid-cycle: backfill has just forgotten its plans."""
    cluster = keeping.read(folder)
    for job in cluster.jobs:
        job.due_s = None
    return telling.squeue(cluster, argv, time.time())  # noqa: TID251 - a whole program


def _spoilt(answer: str, act: Act) -> str:
    if act is Act.EMPTY:
        return ""
    if act is Act.HALF:
        return answer[: (len(answer) - 1) // 2 or len(answer) - 1].rstrip("\n")
    if act is Act.GARBAGE:
        return "\x1b[31m<html>502 Bad Gateway</html>\n"
    return answer


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
