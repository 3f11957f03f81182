"""Packs that exchange members: who has a member, and what other packs have.

Packs that name the same folder exchange members through it. A member's folder there
has numbered owner files, each created by link(2), and the newest one says which pack
has the member: so no two packs ever start it, whatever else fails. A pack that is to
give a member away lets it commit and end, and then offers it to another pack by an
owner file. The other pack takes it by the next one; if it does not, the pack that
offered it takes it back in the same way. ``packs`` has a file for each pack that runs:
its members, by which rules choose moves, and its offers.
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from freetrain.config.document import TrainerName  # noqa: TC001 -- msgspec reads it
from freetrain.elastic.files import RunDir, create_once, replaced
from freetrain.errors import BadConfigurationError, BadDataError, FreeTrainError
from freetrain.opening import check_own, read_plain
from freetrain.pack.pack import member_folder, member_folders
from freetrain.priority.migration import RULES, PackLoad
from freetrain.state.files import generation_name, generations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from freetrain.config.job import TrainerJob
    from freetrain.pack.pack import Inbox, MemberRecord
    from freetrain.priority.migration import Migration, MoveRule

_MOST_BYTES = 2**18
"""Of a file; one of a hundred members has 10 kB."""

_ANNOUNCE_EVERY_S = 5.0
"""How often a pack's file is written at least."""

_STALE_S = 30.0
"""A pack whose file is so much older than our own has been killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Which pack has a member; that of the highest number holds.

    Attributes:
        number: From 1 on.
        pack: The run directory of the pack that has the member.
        job: The member's job file, absolute.
        to: The pack that it is offered to; empty for none.
        generation: The number of the member's newest fragment when it was offered.
        steps: Steps that it had done by then.
        samples: Samples that it had done by then.
    """

    number: int
    pack: str
    job: str
    to: str = ""
    generation: int = 0
    steps: int = 0
    samples: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PackNews:
    """The file of a pack that runs.

    Attributes:
        load: Its members.
        offers: By member, the pack to which it is offered.
    """

    load: PackLoad
    offers: dict[TrainerName, str] = field(default_factory=dict)


class PackExchange:
    """One pack's part in an exchange of members.

    Attributes:
        pack: The pack's name.
        is_unread: Whether it is not known yet which members the pack has.
    """

    def __init__(
        self,
        folder: Path,
        *,
        pack: str,
        rule: MoveRule,
        inbox: Inbox,
        say: Callable[[str], None],
    ) -> None:
        """Prepare the folder.

        Args:
            folder: All packs of the exchange see it.
            pack: The run directory of this pack, by which others know it.
            rule: Chooses moves.
            inbox: Reads the job files of members.
            say: Gets a line about each member that cannot be taken.

        Raises:
            BadConfigurationError: The pack's name is not UTF-8.
            UnsafeFolderError: Another user could change what lies in the folder.
            OSError: It cannot be prepared.
        """
        check_own(folder)
        self.pack = _as_text(pack)
        self._home = RunDir(folder)
        self._packs = folder / "packs"
        self._file = self._packs / f"{sha256(os.fsencode(pack)).hexdigest()[:16]}.json"
        self._rule = RULES[rule]
        self._inbox = inbox
        self._say = say
        self._held: dict[str, int] = {}  # numbers of the files that this process made
        self.is_unread = True
        self._complaints: set[str] = set()
        self._news: PackNews | None = None
        self._told_s = -math.inf
        for place in (self._packs, member_folder(self._home, "")):
            place.mkdir(parents=True, exist_ok=True, mode=0o700)

    # Members

    def arrivals(self) -> tuple[TrainerJob, ...]:
        """Return members that are offered to this pack, and at first those it has.

        They are this pack's only after ``claim``. Where something cannot be read that
        is told once, and members stay with the packs that have them.
        """
        try:
            found = tuple(self._arriving())
        except (OSError, ValueError) as error:  # such as a name that no file can have
            self._complain(f"the exchange cannot be read now: {error}")
            return ()
        self.is_unread = False
        return found

    def _arriving(self) -> Iterator[TrainerJob]:
        offered = {
            name
            for _, news in self._others()
            for name, pack in news.offers.items()
            if pack == self.pack
        }
        folders = member_folders(self._home) if self.is_unread else ()
        for name in sorted(offered.union(folder.name for folder in folders)):
            try:
                newest = self._newest(name)
                if newest is None:
                    continue
                is_had = newest.pack == self.pack and self.is_unread
                if is_had or newest.to == self.pack:
                    yield self._inbox.handed(Path(newest.job), name=name)
            except FreeTrainError as error:
                self._complain(str(error))

    def _complain(self, complaint: str) -> None:
        if complaint not in self._complaints:
            self._say(complaint)
            self._complaints.add(complaint)

    def claim(self, job: TrainerJob, *, takes_back: bool = False) -> Owner:
        """Claim a member for this pack unless another pack has it.

        Every start of a member claims it anew: no file can be created twice, whereas
        what is read may be old.

        Args:
            job: The member.
            takes_back: Whether to claim it though this pack offers it to another.

        Returns:
            Who has it now; ``has`` tells whether that is this pack.

        Raises:
            BadConfigurationError: The exchange has another member of this name, or its
                path is not UTF-8.
            BadDataError: An owner file is damaged.
            OSError: They cannot be read, or ours could not be written.
        """
        path = _as_text(str(self._inbox.path_of(job.name)))
        while True:
            newest = self._newest(job.name)
            if newest is None:
                newest = Owner(number=0, pack=self.pack, job=path)
            elif newest.job != path:
                raise BadConfigurationError(
                    f"the exchange has a trainer {job.name!r} already, from "
                    f"{newest.job}. It was not started; give one of them another name."
                )
            is_ours = newest.pack == self.pack and (takes_back or not newest.to)
            if not is_ours and newest.to != self.pack:
                return newest
            ours = replace(newest, number=newest.number + 1, pack=self.pack, to="")
            if self._create(job.name, ours):
                self._held[job.name] = ours.number
                return ours

    def has(self, owner: Owner) -> bool:
        """Tell whether *owner* is this pack, and offers the member to no other."""
        return owner.pack == self.pack and not owner.to

    def offer(self, name: str, record: MemberRecord, *, to: str) -> None:
        """Offer a member that this pack has, and that has ended, to another pack.

        Raises:
            OSError: The offer was not written, or may not survive a crash.
        """
        newest = self._newest(name)
        if newest is None or self._held.pop(name, None) != newest.number:
            return  # a later generation of this pack has it
        offer = replace(
            newest,
            number=newest.number + 1,
            to=to,
            generation=record.generation,
            steps=record.steps,
            samples=record.samples,
        )
        self._create(name, offer)

    def _create(self, name: str, owner: Owner) -> bool:
        path = self._owner_file(name, owner.number)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return create_once(path, msgspec.json.encode(owner))

    def _newest(self, name: str) -> Owner | None:
        """Return the owner of the highest number; None where there is none.

        Raises:
            BadDataError: It is damaged.
            OSError: It cannot be read.
        """
        number = max(generations(self._owner_file(name, 0).parent), default=1)
        newest = None
        # NFS may show an old listing, but not an old answer to a link that failed.
        with suppress(FileNotFoundError):
            while True:
                path = self._owner_file(name, number)
                newest, number = read_owner(path), number + 1
        return newest

    def _owner_file(self, name: str, number: int) -> Path:
        owners = member_folder(self._home, name) / "owners"
        return owners / f"{generation_name(number)}.json"  # named as generations are

    # Packs

    def announce(
        self, load: PackLoad, offers: Mapping[str, str], *, now_s: float
    ) -> None:
        """Tell the other packs of this one: a change at once, else now and then.

        Args:
            load: Its members.
            offers: By member, the pack to which it is offered.
            now_s: Seconds that never run backwards.

        Raises:
            OSError: It could not be written.
        """
        news = PackNews(load=load, offers=dict(offers))
        if news == self._news and now_s - self._told_s < _ANNOUNCE_EVERY_S:
            return
        temporary = self._packs / f".{self._file.stem}.{os.getpid()}"
        with replaced(self._file, temporary=temporary) as file:
            file.write(msgspec.json.encode(news))
        self._news, self._told_s = news, now_s

    def next_move(self, load: PackLoad) -> Migration | None:
        """Return the next move if it is one of a member of this pack.

        Raises:
            OSError: The other packs cannot be read.
        """
        since_s = self._file.stat().st_mtime - _STALE_S  # the file system's clock
        others = [news.load for told_s, news in self._others() if told_s >= since_s]
        move = self._rule((load, *others))
        return move if move is not None and move.source == self.pack else None

    def _others(self) -> Iterator[tuple[float, PackNews]]:
        """Yield when each other pack last wrote its file, Unix time, and what it says.

        Raises:
            OSError: The folder cannot be listed.
        """
        for path in sorted(self._packs.glob("*.json")):
            with suppress(OSError, ValueError):  # it has ended, or wrote nonsense
                written_s = path.stat().st_mtime
                content = read_plain(path, _MOST_BYTES)
                news = msgspec.json.decode(content, type=PackNews)
                if news.load.pack != self.pack and news.load.cpus > 0:
                    yield written_s, news

    def withdraw(self) -> None:
        """Tell the other packs that this one ends."""
        with suppress(OSError):
            self._file.unlink()


def _as_text(path: str) -> str:
    """Return *path*, which the exchange is to name.

    Raises:
        BadConfigurationError: It is not UTF-8.
    """
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise BadConfigurationError(
            f"{os.fsencode(path)!r} is not UTF-8, and packs could not tell each other "
            f"of it. Nothing of it was started; give its folder another name."
        ) from error
    return path


def read_owner(path: Path) -> Owner:
    """Return the owner in the file at *path*.

    Raises:
        BadDataError: It is damaged.
        OSError: It cannot be read.
    """
    try:
        return msgspec.json.decode(read_plain(path, _MOST_BYTES), type=Owner)
    except ValueError as error:
        raise BadDataError(
            f"the owner file {path} cannot be read: {error}. The member was not "
            f"started. If no pack runs it any more, remove the file."
        ) from error
