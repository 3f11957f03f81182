"""Checkpoints: what goes in comes out; commits are whole, and stale worlds fenced."""

import hashlib
import io
import json
import os
import random
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as stnp

from freetrain.elastic import (
    Checkpoint,
    CheckpointError,
    CheckpointMissingError,
    GenerationTakenError,
    LaunchError,
    Position,
    StateError,
)
from freetrain.elastic.checkpoint import (
    LISTING_S,
    CheckpointStore,
    flatten,
    read_checkpoint,
    write_checkpoint,
)
from freetrain.elastic.contract import Outcome, OutcomeKind, write_outcome
from freetrain.elastic.files import Clock, Committed, RunDir, create_once

DIGEST_BYTES = 64

dtypes = st.one_of(
    stnp.boolean_dtypes(),
    stnp.integer_dtypes(endianness="?"),
    stnp.floating_dtypes(endianness="?"),
    stnp.complex_number_dtypes(endianness="?"),
    stnp.unicode_string_dtypes(max_len=5),
    stnp.byte_string_dtypes(max_len=5),
)
arrays = stnp.arrays(dtypes, stnp.array_shapes(min_dims=0, min_side=0, max_side=4))
leaves = st.one_of(
    arrays,
    st.integers(),
    st.floats(),
    st.text(),
    st.booleans(),
    st.none(),
    st.floats().map(np.float64),
    st.integers(0, 2**32).map(np.random.default_rng),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=8), inner, max_size=3),
    ),
    max_leaves=8,
)
states = st.dictionaries(st.text(max_size=8), values, max_size=4)


def to_bytes(state: dict[str, Any], generation: int = 3) -> bytes:
    file = io.BytesIO()
    position = Position(step=7, samples=70, epoch=1, offset=20)
    write_checkpoint(Checkpoint(generation, position, {"seed": 5}, state), file)
    return file.getvalue()


def spelled_out(value: Any) -> Any:  # noqa: ANN401
    """The value as plain things that tell all that matters, NaN equal to itself."""
    if isinstance(value, np.ndarray | np.generic):
        return type(value), value.dtype, value.shape, value.tobytes()
    if isinstance(value, np.random.Generator):
        return "generator", spelled_out(value.bit_generator.state)
    if isinstance(value, dict):
        return [(key, spelled_out(inner)) for key, inner in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [spelled_out(inner) for inner in value]
    return type(value), repr(value)


@settings(max_examples=150)
@given(states)
def test_a_state_is_read_back_with_its_very_types_and_always_gives_the_same_bytes(
    state: dict[str, Any],
) -> None:
    found = read_checkpoint(to_bytes(state))

    assert found.generation == 3
    assert found.position == Position(step=7, samples=70, epoch=1, offset=20)
    assert found.training == {"seed": 5}
    assert spelled_out(found.state) == spelled_out(state)
    assert to_bytes(state) == to_bytes(state)


@pytest.mark.parametrize("layout", [np.asfortranarray, np.transpose, lambda a: a[::2]])
def test_arrays_of_any_layout_come_back_with_every_value_and_can_be_written_to(
    layout: Callable[[np.ndarray], np.ndarray],
) -> None:
    array = layout(np.arange(24.0).reshape(4, 6))

    found = read_checkpoint(to_bytes({"weights": array})).state["weights"]

    assert found.tolist() == array.tolist()
    found += 1
    assert found.tolist() == (array + 1).tolist()


@given(st.data())
def test_a_file_with_any_byte_changed_is_refused(data: st.DataObject) -> None:
    content = bytearray(to_bytes({"weights": np.arange(20.0), "name": "x"}))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))

    with pytest.raises(CheckpointError):
        read_checkpoint(bytes(content))


@given(st.data())
def test_a_torn_file_is_refused(data: st.DataObject) -> None:
    content = to_bytes({"weights": np.arange(20.0)})

    with pytest.raises(CheckpointError, match=r"torn|corrupt"):
        read_checkpoint(content[: data.draw(st.integers(0, len(content) - 1))])


@given(st.data())
def test_a_crafted_file_with_a_right_digest_can_only_be_refused_or_read(
    data: st.DataObject,
) -> None:
    state = {
        "weights": np.arange(5.0),
        "rng": np.random.default_rng(1),
        "more": [1, "a"],
    }
    content = bytearray(to_bytes(state)[:-DIGEST_BYTES])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(
            st.integers(1, 255)
        )

    with suppress(CheckpointError):
        read_checkpoint(with_digest(bytes(content)))


def with_digest(content: bytes) -> bytes:
    digest = hashlib.sha256(content + b"0" * DIGEST_BYTES).hexdigest()
    return content + digest.encode("ascii")


def crafted(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.comment = b"freetrain-checkpoint sha256 " + b"0" * DIGEST_BYTES
        for name, content in members.items():
            archive.writestr(name, content)
    return with_digest(file.getvalue()[:-DIGEST_BYTES])


def header(**changes: object) -> bytes:
    fields = {
        "format": "freetrain-checkpoint",
        "version": 1,
        "generation": 1,
        "position": {"step": 1, "samples": 1, "epoch": 0, "offset": 1},
        "training": {},
        "state": ["dict", {}],
    }
    return json.dumps(fields | changes).encode()


def pickled_array() -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.array([{}], dtype=object), allow_pickle=True)
    return file.getvalue()


def state_of(*tree: object) -> dict[str, bytes]:
    return {"freetrain.json": header(state=tree)}


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"freetrain.json": header(version=2)}, "version 2"),
        ({"freetrain.json": header(format="x")}, "'x'"),
        ({"freetrain.json": b"[" * 100_000}, "Recursion"),
        ({"a.npy": b""}, "freetrain.json"),
        ({"freetrain.json": header(), "a.npy": pickled_array()}, "Python objects"),
        (state_of("generator", ["dict", {}]), "bit_generator"),
        (
            state_of("generator", ["dict", {"bit_generator": ["plain", "load"]}]),
            "unknown bit generator",
        ),
        (state_of("int", "5"), "no names"),
    ],
)
def test_a_hostile_file_is_refused(members: dict[str, bytes], why: str) -> None:
    with pytest.raises(CheckpointError, match=why):
        read_checkpoint(crafted(members))


def test_a_file_that_would_swell_in_memory_is_refused() -> None:
    with pytest.raises(CheckpointError, match="claim more bytes"):
        read_checkpoint(crafted({"freetrain.json": header()}, zipfile.ZIP_DEFLATED))


def test_the_crafted_files_are_refused_only_for_their_mistake() -> None:
    assert read_checkpoint(crafted({"freetrain.json": header()})).state == {}


def test_numpy_alone_reads_the_arrays(tmp_path: Path) -> None:
    path = tmp_path / "any.npz"
    path.write_bytes(to_bytes({"weights": np.arange(3.0), "deep": {"er": np.ones(2)}}))

    with np.load(path, allow_pickle=False) as found:
        assert found["weights"].tolist() == [0, 1, 2]
        assert found["deep/er"].tolist() == [1, 1]


def test_the_state_of_python_s_own_generator_fits() -> None:
    state = random.Random(3).getstate()  # noqa: S311

    assert read_checkpoint(to_bytes({"random": state})).state["random"] == state


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (object(), "type builtins.object"),
        (np.array([object()]), "array of object"),
        ({1: 2}, "no string"),
        (b"bytes", "builtins.bytes"),
        ({"k" * 300: 1}, "longer than 200"),
        (np.zeros(2, dtype=[("a", "f8")]), "is an array of"),
    ],
)
def test_what_cannot_be_kept_is_refused_and_its_place_named(
    value: object, why: str
) -> None:
    with pytest.raises(StateError, match=f"model/part.*{why}"):
        flatten({"model": {"part": value}})


def test_a_state_that_contains_itself_is_refused() -> None:
    state: dict[str, Any] = {}
    state["again"] = state

    with pytest.raises(StateError, match="nested deeper"):
        flatten(state)


class Run:
    """A run directory, in which generations start and commit."""

    def __init__(self, folder: Path) -> None:
        self.dir = RunDir(folder)

    def start(self, generation: int) -> CheckpointStore:
        store = CheckpointStore(self.dir, generation=generation)
        store.claim()
        return store

    def names(self) -> list[str]:
        return sorted(path.name for path in self.dir.checkpoints.iterdir())

    def newest(self) -> tuple[int, int] | None:
        found = CheckpointStore(self.dir, generation=99).newest()
        return found and (found[1].generation, found[1].position.step)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


def commit(
    store: CheckpointStore, generation: int, *steps: int, value: object = 0.5
) -> list[bool]:
    """Commit after each of *steps*; tell which were kept."""
    return [
        store.commit(Checkpoint(generation, Position(step), {}, {"weights": value}))
        for step in steps
    ]


def test_a_run_begins_empty_open_to_its_owner_only_and_keeps_the_two_newest(
    run: Run,
) -> None:
    assert run.newest() is None
    store = run.start(1)
    assert run.dir.path.stat().st_mode & 0o777 == 0o700
    for name in ("notes.txt", "1-2.npz", "zzz.npz"):
        (run.dir.checkpoints / name).touch()

    assert commit(store, 1, 5, 9, 10, 11) == [True] * 4

    own = ["0000000001-000000000000010.npz", "0000000001-000000000000011.npz"]
    assert run.names() == [*own, "1-2.npz", "notes.txt", "zzz.npz"]


def test_a_later_generation_s_commit_is_newer_whatever_its_step(run: Run) -> None:
    commit(run.start(1), 1, 100)
    commit(run.start(2), 2, 50)

    assert run.newest() == (2, 50)


@pytest.mark.parametrize("damage", [b"", b"half of it", None])
def test_a_torn_checkpoint_is_passed_over_and_reported(
    run: Run, damage: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    commit(run.start(1), 1, 5, 6)
    path = run.dir.checkpoint(1, 6)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if damage is None else damage)

    assert run.newest() == (1, 5)
    assert path.name in caplog.text
    assert "it is torn" in caplog.text


def test_a_torn_checkpoint_never_pushes_out_the_good_one(run: Run) -> None:
    commit(run.start(1), 1, 5)
    run.dir.checkpoint(1, 9).write_bytes(b"torn")
    second = run.start(2)
    second.newest()

    commit(second, 2, 6)

    assert run.dir.checkpoint(1, 5).exists()


def test_a_run_with_only_torn_checkpoints_does_not_begin_from_the_start(
    run: Run,
) -> None:
    store = run.start(1)
    run.dir.checkpoint(1, 9).write_bytes(b"torn")

    with pytest.raises(LaunchError, match="none of the 1 checkpoints"):
        store.newest()


@pytest.mark.parametrize("is_only_assigned", [True, False])
def test_a_generation_with_a_successor_commits_nothing(
    run: Run, *, is_only_assigned: bool
) -> None:
    stale = run.start(1)
    commit(stale, 1, 5)
    if is_only_assigned:
        (run.dir.generations / "0000000002.assignment.json").touch()
    else:
        run.start(2)

    assert commit(stale, 1, 6) == [False]
    assert run.newest() == (1, 5)


def test_a_stale_commit_that_slips_through_replaces_nothing_newer(run: Run) -> None:
    stale = run.start(1)
    commit(stale, 1, 5)
    claim = run.dir.claim(1).read_bytes()
    commit(run.start(2), 2, 6)
    # As if a file system had not shown the stale world its successor yet.
    run.dir.claim(1).write_bytes(claim)
    for path in run.dir.generations.glob("0000000002*"):
        path.unlink()

    commit(stale, 1, 9)

    assert run.newest() == (2, 6)


def test_a_generation_starts_once_and_removes_claims_and_leftovers_of_earlier_ones(
    run: Run,
) -> None:
    for generation in (1, 2, 3):
        run.start(generation)
        half = f".{generation:010d}-000000000000007.npz.partial"
        (run.dir.checkpoints / half).touch()

    with pytest.raises(GenerationTakenError, match=r"generation 3.*was started before"):
        run.start(3)
    with pytest.raises(GenerationTakenError, match=r"generation 2.*later generation"):
        run.start(2)
    assert [path.name for path in run.dir.generations.iterdir()] == [
        "0000000003.started"
    ]
    assert run.names() == [half]


def test_a_state_that_cannot_be_kept_leaves_no_half_file(run: Run) -> None:
    store = run.start(1)
    commit(store, 1, 5)

    with pytest.raises(StateError, match="weights"):
        commit(store, 1, 6, value=object())

    assert run.names() == [run.dir.checkpoint(1, 5).name]


# Two worlds of one number, and folders that show what was


class Ticking:
    """A clock that goes on only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.clock = Clock(lambda: self.now_s, lambda: self.now_s, self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds


@dataclass(frozen=True, slots=True)
class LaggingRunDir(RunDir):
    """Shows the folder of checkpoints as it was, until it was listed so often."""

    listings: list[tuple[Committed, ...]] = field(default_factory=list)

    def committed(self) -> tuple[Committed, ...]:
        return self.listings.pop(0) if self.listings else RunDir.committed(self)


def test_a_world_whose_folder_was_replaced_commits_nothing_into_the_new_one(
    run: Run,
) -> None:
    old = run.start(1)
    commit(old, 1, 5)
    run.dir.path.rename(run.dir.path.with_name("moved away"))

    with pytest.raises(FileNotFoundError):
        commit(old, 1, 6)
    new = run.start(1)
    commit(new, 1, 2)

    assert commit(old, 1, 7) == [False]
    assert run.newest() == (1, 2)
    assert commit(new, 1, 3) == [True]


@pytest.mark.parametrize("lag", [1, 30])
@pytest.mark.parametrize("is_ended", [True, False])
def test_a_listing_that_lags_is_waited_for(
    run: Run, lag: int, *, is_ended: bool
) -> None:
    first = run.start(1)
    commit(first, 1, 20)
    stale = run.dir.committed()
    commit(first, 1, 30)
    if is_ended:  # a world that was killed has its claim alone
        write_outcome(run.dir, Outcome(OutcomeKind.RESCALED, 1, 30, 30, "", 0.0))
        run.dir.claim(1).unlink()
    lagging = LaggingRunDir(run.dir.path, [stale] * lag)
    second = CheckpointStore(lagging, generation=2, clock=Ticking().clock)
    second.claim()

    found = second.newest()

    assert found is not None
    assert found[1].position.step == 30


def test_a_listing_of_files_that_were_removed_since_is_old(run: Run) -> None:
    first = run.start(1)
    commit(first, 1, 10)
    stale = run.dir.committed()
    commit(first, 1, 20, 30)
    run.dir.claim(1).write_bytes(b"")  # a version before wrote no more
    lagging = LaggingRunDir(run.dir.path, [stale] * 3)
    second = CheckpointStore(lagging, generation=2, clock=Ticking().clock)
    second.claim()

    found = second.newest()

    assert found is not None
    assert found[1].position.step == 30


@pytest.mark.parametrize("shown", [20, 0])
def test_steps_are_not_trained_twice_where_the_listing_never_catches_up(
    run: Run, shown: int
) -> None:
    first = run.start(1)
    commit(first, 1, 20)
    stale = run.dir.committed() if shown else ()
    commit(first, 1, 30)
    ticking = Ticking()
    lagging = LaggingRunDir(run.dir.path, [stale] * 1000)
    second = CheckpointStore(lagging, generation=2, clock=ticking.clock)
    second.claim()

    with pytest.raises(CheckpointMissingError, match=r"committed step 30.* trained"):
        second.newest()

    assert ticking.now_s == LISTING_S
    third = run.start(3)  # the next launch sees it, though the second said nothing
    found = third.newest()
    assert found is not None
    assert found[1].position.step == 30


def test_a_rewind_to_an_older_checkpoint_is_no_lag(run: Run) -> None:
    commit(run.start(1), 1, 20, 30)
    run.dir.checkpoint(1, 30).write_bytes(b"torn")
    second = run.start(2)
    assert second.newest() is not None
    run.dir.checkpoint(1, 30).unlink()
    third = CheckpointStore(run.dir, generation=3, clock=Ticking().clock)
    third.claim()

    found = third.newest()

    assert found is not None
    assert found[1].position.step == 20


def test_a_launch_without_a_number_is_numbered_by_all_files(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path)
    run_dir.create()
    assert run_dir.last_used() == 0

    run_dir.claim(2).touch()
    assert run_dir.last_used() == 2
    run_dir.outcome(4).touch()
    assert (run_dir.last_used(), run_dir.newest_generation()) == (4, 2)
    run_dir.checkpoint(7, 1).touch()
    assert run_dir.last_used() == 7


@pytest.mark.parametrize("is_made", [True, False])
def test_a_link_whose_answer_was_lost_counts_by_the_number_of_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_made: bool
) -> None:
    target = tmp_path / "target"
    link = os.link
    if not is_made:
        target.write_bytes(b"another's")

    def link_twice(source: Path, name: Path) -> None:
        if is_made:
            link(source, name)
        link(source, name)  # as a client does that has heard nothing

    monkeypatch.setattr(os, "link", link_twice)

    assert create_once(target, b"ours") is is_made
    assert target.read_bytes() == (b"ours" if is_made else b"another's")
    assert list(tmp_path.iterdir()) == [target]


def test_a_killed_writer_s_leftover_is_never_written_through(tmp_path: Path) -> None:
    target = tmp_path / "target"
    assert create_once(target, b"first")
    # Killed between the link and the removal of its other name, and the number of
    # the process came round again.
    os.link(target, tmp_path / f".target.{os.uname().nodename}.{os.getpid()}")

    assert not create_once(target, b"second")

    assert target.read_bytes() == b"first"


@dataclass(frozen=True)
class Life:
    """What befalls one generation.

    Attributes:
        steps: Steps that it trains.
        commits: After which of its steps it commits.
        is_killed: Whether it leaves no outcome.
        lag: How often the folder of checkpoints is shown as it was before.
        is_moved: Whether another world's claim takes the place of its own midway.
    """

    steps: int
    commits: frozenset[int]
    is_killed: bool
    lag: int
    is_moved: bool


lives = st.builds(
    Life,
    steps=st.integers(0, 4),
    commits=st.frozensets(st.integers(1, 4)),
    is_killed=st.booleans(),
    lag=st.sampled_from([0, 0, 1, 7, 1000]),
    is_moved=st.sampled_from([False, False, False, True]),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(lives, min_size=1, max_size=8))
def test_each_committed_step_is_trained_once_whatever_listings_and_folders_show(
    histories: list[Life],
) -> None:
    """Each step's sample is in the state: none may be missing, or there twice."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder) / "run")
        stale: tuple[Committed, ...] = ()
        promised = 0
        for generation, life in enumerate(histories, start=1):
            lagging = LaggingRunDir(run.dir.path, [stale] * life.lag)
            clock = Ticking().clock
            store = CheckpointStore(lagging, generation=generation, clock=clock)
            store.claim()
            stale = run.dir.committed()
            try:
                found = store.newest()
            except CheckpointMissingError:
                assert life.lag == 1000
                continue
            used = list(found[1].state["used"]) if found else []
            assert len(used) == promised
            for step in range(1, life.steps + 1):
                if life.is_moved and step == 3:
                    run.dir.claim(generation).write_text(
                        json.dumps({"world": "another", "committed_step": promised})
                    )
                used.append(len(used))
                if step in life.commits:
                    position = Position(len(used))
                    kept = store.commit(
                        Checkpoint(generation, position, {}, {"used": list(used)})
                    )
                    assert kept is not (life.is_moved and step >= 3)
                    promised = len(used) if kept else promised
            if not life.is_killed and not life.is_moved:
                ended = Outcome(
                    OutcomeKind.RESCALED, generation, len(used), promised, "", 0.0
                )
                write_outcome(run.dir, ended)
        last = CheckpointStore(run.dir, generation=99, clock=Ticking().clock).newest()
        state = list(last[1].state["used"]) if last else []
        assert state == list(range(promised))
