"""The launch agent: a shell script per generation, called like ssh.

It runs on the head's node and starts a step inside the lease on the node that is
asked for. Every name in it is quoted; the command is, as with ssh, one text that the
other node's /bin/sh reads.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from freetrain.launch.plan import PlannedFile
from freetrain.launch.request import LEASE_MARK, WORLD_MARK
from slurm.environment import KEPT

if TYPE_CHECKING:
    from freetrain.exchange.assigned import Member
    from freetrain.launch.request import WorldRequest

TASKS = "FREETRAIN_TASKS"
"""How many processes the launch agent starts on the node; 1 unless it is set."""

_RUNNABLE = 0o700

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
    "--overlap --nodes=1 --mpi=none --export=ALL --cpu-bind=none --mem=0 "
    "--input=none --kill-on-bad-exit=1 --wait=0"
)


def agent_files(request: WorldRequest) -> tuple[PlannedFile, ...]:
    """Return the launch agent of *request* and what it needs."""
    return (
        PlannedFile(request.agent_path, _agent(request), _RUNNABLE),
        PlannedFile(request.node_path, _node(), _RUNNABLE),
    )


def _agent(request: WorldRequest) -> str:
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
tasks=${{{TASKS}-1}}
unset {TASKS}
{_UNSET}{_start(request)}
"""


def _case(member: Member) -> str:
    lease = shlex.quote(f"{member.key.uuid}-{member.key.task}")
    return f"""\
{shlex.quote(member.node)})
    {LEASE_MARK}={lease}
    job={int(member.job_id)}
    ;;
"""


def _start(request: WorldRequest) -> str:
    node = shlex.quote(str(request.node_path))
    own = request.head.launch_agent
    if own is None:
        srun = shlex.quote(request.head.srun)
        return (
            f'exec {srun} --jobid="$job" --nodelist="$host" --ntasks="$tasks" \\\n'
            f'    {_STEP} /bin/sh {node} "$*"'
        )
    # Like ssh it may not take variables along; names of ours hold no quotes.
    marks = " ".join(f"{name}='${name}'" for name in (LEASE_MARK, WORLD_MARK))
    return f'exec {shlex.quote(str(own))} "$host" "{marks}; export {_names()}; $*"'


def _names() -> str:
    return f"{LEASE_MARK} {WORLD_MARK}"


def _node() -> str:
    return f"""\
#!/bin/sh
# What a process of the launch agent begins with on its node; written by FreeTrain.
{_UNSET}exec /bin/sh -c "$1"
"""
