"""The launch agent: a shell script per generation, by which launchers reach nodes.

It is called like ssh, ``agent HOST COMMAND...``, finds the lease on HOST and becomes
``srun --jobid=LEASE --overlap``: no ssh, and processes stay under Slurm's accounting.
A site may name a program of its own to be called instead of srun.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from freetrain.launch.request import LEASE_MARK, WORLD_MARK, PlannedFile
from slurm.runner import KEPT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.launch.request import WorldRequest
    from freetrain.state.files import Member

_RUNNABLE = 0o700
_SHIELD = (
    "import os, signal, sys; "
    "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); "
    # dash, which is Debian's sh, unblocks all signals as it starts.
    "bash = '/bin/bash'; "
    "shell = bash if os.path.exists(bash) else '/bin/sh'; "
    "os.execv(shell, [shell, '-c', sys.argv[1]])"
)

# A step's variables would make an MPI below it, or a program, believe that its world
# is the step. Lines of a longer value can look like a name; unsetting those is nothing.
_UNSET = f"""\
for name in $(env | sed -n -e 's/^\\(SLURM[A-Za-z0-9_]*\\)=.*/\\1/p' \\
    -e 's/^\\(SRUN_[A-Za-z0-9_]*\\)=.*/\\1/p' \\
    -e 's/^\\(PMI[A-Za-z0-9_]*\\)=.*/\\1/p')
do
    case $name in
    {"|".join(sorted(KEPT))}) ;;
    *) unset "$name" ;;
    esac
done
"""

# --cpu-bind=none and --mem=0: all that the lease has, where a step of one task would
# get one core and the default memory. No -c, which implies --exact.
_STEP = (
    "--overlap --nodes=1 --ntasks=1 --mpi=none --export=ALL --cpu-bind=none --mem=0 "
    "--input=none --kill-on-bad-exit=1 --wait=0"
)


def agent_files(
    request: WorldRequest,
    *,
    is_shielded: bool = False,
    srun: str = "",
    srun_options: Sequence[str] = (),
) -> tuple[PlannedFile, ...]:
    """Return the launch agent of *request* and what it runs on the node.

    Args:
        request: The world.
        is_shielded: Whether TERM is kept from what is started on the nodes: Slurm
            sends it to every process of a step that it preempts, and MPI's daemons
            would end the world before it has committed. They give it to the ranks.
        srun: The srun to use; empty for the head's own.
        srun_options: Further options for it.
    """
    start = _start(request, srun or request.head.srun, srun_options)
    return (
        PlannedFile(request.agent_path, _agent(request, start), _RUNNABLE),
        PlannedFile(
            request.node_path, _node(request, is_shielded=is_shielded), _RUNNABLE
        ),
    )


def _agent(request: WorldRequest, start: str) -> str:
    generation = request.assigned.generation
    cases = "".join(map(_case, request.members))
    world = shlex.quote(request.marks(request.members[0])[WORLD_MARK])
    return f"""\
#!/bin/sh
# Starts a process on a node of one generation; written by FreeTrain.
# Called like ssh: agent [-x] HOST COMMAND...
while :; do
    case ${{1-}} in
    -*) shift ;;
    *) break ;;
    esac
done
host=${{1-}}
[ $# -gt 0 ] && shift
case $host in
{cases}*)
    echo "freetrain: generation {generation} has no node $host" >&2
    exit 69
    ;;
esac
{WORLD_MARK}={world}
export {LEASE_MARK} {WORLD_MARK}
{_UNSET}{start}
"""


def _case(member: Member) -> str:
    lease = shlex.quote(f"{member.key.uuid}-{member.key.task}")
    return f"""\
{shlex.quote(member.node)})
    {LEASE_MARK}={lease}
    job={int(member.job_id)}
    ;;
"""


def _start(request: WorldRequest, srun: str, srun_options: Sequence[str]) -> str:
    node = shlex.quote(str(request.node_path))
    own = request.head.launch_agent
    if own is None:
        return (
            f'exec {shlex.quote(srun)} --jobid="$job" --nodelist="$host" \\\n'
            f'    {_STEP} {shlex.join(srun_options)} /bin/sh {node} "$*"'
        )
    # Like ssh it may not take variables along; names of ours hold no quotes.
    marks = " ".join(f"{name}='${name}'" for name in (LEASE_MARK, WORLD_MARK))
    names = f"{LEASE_MARK} {WORLD_MARK}"
    return f'exec {shlex.quote(str(own))} "$host" "{marks}; export {names}; $*"'


def _node(request: WorldRequest, *, is_shielded: bool) -> str:
    start = "exec /bin/sh -c"
    if is_shielded:  # a shell can ignore signals, and only others can block them
        python = shlex.quote(request.head.python)
        start = f"exec {python} -I -S -c {shlex.quote(_SHIELD)}"
    return f"""\
#!/bin/sh
# What a process of the launch agent begins with on its node; written by FreeTrain.
{_UNSET}{start} "$1"
"""
