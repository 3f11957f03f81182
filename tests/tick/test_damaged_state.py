"""Databases that are damaged or lost: put back, or an error that says what to do."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import time
from collections import Counter
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from freetrain.broker.lease import LeaseKey
from freetrain.client.trainers import Verb, change
from freetrain.elastic.checkpoint import CheckpointStore
from freetrain.errors import FreeTrainError
from freetrain.state.copies import (
    COPY_EVERY_S,
    copies_of,
    damaged_of,
    keep_copy,
)
from freetrain.state.database import (
    DATABASE,
    StoreDamagedError,
    StoreNewerError,
    open_store,
)
from freetrain.state.files import AgentState, Heartbeat, write_heartbeat
from freetrain.state.tables import (
    TrainerRow,
    TrainerState,
    leases,
    put_trainers,
    trainers,
)
from freetrain.tick.act import QUIET_S
from slurm.errors import SlurmError
from tests.cli.commands import run
from tests.tick.tick_worlds import UID, TickWorld

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from freetrain.elastic.files import RunDir

MOST_S = 2.0


def database(world: TickWorld) -> Path:
    return world.folder.path / DATABASE


def trained(world: TickWorld) -> TickWorld:
    """Let two trainers train for a few ticks, so that every table has rows."""
    world.submit("a")
    world.submit("b")
    world.go_on(5, every_s=60.0)
    return world


def is_gone(world: TickWorld) -> None:
    database(world).unlink()


def is_empty(world: TickWorld) -> None:
    database(world).write_bytes(b"")


def is_junk(world: TickWorld) -> None:
    database(world).write_bytes(b"no database" * 1_000)


def is_half(world: TickWorld) -> None:
    content = database(world).read_bytes()
    database(world).write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize("breaks", [is_gone, is_empty, is_junk, is_half])
def test_a_database_that_is_damaged_or_gone_is_put_back_by_the_tick(
    world: TickWorld, breaks: object
) -> None:
    trained(world)
    leased = {job.job_id for job in world.live()}
    assert callable(breaks)
    breaks(world)

    world.tick()

    with world.reading() as state:
        assert {row.name for row in trainers(state)} == {"a", "b"}
        assert {lease.job_id for lease in leases(state, ending_after_s=0)} == leased
    line = next(
        line for line in world.folder.log.read_text().splitlines() if "restored" in line
    )
    assert "state.sqlite from the copy of" in line
    kept = damaged_of(database(world))
    assert len(kept) == (breaks is not is_gone)
    world.go_on(2, every_s=60.0)
    assert len(damaged_of(database(world))) == len(kept)


def test_a_command_that_writes_puts_it_back_too(world: TickWorld) -> None:
    trained(world)
    row = world.row("a")
    is_junk(world)

    world.put(replace(row, state=TrainerState.PAUSED))

    assert world.row("a").state is TrainerState.PAUSED
    assert len(damaged_of(database(world))) == 1


def test_where_the_newer_copy_is_damaged_the_older_one_is_taken(
    world: TickWorld,
) -> None:
    trained(world)
    newer, older = copies_of(database(world))
    shutil.copy(newer, older)
    newer.write_bytes(newer.read_bytes()[:5_000])
    is_junk(world)

    world.tick()

    assert world.row("a").state is TrainerState.WANTED


def test_without_a_good_copy_the_error_says_what_to_do_and_nothing_is_changed(
    world: TickWorld,
) -> None:
    trained(world)
    for copy in copies_of(database(world)):
        copy.unlink(missing_ok=True)
    is_junk(world)

    with pytest.raises(StoreDamagedError, match="move the file away, keep it"):
        world.tick()

    assert database(world).read_bytes() == b"no database" * 1_000


def test_a_newer_state_is_not_taken_back(world: TickWorld) -> None:
    trained(world)
    with closing(sqlite3.connect(database(world))) as state:
        state.execute("CREATE TABLE made_later (x INTEGER)")
        state.execute("PRAGMA user_version = 99")

    with pytest.raises(StoreNewerError):
        world.tick()

    assert damaged_of(database(world)) == ()


def test_what_damages_it_again_and_again_does_not_cost_the_evidence(
    world: TickWorld,
) -> None:
    trained(world)
    for _ in range(5):
        is_junk(world)
        world.tick()
    is_junk(world)

    with pytest.raises(StoreDamagedError, match=r"move state\.sqlite\.damaged-\* away"):
        world.tick()

    kept = damaged_of(database(world))
    assert len(kept) == 5
    kept[0].unlink()
    world.tick()


def test_copies_are_made_every_ten_minutes_and_two_are_kept(world: TickWorld) -> None:
    trained(world)
    newer, older = copies_of(database(world))
    first = newer.read_bytes()
    assert not older.exists()

    world.tick()
    assert newer.read_bytes() == first
    then_s = newer.stat().st_mtime - COPY_EVERY_S
    os.utime(newer, (then_s, then_s))
    world.tick()

    assert older.read_bytes() == first
    assert newer.read_bytes() != first
    assert newer.stat().st_mode & 0o777 == 0o600
    assert not list(world.folder.path.glob("*.copy*-*al"))


def test_a_copy_of_a_damaged_database_replaces_no_good_one(world: TickWorld) -> None:
    trained(world)
    newer, _ = copies_of(database(world))
    good = newer.read_bytes()
    content = bytearray(database(world).read_bytes())
    content[4096 * 2 : 4096 * 4] = b"x" * (4096 * 2)
    database(world).write_bytes(content)

    with (
        closing(sqlite3.connect(database(world))) as state,
        pytest.raises(sqlite3.DatabaseError),
    ):
        keep_copy(state, database(world))

    assert newer.read_bytes() == good
    assert not list(world.folder.path.glob("*.copy-new*"))


def test_what_is_changed_while_a_copy_is_put_back_is_told_to_be_lost(
    world: TickWorld,
) -> None:
    trained(world)

    other = database(world).with_name("other")
    shutil.copy(database(world), other)

    with (
        pytest.raises(FreeTrainError, match="do it again"),
        open_store(world.folder.path, uid=UID),
    ):
        other.replace(database(world))


def spoilt(content: bytes, random_: random.Random) -> bytes:
    """Return a database with some bytes changed: anywhere, in its head, in one page."""
    result = bytearray(content)
    kind = random_.randrange(4)
    page = random_.randrange(len(content) // 4096) * 4096
    first, last = [
        (0, len(content)),
        (0, 100),  # the file's head
        (page, page + 100),  # a page's head, and where its cells are
        (page, page + 4096),
    ][kind]
    for _ in range(random_.choice([1, 1, 4, 64])):
        result[random_.randrange(first, last)] = random_.randrange(256)
    if random_.random() < 0.1:
        del result[random_.randrange(len(result)) :]
    return bytes(result)


@pytest.mark.parametrize(
    "cases",
    [range(80), pytest.param(range(80, 800), marks=pytest.mark.long)],
    ids=["80", "720"],
)
def test_a_database_with_changed_bytes_is_put_back_or_refused_with_advice(
    world: TickWorld, cases: range
) -> None:
    trained(world)
    whole = world.folder.path.parent / "kept"
    toml = world.folder.path.parent / "fuzz.toml"
    toml.write_text(f'state_directory = "{world.folder.path}"\n')
    folders = (world.folder.path, world.slurm.folder)
    for folder in folders:
        shutil.copytree(folder, whole / folder.name)
    content, now_s = database(world).read_bytes(), world.now_s
    endings = []
    for case in cases:
        random_ = random.Random(case)  # noqa: S311
        for folder in folders:
            shutil.rmtree(folder)
            shutil.copytree(whole / folder.name, folder)
        world.now_s = now_s
        database(world).write_bytes(spoilt(content, random_))
        if random_.random() < 0.5:
            for copy in copies_of(database(world)):
                copy.unlink(missing_ok=True)
        begun_s = time.process_time()
        shown = run("status", "--config", toml)
        try:
            world.tick()
        except (FreeTrainError, SlurmError) as error:
            endings.append(type(error).__name__)
        else:
            endings.append("put back" if damaged_of(database(world)) else "unnoticed")
        assert time.process_time() - begun_s < MOST_S, case
        assert shown.code in {0, 65, 73}, (case, shown)
    assert endings.count("put back") > len(cases) / 10
    print(Counter(endings))  # noqa: T201


def flipped() -> Iterator[tuple[int, int]]:
    """Yield byte and flipped bits: of the file's head, and of the first page's."""
    for at in range(108):
        is_number_alone = at in {18, 19, 60, 61, 62, 63}  # formats; our version
        some = (1 << bit for bit in range(8 if is_number_alone else 1))
        yield from ((at, bits) for bits in (0xFF, *some))


def test_any_byte_of_the_head_may_be_flipped_and_the_database_is_put_back(
    world: TickWorld,
) -> None:
    trained(world)
    content = database(world).read_bytes()
    copy, _ = copies_of(database(world))
    copied = copy.read_bytes()
    endings: Counter[str] = Counter()
    for at, bits in flipped():
        for path in damaged_of(database(world)):
            path.unlink()
        torn = bytearray(content)
        torn[at] ^= bits
        database(world).write_bytes(torn)
        copy.write_bytes(copied)

        with suppress(StoreDamagedError), world.reading() as state:
            assert {row.name for row in trainers(state)} == {"a", "b"}
        with world.writing() as state:  # nothing else is raised
            put_trainers(state, trainers(state))

        assert {row.name for row in trainers_of(world)} == {"a", "b"}, (at, bits)
        endings["put back" if damaged_of(database(world)) else "no harm"] += 1
    assert endings["put back"] > 100, endings
    assert endings["no harm"] > 90, endings


def trainers_of(world: TickWorld) -> Iterable[TrainerRow]:
    with world.reading() as state:
        return trainers(state)


# What is found again by files, and worlds of which nothing is known


def lose_everything(world: TickWorld) -> None:
    """Let the database and its copies be gone."""
    for path in (database(world), *copies_of(database(world))):
        path.unlink(missing_ok=True)


def with_job_file(world: TickWorld, name: str) -> None:
    """Write the job file of a trainer, as ``freetrain submit`` does."""
    world.folder.trainer(name).job.write_text(world.row(name).job)


@pytest.mark.parametrize("copies", [True, False])
def test_trainers_that_were_submitted_since_the_copy_are_found_by_their_files(
    world: TickWorld, *, copies: bool
) -> None:
    trained(world)
    for name in ("a", "b", "later"):
        if name == "later":
            world.submit(name)
        with_job_file(world, name)
    number = world.generation("a")
    if copies:
        is_junk(world)
    else:
        lose_everything(world)
    world.beat(trainer="a")

    status = world.status()

    assert "later" in " ".join(status.problems)
    assert {name: world.row(name).state for name in ("a", "b", "later")} == (
        dict.fromkeys(("a", "b", "later"), TrainerState.WANTED)
    )
    assert world.row("later").run_dir == str(world.folder.trainer("later").run.path)
    assert world.generation("a") >= number
    assert "found again" not in " ".join(world.status().problems)


@pytest.mark.parametrize(
    ("verb", "expected"),
    [(Verb.PAUSE, TrainerState.PAUSED), (Verb.CANCEL, TrainerState.CANCELLED)],
)
def test_what_users_asked_for_since_the_copy_is_found_by_the_generations(
    world: TickWorld, verb: Verb, expected: TrainerState
) -> None:
    trained(world)
    with_job_file(world, "a")
    assert world.generation("a")
    change(world.folder, verb, ["a"], now_s=world.now_s, uid=UID)
    is_junk(world)

    world.tick()

    assert world.row("a").state is expected
    assert world.nodes("a") == set()


def test_generations_are_numbered_by_all_files_there_are(world: TickWorld) -> None:
    run_dir = world.submit("a")
    run_dir.create()
    run_dir.checkpoint(6, 10).touch()
    run_dir.outcome(7).touch()
    world.go_on(2)

    assert world.generation("a") == 8


def claimed_by_a_stranger(world: TickWorld) -> tuple[RunDir, str]:
    """Let a world of which nothing is known train generation 4; its claim."""
    run_dir = world.submit("a")
    store = CheckpointStore(run_dir, generation=4)
    store.claim()
    return run_dir, run_dir.claim(4).read_text()


def age(world: TickWorld, seconds: float) -> None:
    """Let nothing change in the run directory of a trainer for so long."""
    run_dir = world.folder.trainer("a").run
    for path in (run_dir.checkpoints, *run_dir.path.rglob("*")):
        then_s = path.stat().st_mtime - seconds
        os.utime(path, (then_s, then_s))


def test_no_world_is_started_beside_one_that_trains_unknown_to_the_state(
    world: TickWorld,
) -> None:
    claimed_by_a_stranger(world)

    world.go_on(3)
    problems = " ".join(world.status().problems)

    assert world.generation("a") == 0
    assert "a is not started yet: generation 4" in problems
    age(world, QUIET_S)
    world.go_on(1)
    assert world.generation("a") == 5


def test_a_world_that_has_ended_holds_up_nobody(world: TickWorld) -> None:
    run_dir, _ = claimed_by_a_stranger(world)
    run_dir.over(4).touch()

    world.go_on(2)

    assert world.generation("a") == 5


def test_no_first_generation_is_made_while_an_agent_trains_an_earlier_one(
    world: TickWorld,
) -> None:
    world.submit("a")
    world.go_on(1)
    stranger = LeaseKey("another", 0)
    place = world.folder.lease(stranger)
    place.create()
    beat = Heartbeat(
        beat=1,
        t=0.0,
        node="n7",
        host="h",
        pid=1,
        state=AgentState.TRAINING,
        trainer="a",
        generation=3,
    )
    write_heartbeat(place.heartbeat, beat)
    world.beat()

    status = world.status()

    assert world.generation("a") == 0
    assert "generation 3 still trains on n7" in " ".join(status.problems)
    write_heartbeat(place.heartbeat, replace(beat, state=AgentState.ENDED))
    world.go_on(1)
    assert world.generation("a") == 1
