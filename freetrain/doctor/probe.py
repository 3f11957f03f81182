"""What the one-step run does on its compute node: look, launch, write down.

Called as ``python -m freetrain.doctor FOLDER``, as a step of the job. Whatever
goes wrong is part of the answer; only a folder that cannot be written is an error.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

from freetrain.broker.lease import LeaseKey
from freetrain.config.job import read_job
from freetrain.doctor.host import look_at_links
from freetrain.elastic.files import replaced
from freetrain.errors import FreeTrainError
from freetrain.launch.local import LocalLauncher, this_node
from freetrain.launch.request import CannotLaunchError
from freetrain.state.files import Assigned, AssignedLease, StateDir

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.launch.local import Session

TRAINER = "doctor"
RESULT = "result.json"
_GENERATION = 1
_WORLD_S = 25.0
_AGENT_S = 15.0
_BEAT_S = 0.05
_SHOWN = 400


def main() -> None:
    """Do all of it and write the result."""
    folder = Path(sys.argv[1])
    started_s = time.time()  # noqa: TID251 -- the clock of this node is what is asked
    found = {
        "started_s": started_s,
        "host": socket.gethostname(),
        "node": os.environ.get("SLURMD_NODENAME", ""),
        "python": ".".join(map(str, sys.version_info[:3])),
        "freetrain": importlib.metadata.version("freetrain"),
        "links": look_at_links(folder).verdict,
        **_launch(folder, os.environ),
    }
    found["ended_s"] = time.time()  # noqa: TID251 -- as above
    path = folder / RESULT
    with replaced(path, temporary=path.with_suffix(".new")) as file:
        file.write(json.dumps(found).encode())


def _launch(folder: Path, environ: Mapping[str, str]) -> dict[str, object]:
    """Start a world of two ranks as an agent does, then the launch agent by itself."""
    state = StateDir(folder)
    member = AssignedLease(
        key=LeaseKey(folder.name, 0),
        job_id=int(environ.get("SLURM_JOB_ID", "0")),
        display_id=environ.get("SLURM_JOB_ID", ""),
        node=environ.get("SLURMD_NODENAME", ""),
    )
    assigned = Assigned(
        trainer=TRAINER,
        generation=_GENERATION,
        members=(member,),
        created_s=0.0,
        author=TRAINER,
        reason="one-step run",
    )
    try:
        job = read_job(state.trainer(TRAINER).job)
        launcher = LocalLauncher(state, this_node(environ), SystemRandom())
        session = launcher.launch(job, assigned)
    except (FreeTrainError, CannotLaunchError, OSError) as error:
        return {"world_failed": str(error)}
    status = _wait(session)
    log = state.trainer(TRAINER).logs / f"{_GENERATION:010d}.log"
    return {
        "world_status": status,
        "world_said": log.read_text("utf-8", "replace")[-_SHOWN:],
        **_try_agent(state, member),
    }


def _wait(session: Session) -> int | None:
    """Return the launcher's status, None where it was killed for taking too long."""
    deadline_s = time.monotonic() + _WORLD_S
    while session.poll() is None and time.monotonic() < deadline_s:
        time.sleep(_BEAT_S)
    status = session.poll()
    session.kill()
    return status


def _try_agent(state: StateDir, member: AssignedLease) -> dict[str, object]:
    """Call the launch agent as mpirun would for another node; it starts a step."""
    agent = state.trainer(TRAINER).world(_GENERATION) / "agent"
    try:
        done = subprocess.run(  # noqa: S603 -- our own script and fixed words
            [str(agent), member.node, "echo reached-$FREETRAIN_LEASE"],
            capture_output=True,
            check=False,
            timeout=_AGENT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"agent_failed": str(error)}
    said = (done.stdout + done.stderr).decode("utf-8", "replace")
    return {"agent_reached": f"reached-{member.key.uuid}-" in said, "agent_said": said}
