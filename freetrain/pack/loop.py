"""The loop of a pack: take members in, share the CPUs, notice ends, stop all."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING

from freetrain.pack.record import End, Line, tell_progress, write_record
from freetrain.pack.tries import count_failure, how_it_failed
from freetrain.priority.flowcon_growth import Seen
from freetrain.quality.outlook import Better
from freetrain.toml.wording import one_line, per_cent

if TYPE_CHECKING:
    from collections.abc import Callable

    from freetrain.jobfile.job import TrainerJob
    from freetrain.pack.crew import Crew, Node
    from freetrain.pack.intake import Intake
    from freetrain.pack.member import Member
    from freetrain.pack.pack import Pack
    from freetrain.pack.record import Record
    from freetrain.pack.sharing import Sharing

TURN_S = 0.1
"""How often ends, arrivals and requests to stop are noticed."""

LOOK_S = 1.0
"""How often processes are listed and progress is read."""

KEEP_S = 5.0
"""How often shares are kept while nobody comes or goes: a commit waits for the disk,
and members that take turns wait with it."""

STAND_S = 30.0
"""How often it is kept how members stand, whatever happens: people look at it."""


class Loop:
    """Runs the members of a pack until all are over, or somebody asks to stop."""

    def __init__(  # noqa: PLR0913 -- only the edge makes one
        self,
        pack: Pack,
        node: Node,
        *,
        crew: Crew,
        intake: Intake,
        sharing: Sharing,
        record: Record,
        say: Callable[[str], None],
    ) -> None:
        self._pack = pack
        self._node = node
        self._crew = crew
        self._intake = intake
        self._sharing = sharing
        self._record = record
        self._say = say
        self._is_shared = False
        self._waiting: dict[str, TrainerJob] = {}  # that failed, until they are due
        self._zero_s = node.clock.elapsed_s() - record.ran_s
        self._looked_s = self._kept_s = -math.inf
        self._busy_s = self._now_s()

    def run(self, stop_wanted: Callable[[], bool]) -> bool:
        """Run members until all are over or *stop_wanted*; none is left then.

        Returns:
            Whether nothing was left to do: it was not asked, or in vain.
        """
        try:
            while not stop_wanted():
                self._step()
                if self._is_idle():
                    return True
                self._sleep()
            return self._stop()
        finally:
            self._crew.close()
            self._keep()

    def _step(self) -> None:
        for job in (*self._intake.arrivals(), *self._due()):
            self._take(job)
        self._notice_ends()
        self._look()

    def _is_idle(self) -> bool:
        now_s = self._now_s()
        is_busy = bool(self._crew.members or self._waiting)
        if is_busy:
            self._busy_s = now_s
        return now_s - self._busy_s >= self._pack.stay_s and not is_busy

    def _stop(self) -> bool:
        asked_s = self._node.clock.elapsed_s()
        self._say("asked to stop")
        self._crew.ask()
        while self._crew.members:
            self._sleep()
            self._notice_ends()
            self._crew.kill_late(asked_s)
        return self._is_all_over()

    def _is_all_over(self) -> bool:
        """Tell whether nobody is left, those included who have not been taken in."""
        lines = self._record.members
        names = {*lines, *(job.name for job in self._intake.arrivals())}
        return all(name in lines and lines[name].is_over for name in names)

    def _now_s(self) -> float:
        return self._node.clock.elapsed_s() - self._zero_s

    def _sleep(self) -> None:
        due_s = self._node.means.turn(self._node.clock.elapsed_s())
        self._node.clock.sleep(min(TURN_S, due_s))

    def _due(self) -> list[TrainerJob]:
        """Take out those that failed and whose pause is over."""
        lines, now_s = self._record.members, self._now_s()
        due = [n for n in self._waiting if (lines[n].again_s or 0.0) <= now_s]
        return [self._waiting.pop(name) for name in due]

    def _take(self, job: TrainerJob) -> None:
        now_s = self._now_s()
        line = self._record.members.setdefault(job.name, Line(arrived_s=now_s))
        if line.is_over:
            return
        if line.again_s is not None and line.again_s > now_s:
            self._waiting[job.name] = job
            return
        line.ended_s, line.end, line.message = None, "", ""
        line.again_s, line.started_s = None, now_s
        try:
            berth = self._crew.start(job, after=line.generation)
        except OSError as error:
            line.message = one_line(f"it cannot be started: {error}")
            self._count_failure(job, line.committed_step)
            self._over(job.name, End.FAILED)
            return
        line.generation = berth.generation
        self._say(f"{job.name} started, generation {berth.generation}")

    def _notice_ends(self) -> None:
        for member, end in self._crew.ended():
            self._hear(member)
            if end is End.FAILED:
                self._record.members[member.name].message = member.why_failed()
                if not member.is_asked:
                    self._count_failure(member.berth.job, member.committed_step)
            self._over(member.name, end)

    def _count_failure(self, job: TrainerJob, committed_step: int) -> None:
        line, now_s = self._record.members[job.name], self._now_s()
        count_failure(line, job, committed_step=committed_step, now_s=now_s)
        if line.again_s is not None:
            self._waiting[job.name] = job

    def _over(self, name: str, end: End) -> None:
        line = self._record.members[name]
        line.ended_s, line.end = self._now_s(), str(end)
        how = how_it_failed(line) if end is End.FAILED else str(end)
        self._say(f"{name} {how}")
        if line.again_s is not None:
            pause_s = line.again_s - line.ended_s
            self._say(f"{name} is started again in {pause_s:.3g} s")
        self._looked_s = -math.inf  # what it did last is to be told
        self._keep()

    def _look(self) -> None:
        now_s = self._now_s()
        members = self._crew.members
        is_due = bool(members) and self._sharing.is_due(members, now_s)
        if now_s - self._looked_s < LOOK_S and not is_due:
            return
        self._looked_s = now_s
        self._crew.count()
        for member in members.values():
            self._hear(member)
        if is_due:
            self._share(now_s)
        elif members and not self._is_shared:  # as the generation before shared
            self._set_shares()
        self._tell()
        if now_s - self._kept_s >= STAND_S:
            self._keep()

    def _hear(self, member: Member) -> None:
        sign = -1.0 if self._pack.better is Better.HIGHER else 1.0
        member.hear(self._pack.metric, sign=sign, now_s=self._now_s())
        line = self._record.members[member.name]
        line.steps, line.samples = member.done

    def _share(self, now_s: float) -> None:
        members = self._crew.members.values()
        seen = [
            Seen(
                name=member.name,
                values=tuple(pair for pair in member.values if pair[0] <= now_s),
                used_s=member.used_s / self._node.cpus,
            )
            for member in members
        ]
        self._record.shares = self._sharing.look(seen, now_s)
        for member in members:
            member.forget(self._sharing.measured_s(member.name))
        self._set_shares()
        if now_s - self._kept_s >= KEEP_S:
            self._keep()

    def _set_shares(self) -> None:
        shares, self._is_shared = self._record.shares, True
        try:
            self._node.means.set_shares(shares)
        except OSError as error:
            self._say(f"shares could not be set, and stay as they were: {error}")
        self._say(", ".join(self._words(name, part) for name, part in shares.items()))

    def _words(self, name: str, share: float) -> str:
        return f"{name} {per_cent(share)} ({self._sharing.words(name)})"

    def _tell(self) -> None:
        """Tell the planner how quick the members are together."""
        lines = self._record.members.values()
        with suppress(OSError):  # a full disk costs lines, never the training
            tell_progress(
                self._node.run.progress,
                t=self._node.clock.unix_s(),
                step=sum(line.steps for line in lines),
                samples=sum(line.samples for line in lines),
                generation=self._node.generation,
            )

    def _keep(self) -> None:
        self._kept_s = self._record.ran_s = self._now_s()
        self._record.used_s = self._crew.ended_used_s()
        self._record.means = str(self._node.means.name)
        self._record.sharing = self._sharing.remember()
        try:
            write_record(self._node.run, self._record)
        except OSError as error:
            self._say(f"how members stand could not be kept: {error}")
