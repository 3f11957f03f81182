"""The members of a pack that run: started, counted, asked to stop, and ended."""

from __future__ import annotations

from dataclasses import dataclass
from resource import RUSAGE_CHILDREN, getrusage
from signal import SIGKILL
from typing import TYPE_CHECKING

from freetrain.elastic.run_dir import RunDir
from freetrain.pack.environment import member_environment
from freetrain.pack.member import Berth, Member, start
from freetrain.pack.processes import is_there, members_of, tell
from freetrain.pack.record import member_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.elastic.clock import Clock
    from freetrain.jobfile.job import TrainerJob
    from freetrain.pack.means import Means
    from freetrain.pack.processes import Packer
    from freetrain.pack.record import End

KILLED_WITHIN_S = 5.0
"""Time after which a process that was killed is left to the kernel."""

_AGAIN_S = 0.01


@dataclass(frozen=True, slots=True)
class Node:
    """What members run on.

    Attributes:
        run: The pack's run directory.
        generation: The pack's generation.
        packer: This process.
        means: By what CPU shares are set.
        cpus: CPUs of all members together.
        environment: This process' variables.
        clock: The clocks to go by.
    """

    run: RunDir
    generation: int
    packer: Packer
    means: Means
    cpus: int
    environment: Mapping[str, str]
    clock: Clock


class Crew:
    """The members that run.

    Attributes:
        members: By name, in the order in which they came.
    """

    def __init__(self, node: Node) -> None:
        self.members: dict[str, Member] = {}
        self._node = node

    def start(self, job: TrainerJob, *, after: int = 0) -> Berth:
        """Start a trainer.

        Args:
            job: The trainer.
            after: The number of its last fragment, 0 for none.

        Raises:
            OSError: It cannot be started.
        """
        node, berth = self._node, self._berth(job, after)
        prefix = node.means.admit(job.name)
        variables = member_environment(berth, node.environment, node.packer)
        try:
            member = start((*prefix, *job.command), berth, variables)
        except OSError:
            node.means.release(job.name)
            raise
        self.members[job.name] = member
        node.means.follow(job.name, (member.process.pid,))
        return berth

    def count(self) -> None:
        """List the processes of all members, and the time that they used."""
        for name, pids in self._pids().items():
            self.members[name].count(pids)
            self._node.means.follow(name, self.members[name].pids)

    def ended(self) -> list[tuple[Member, End]]:
        """Take out the members that have ended, with all that they left running."""
        found = [(member, member.ended()) for member in self.members.values()]
        over = [(member, end) for member, end in found if end is not None]
        if over:
            self._kill([member for member, _ in over])
        return over

    def ended_used_s(self) -> float:
        """Return the CPU time of all members that ended, and of their children."""
        used = getrusage(RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def ask(self) -> None:
        """Ask all to stop, and give each as much of the CPUs for it."""
        self.count()
        if self.members:
            share = 1 / len(self.members)
            self._node.means.set_shares(dict.fromkeys(self.members, share))
        for member in self.members.values():
            member.ask()

    def kill_late(self, asked_s: float) -> None:
        """Kill those whose time to stop, since *asked_s*, is over."""
        now_s = self._node.clock.elapsed_s()
        late = [
            member
            for member in self.members.values()
            if now_s - asked_s > member.berth.job.stop.kill_after_s
        ]
        for member in late:
            tell((member.process.pid,), SIGKILL)

    def close(self) -> None:
        """Kill whoever is left, and leave nothing behind."""
        self._kill(list(self.members.values()))
        self._node.means.close()

    def _berth(self, job: TrainerJob, after: int) -> Berth:
        folder = member_folder(self._node.run, job.name)
        path = job.checkpoint.path
        run = (
            RunDir(path) if job.elastic and path is not None else RunDir(folder / "run")
        )
        # Above the pack's own, so that the logs of a program that knows nothing of
        # generations are told apart by them; and one that failed before it claimed
        # its number has an outcome there.
        number = max(self._node.generation, run.newest_generation() + 1, after + 1)
        return Berth(job, run, job.logs or folder / "logs", number)

    def _pids(self) -> dict[str, tuple[int, ...]]:
        marked = members_of(self._node.packer)
        return {
            name: (*marked.get(name, ()), *self._node.means.pids(name))
            for name in self.members
        }

    def _kill(self, members: list[Member]) -> None:
        """Kill all processes of *members*: again, as some may just be starting more."""
        until_s = self._node.clock.elapsed_s() + KILLED_WITHIN_S
        names = [member.name for member in members]
        while True:
            found = self._pids()
            left = {pid for name in names for pid in found[name] if is_there(pid)}
            left |= {m.process.pid for m in members if m.process.poll() is None}
            if not left or self._node.clock.elapsed_s() > until_s:
                break
            tell(left, SIGKILL)
            self._node.clock.sleep(_AGAIN_S)
        for name in names:
            del self.members[name]
            self._node.means.release(name)
