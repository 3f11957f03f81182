"""One fake program: ``python -m tests.fakes.slurm PROGRAM FOLDER ARGUMENT…``."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fakes.slurm import batch, telling
from tests.fakes.slurm.state import Act, opened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.fakes.slurm.state import FakeState

_NOTHING_DONE = {
    Act.HANG,
    Act.LOSE,
    Act.REFUSE,
    Act.UNREACHABLE,
}


def main(program: str, folder: Path, argv: Sequence[str]) -> int:
    """Be *program* once and return its exit status."""
    with opened(folder) as state:
        state.now_s += 1
        state.calls.append([program, *argv])
        act = state.take_act(program)
        try:
            answer = "" if act in _NOTHING_DONE else _do(state, program, argv, act)
        except batch.ComplaintError as complaint:
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


def _do(state: FakeState, program: str, argv: Sequence[str], act: Act) -> str:
    is_torn = act is Act.MID_BACKFILL
    match program:
        case "sbatch":
            return batch.sbatch(state, argv)
        case "scancel":
            return batch.scancel(state, argv)
        case "squeue":
            return telling.squeue(state, argv, mid_backfill=is_torn)
        case "scontrol":
            return telling.scontrol(state, argv)
        case "sdiag":
            return telling.sdiag(state, mid_backfill=is_torn)
        case _:
            return telling.sinfo()


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
