"""Owner files of an exchange: who has a member, whatever else lies there or fails."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from freetrain.elastic.files import create_once
from freetrain.errors import BadConfigurationError
from freetrain.pack import exchange
from freetrain.pack.exchange import Owner, PackExchange
from freetrain.pack.pack import Inbox, MemberRecord, Pack
from freetrain.priority.migration import MoveRule
from freetrain.state.files import generations

GIVEN = MemberRecord(arrived_s=0.0, generation=4, steps=9)


@pytest.fixture(autouse=True)
def ends_in_time() -> Iterator[None]:
    signal.alarm(20)
    yield
    signal.alarm(0)


class Packs:
    """Packs that exchange the member ``m``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.file = folder / "m.toml"
        self.file.write_text('name = "m"\ncommand = ["true"]\n[nodes]\nmax = 1\n')
        self.owners = folder / "x" / "members" / "m" / "owners"
        self.job = self.named().handed(self.file, name="m")

    def named(self) -> Inbox:
        pack = Pack(members=(self.file,))
        return Inbox(pack, home=self.folder, say=self.said.append)

    def start(self, name: str) -> PackExchange:
        """Return the part of a new generation of the pack *name*."""
        inbox = self.named()
        tuple(inbox.arrivals())
        return PackExchange(
            self.folder / "x",
            pack=name,
            rule=MoveRule.BALANCE,
            inbox=inbox,
            say=self.said.append,
        )


@pytest.fixture
def packs(tmp_path: Path) -> Packs:
    return Packs(tmp_path)


def test_a_copy_that_an_editor_left_is_no_owner_file(packs: Packs) -> None:
    a = packs.start("a")
    a.claim(packs.job)
    (packs.owners / "0000000002.json~").touch()
    assert a.has(packs.start("a").claim(packs.job))
    assert (packs.owners / "0000000002.json").exists()


def see_as_of(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let owner files be read as they were at *number*, until a link fails."""
    read, numbers, create = exchange.read_owner, generations, create_once
    is_old = True

    def old_read(path: Path) -> Owner:
        if is_old and int(path.stem) > number:
            raise FileNotFoundError(path)
        return read(path)

    def fresh_once_refused(path: Path, content: bytes) -> bool:
        nonlocal is_old
        is_created = create(path, content)
        is_old = is_old and is_created
        return is_created

    monkeypatch.setattr(exchange, "read_owner", old_read)
    monkeypatch.setattr(
        exchange, "generations", lambda f: [n for n in numbers(f) if n <= number]
    )
    monkeypatch.setattr(exchange, "create_once", fresh_once_refused)


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("generation", ["first", "second", "new"])
def test_a_pack_that_reads_old_owner_files_does_not_have_what_it_gave_away(
    packs: Packs, monkeypatch: pytest.MonkeyPatch, generation: str, number: int
) -> None:
    first = packs.start("a")
    first.claim(packs.job)
    second = packs.start("a")
    second.claim(packs.job)
    second.offer("m", GIVEN, to="b")
    b = packs.start("b")
    assert b.has(b.claim(packs.job))

    own = {"first": first, "second": second, "new": packs.start("a")}[generation]
    see_as_of(monkeypatch, number)
    assert not own.has(own.claim(packs.job))


def test_a_pack_with_a_member_of_no_possible_name_stops_no_exchange(
    packs: Packs,
) -> None:
    a = packs.start("a")
    a.claim(packs.job)
    a.offer("m", GIVEN, to="b")
    b = packs.start("b")
    for file, name in (("a", "m"), ("y", r"a\u0000b"), ("z", "n" * 300)):
        (packs.folder / "x" / "packs" / f"{file}.json").write_text(
            f'{{"load": {{"pack": "{file}", "cpus": 1}}, "offers": {{"{name}": "b"}}}}'
        )
    assert [job.name for job in b.arrivals()] == ["m"]
    assert not b.is_unread
    assert packs.said == []


def test_a_path_that_is_no_utf_8_is_refused(packs: Packs) -> None:
    with pytest.raises(BadConfigurationError, match="is not UTF-8"):
        packs.start(os.fsdecode(b"/scratch/\xe9t\xe9/run"))


def test_a_member_that_comes_back_brings_what_others_did(packs: Packs) -> None:
    a, b = packs.start("a"), packs.start("b")
    for own, other, steps in ((a, "b", 9), (b, "a", 20)):
        own.claim(packs.job)
        record = MemberRecord(arrived_s=0.0, generation=steps, steps=steps)
        own.offer("m", record, to=other)
    owner = packs.start("a").claim(packs.job)
    assert (owner.generation, owner.steps) == (20, 20)
