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
        answer = ""
        if act not in _NOTHING_DONE:
            answer = answer_in(act, folder, program, argv)
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


def answer_in(
    act: Act,
    folder: Path,
    program: str,
    argv: Sequence[str],
    *,
    now_s: float | None = None,
) -> str:
    """Return the answer of *program*, perhaps as in the middle of backfill."""
    answer = programs.answer(folder, program, argv, now_s=now_s)
    if act is not Act.MID_BACKFILL:
        return answer
    if program == "squeue":
        return _queue_without_plans(folder, argv, now_s=now_s)
    return answer.replace("Backfilling stats", _IN_BACKFILL)


def _queue_without_plans(
    folder: Path, argv: Sequence[str], *, now_s: float | None
) -> str:
    """Tell the queue as in mid-cycle: backfill has just forgotten its plans."""
    cluster = keeping.read(folder)
    for job in cluster.jobs:
        job.due_s = None
    real_s = time.time()  # noqa: TID251 - a whole program
    return telling.squeue(cluster, argv, real_s if now_s is None else now_s)


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
