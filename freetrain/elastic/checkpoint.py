"""Checkpoints: their content, their files, and the two newest that a run keeps.

A file is an .npz archive whose last 64 bytes are a SHA-256:
``numpy.load(path, allow_pickle=False)`` reads its arrays. The digest sits in the
archive's comment; it is that of the file with the character 0 in those 64 places. See
docs/reference/run-directory.md. Nothing is pickled, so that no code of a file can run.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

import numpy as np

from freetrain.elastic.contract import (
    CheckpointError,
    CheckpointMissingError,
    GenerationTakenError,
    LaunchError,
    StateError,
    read_outcome,
)
from freetrain.elastic.files import Clock, create_once, numbers_in, replaced, warn
from freetrain.opening import open_plain, read_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from freetrain.elastic.files import RunDir

State: TypeAlias = dict[str, Any]
Arrays: TypeAlias = "dict[str, NDArray[Any]]"
Node: TypeAlias = list[Any]

FORMAT = "freetrain-checkpoint"
VERSION = 1
_TREE = "freetrain.json"
_COMMENT = b"freetrain-checkpoint sha256 "
_DIGEST_BYTES = 64
_NO_DIGEST = b"0" * _DIGEST_BYTES
_HASH_BYTES = 1 << 20
# Fixed, so that the same state gives the same bytes: the oldest date that zip has.
_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Position:
    """How far a training is; all that the sampler needs to go on.

    Attributes:
        step: Steps done since the training began, over all generations.
        samples: Samples used since the training began.
        epoch: The epoch of the next step, from 0.
        offset: Samples of that epoch used already.
    """

    step: int = 0
    samples: int = 0
    epoch: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A committed state.

    Attributes:
        generation: The fragment that committed it.
        position: How far the training was.
        training: Numbers that must not change between fragments: seed, samples, batch.
        state: The program's own values.
    """

    generation: int
    position: Position
    training: Mapping[str, int]
    state: State


def write_checkpoint(checkpoint: Checkpoint, file: IO[bytes]) -> None:
    """Write *checkpoint* to an empty, seekable, readable binary *file*.

    Raises:
        StateError: The state holds something that cannot be kept.
        OSError: The file cannot be written; its content is worthless.
    """
    tree, arrays = flatten(checkpoint.state)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "generation": checkpoint.generation,
        "position": asdict(checkpoint.position),
        "training": dict(checkpoint.training),
        "state": tree,
    }
    hashing = _Hashing(file)
    with zipfile.ZipFile(hashing, "w", zipfile.ZIP_STORED) as archive:
        archive.comment = _COMMENT + _NO_DIGEST
        archive.writestr(zipfile.ZipInfo(_TREE, _DATE), json.dumps(header))
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy", _DATE)
            with archive.open(entry, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    file.seek(-_DIGEST_BYTES, io.SEEK_END)
    file.write(hashing.digest.hexdigest().encode("ascii"))


class _Hashing(io.RawIOBase):
    """Passes bytes on to a file, hashing them on their way: one pass, no copy."""

    def __init__(self, file: IO[bytes]) -> None:
        self.digest = hashlib.sha256()
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:  # noqa: ANN401  # any buffer
        self.digest.update(content)
        return self._file.write(content)


def read_checkpoint(content: bytes) -> Checkpoint:
    """Read a whole checkpoint file's *content*, trusting nothing in it.

    Raises:
        CheckpointError: It is torn, corrupt, hostile, or of another version.
    """
    _check_digest(content)
    try:
        header, arrays = _read_members(content)
        return Checkpoint(
            generation=int(header["generation"]),
            position=_read_position(header["position"]),
            training={str(k): int(v) for k, v in header["training"].items()},
            state=unflatten(header["state"], arrays),
        )
    except CheckpointError:
        raise
    # A crafted file makes zipfile, json or NumPy raise anything; it is not used.
    except Exception as error:
        raise CheckpointError(f"it cannot be read: {error!r:.200}") from error


def _check_digest(content: bytes) -> None:
    """Compare *content* with the digest at its end.

    Raises:
        CheckpointError: They differ, or there is no digest.
    """
    end = len(content) - _DIGEST_BYTES
    if end < len(_COMMENT) or content[end - len(_COMMENT) : end] != _COMMENT:
        raise CheckpointError("it is torn: it does not end with a digest")
    digest = hashlib.sha256(memoryview(content)[:end])
    digest.update(_NO_DIGEST)
    if digest.hexdigest().encode("ascii") != content[end:]:
        raise CheckpointError("it is corrupt: its SHA-256 does not match")


def copy_checked(source: IO[bytes], target: IO[bytes]) -> None:
    """Copy the checkpoint in *source*, piece by piece, and check it on its way.

    Args:
        source: A whole checkpoint file, seekable.
        target: Gets the copy; worthless unless this returns.

    Raises:
        CheckpointError: It is torn or corrupt.
        OSError: It could not be read or written.
    """
    left = source.seek(0, io.SEEK_END) - _DIGEST_BYTES
    source.seek(0)
    digest, comment = hashlib.sha256(), b""
    while left > 0 and (piece := source.read(min(left, _HASH_BYTES))):
        digest.update(piece)
        target.write(piece)
        comment = (comment + piece)[-len(_COMMENT) :]
        left -= len(piece)
    written = source.read(_DIGEST_BYTES)
    target.write(written)
    if left or comment != _COMMENT:
        raise CheckpointError("it is torn: it does not end with a digest")
    digest.update(_NO_DIGEST)
    if digest.hexdigest().encode("ascii") != written:
        raise CheckpointError("it is corrupt: its SHA-256 does not match")


def _read_members(content: bytes) -> tuple[dict[str, Any], Arrays]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        # Stored and no larger than the file: no archive can swell in memory.
        if any(m.compress_type != zipfile.ZIP_STORED for m in members) or (
            sum(m.file_size for m in members) > len(content)
        ):
            raise CheckpointError("its members claim more bytes than it has")
        header = _read_header(archive.read(_TREE))
        arrays = {
            m.filename.removesuffix(".npy"): _read_array(archive.read(m))
            for m in members
            if m.filename != _TREE
        }
    return header, arrays


def _read_header(text: bytes) -> dict[str, Any]:
    header = json.loads(text)  # NaN may be a value of the program's state
    if header["format"] != FORMAT or header["version"] != VERSION:
        raise CheckpointError(
            f"it is {header['format']!r:.40} version {header['version']!r:.20}, and "
            f"this FreeTrain reads {FORMAT!r} version {VERSION}"
        )
    return dict(header)


def _read_array(member: bytes) -> NDArray[Any]:
    stream = io.BytesIO(member)
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    else:
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
    if dtype.hasobject:
        raise CheckpointError("it holds Python objects, which are never loaded")
    # A copy, because an array over bytes cannot be written to.
    flat = np.frombuffer(member, dtype, offset=stream.tell()).copy()
    return flat.reshape(shape, order="F" if fortran else "C")


def _read_position(found: Mapping[str, int]) -> Position:
    return Position(**{name: int(found[name]) for name in Position.__slots__})


# The program's state as arrays and a tree that JSON can hold.

_BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
_ARRAY_KINDS = "biufcSUmM"
_DEEPEST = 50
_LONGEST_KEY = 200


def flatten(state: Mapping[str, Any]) -> tuple[Node, Arrays]:
    """Return *state* as a tree that JSON can hold, and its arrays by path.

    A state holds NumPy arrays and scalars, numbers, strings, booleans, None,
    ``numpy.random.Generator`` objects, and dicts, lists and tuples of these; so also
    the results of ``random.getstate()`` and a bit generator's ``state``.

    Raises:
        StateError: It holds something else; the message names the place.
    """
    arrays: Arrays = {}
    return _flatten(state, (), arrays), arrays


def _flatten(value: Any, path: tuple[str, ...], arrays: Arrays) -> Node:  # noqa: ANN401
    if len(path) > _DEEPEST:
        raise _refused(path, f"is nested deeper than {_DEEPEST} levels")
    if isinstance(value, np.ndarray | np.generic):
        return _keep_array(value, path, arrays)
    if isinstance(value, np.random.Generator):
        inner = _flatten(value.bit_generator.state, path, arrays)
        return ["generator", inner]
    if isinstance(value, dict):
        return ["dict", _flatten_entries(value, path, arrays)]
    if isinstance(value, list | tuple):
        entries = [_flatten(v, (*path, str(i)), arrays) for i, v in enumerate(value)]
        return ["list" if isinstance(value, list) else "tuple", entries]
    return _flatten_scalar(value, path)


def _flatten_entries(
    entries: Mapping[Any, Any], path: tuple[str, ...], arrays: Arrays
) -> dict[str, Node]:
    for key in entries:
        if not isinstance(key, str):
            raise _refused(path, f"has a key that is no string: {key!r:.80}")
        if len(key) > _LONGEST_KEY:
            raise _refused(path, f"has a key longer than {_LONGEST_KEY} characters")
    return {k: _flatten(v, (*path, k), arrays) for k, v in entries.items()}


def _flatten_scalar(value: Any, path: tuple[str, ...]) -> Node:  # noqa: ANN401
    # Exact types: a subclass would come back as its parent.
    kind = type(value)
    if kind is float:
        return ["float", value.hex()]
    if kind is int:
        return ["int", hex(value)]
    if kind in (str, bool, type(None)):
        return ["plain", value]
    raise _refused(path, f"is of type {kind.__module__}.{kind.__qualname__}")


def _keep_array(
    value: NDArray[Any] | np.generic, path: tuple[str, ...], arrays: Arrays
) -> Node:
    array = np.asarray(value)
    if array.dtype.kind not in _ARRAY_KINDS:
        raise _refused(path, f"is an array of {array.dtype}")
    member = "/".join(quote(part, safe="", errors="surrogatepass") for part in path)
    arrays[member] = array
    return ["array" if isinstance(value, np.ndarray) else "scalar", member]


def _refused(path: tuple[str, ...], why: str) -> StateError:
    return StateError(
        f"the state at {'/'.join(path)[:200] or 'its top'!r} {why}, which a checkpoint "
        f"cannot hold. Nothing was committed. Give it as NumPy arrays, numbers, "
        f"strings, or dicts and lists of these."
    )


def unflatten(tree: object, arrays: Arrays) -> State:
    """Return the state that :func:`flatten` took apart.

    Raises:
        CheckpointError: The tree is not one that :func:`flatten` makes.
    """
    try:
        state = _build(tree, arrays)
    # A crafted tree makes NumPy or Python raise anything; it is not used.
    except Exception as error:
        raise CheckpointError(f"its tree of values cannot be read: {error}") from error
    if not isinstance(state, dict):
        raise CheckpointError("its tree of values has no names")
    return state


def _build(node: Any, arrays: Arrays) -> Any:  # noqa: ANN401
    tag, value = node
    builders: dict[str, Callable[[Any], Any]] = {
        "array": lambda member: arrays[member],
        "scalar": lambda member: arrays[member][()],
        "generator": lambda inner: _build_generator(_build(inner, arrays)),
        "dict": lambda entries: {k: _build(v, arrays) for k, v in entries.items()},
        "list": lambda entries: [_build(v, arrays) for v in entries],
        "tuple": lambda entries: tuple(_build(v, arrays) for v in entries),
        "float": float.fromhex,
        "int": lambda text: int(text, 16),
        "plain": lambda plain: plain,
    }
    return builders[tag](value)


def _build_generator(inner: dict[str, Any]) -> np.random.Generator:
    name = inner["bit_generator"]
    if name not in _BIT_GENERATORS:
        raise ValueError(f"unknown bit generator {name!r:.80}")
    bits = getattr(np.random, name)()
    bits.state = inner
    return np.random.Generator(bits)


# The committed states of a run: the two newest, fenced by generation.

_KEPT = 2

LISTING_S = 60.0
"""NFS clients show a folder as it was up to a minute ago (acdirmax)."""

_LIST_AGAIN_S = 1.0
_LAST_OUTCOMES = 10
_CLOCK = Clock()


@dataclass(frozen=True, slots=True)
class GenerationClaim:
    """The content of the file by which a world took its generation.

    Attributes:
        world: Tells worlds of the same number apart; empty where nothing is said.
        committed_step: Steps in the newest checkpoint that it has committed or
            restored; 0 where it has not said so yet.
    """

    world: str = ""
    committed_step: int = 0


_MOST_CLAIM_BYTES = 1 << 16


def read_claim(path: Path) -> GenerationClaim:
    """Return the claim at *path*; one without readable content says nothing.

    Raises:
        OSError: It cannot be read.
    """
    with suppress(ValueError, TypeError, KeyError, AttributeError, OverflowError):
        found: Any = read_json(path, most_bytes=_MOST_CLAIM_BYTES)
        return GenerationClaim(str(found["world"]), int(found.get("committed_step", 0)))
    return GenerationClaim()


class CheckpointStore:
    """Reads and commits the checkpoints of one run; used by rank 0 alone."""

    def __init__(
        self, run_dir: RunDir, *, generation: int, clock: Clock = _CLOCK
    ) -> None:
        self._run_dir = run_dir
        self._generation = generation
        self._clock = clock
        self._claimed = False
        self._world = os.urandom(8).hex()
        self._promised: tuple[int, int] | None = None
        self._unusable: set[Path] = set()

    def claim(self) -> None:
        """Start this generation: no other world may, and no earlier one may commit.

        Raises:
            GenerationTakenError: It was started or has ended, or a later one exists.
            OSError: The run directory cannot be written; a commit will try again.
        """
        if self.is_superseded():
            raise self._taken("a later generation exists")
        if self._run_dir.outcome(self._generation).exists():
            raise self._taken("it has ended already")
        self._run_dir.create()
        claim = self._run_dir.claim(self._generation)
        if not create_once(claim, _render_claim(GenerationClaim(self._world))):
            raise self._taken("it was started before")
        self._claimed = True
        self._promised = self._find_promised()  # before the claims that say so go
        self._remove_leftovers()

    def is_superseded(self) -> bool:
        """Tell whether this generation may not commit any more.

        A later generation exists, or, where the folder was replaced by another, another
        world has this generation.

        Raises:
            OSError: It is unknown; also where the claim of this world is gone.
        """
        if self._run_dir.newest_generation() > self._generation:
            return True
        return self.is_replaced()

    def is_replaced(self) -> bool:
        """Tell whether another world has the generation that this one claimed.

        Raises:
            OSError: The claim is gone, or cannot be read.
        """
        if not self._claimed:
            return False
        claim = read_claim(self._run_dir.claim(self._generation))
        return claim.world != self._world

    def commit(self, checkpoint: Checkpoint) -> bool:
        """Keep *checkpoint*, whole and durable, and remove all but the two newest.

        Returns:
            False where a later generation exists; nothing was written then.

        Raises:
            OSError: It could not be written; the older ones are untouched.
            StateError: The state cannot be kept.
            GenerationTakenError: The generation could not be claimed before, and
                meanwhile another world has started it.
        """
        if self.is_superseded():
            return False
        if not self._claimed:
            self.claim()
        step = checkpoint.position.step
        path = self._run_dir.checkpoint(checkpoint.generation, step)
        with replaced(path, temporary=path.with_name(f".{path.name}.partial")) as file:
            write_checkpoint(checkpoint, file)
        self._note_committed(step)
        self._prune()
        return True

    def newest(self) -> tuple[bytes, Checkpoint] | None:
        """The newest whole file and its checkpoint; None where nothing was committed.

        A torn or corrupt one is reported and passed over.

        Raises:
            CheckpointMissingError: An earlier generation committed more than the folder
                shows, for a minute.
            LaunchError: There are checkpoints, and not one of them can be used.
            OSError: The folder of checkpoints cannot be listed.
        """
        found = self._newest_usable(self._list_up_to_date())
        if found is not None:
            self._note_committed(found[1].position.step)
        return found

    def _newest_usable(self, paths: list[Path]) -> tuple[bytes, Checkpoint] | None:
        for path in reversed(paths):
            try:
                with os.fdopen(open_plain(path), "rb") as file:
                    content = file.read()
                return content, read_checkpoint(content)
            except (OSError, CheckpointError) as error:
                self._unusable.add(path)
                warn(
                    f"the checkpoint {path} is not used: {error}. The one before it "
                    f"is tried. Keep the file if you want to know why."
                )
        if paths:
            raise LaunchError(
                f"none of the {len(paths)} checkpoints in {self._run_dir.checkpoints} "
                f"can be used. Nothing was trained. Restore one from a backup, or move "
                f"{self._run_dir.path} away to begin from the start."
            )
        return None

    def _list(self) -> list[Path]:
        return [committed.path for committed in self._run_dir.committed()]

    def _list_up_to_date(self) -> list[Path]:
        """List the checkpoints, again until the last that was committed is there."""
        generation, step = self._promised or self._find_promised()
        until_s = self._clock.elapsed_s() + LISTING_S
        while True:
            committed = self._run_dir.committed()
            # A name without its file is of a listing from before a removal.
            newest_is_gone = committed and not committed[-1].path.exists()
            if not newest_is_gone and step <= max(
                (c.step for c in committed), default=0
            ):
                return [found.path for found in committed]
            if self._clock.elapsed_s() >= until_s:
                break
            self._clock.sleep(_LIST_AGAIN_S)
        shown = committed[-1].path.name if committed else "none"
        raise CheckpointMissingError(
            f"generation {generation} committed step {step}, and after {LISTING_S:g} s "
            f"the newest checkpoint in {self._run_dir.checkpoints} is still {shown}. "
            f"Nothing was trained, as steps would be trained twice; the launch may be "
            f"tried again. If you took checkpoints away yourself, move generations/ "
            f"and outcomes/ away too."
        )

    def _find_promised(self) -> tuple[int, int]:
        """Return the last earlier generation that says how far it committed, and that.

        The claim says so at each commit, and the outcome at the end. Both are opened
        by name where they may be too new to be listed.
        """
        runs = self._run_dir
        earlier = range(self._generation - 1, 0, -1)[:1]
        listed = {*numbers_in(runs.generations), *numbers_in(runs.outcomes), *earlier}
        candidates = sorted((g for g in listed if g < self._generation), reverse=True)
        for generation in candidates[:_LAST_OUTCOMES]:
            step = 0
            with suppress(OSError):
                step = read_claim(runs.claim(generation)).committed_step
            with suppress(OSError):
                outcome = read_outcome(runs, generation)
                step = max(step, outcome.committed_step if outcome else 0)
            if step > 0:
                return generation, step
        return 0, 0

    def _note_committed(self, step: int) -> None:
        """Say in the claim how far this world has committed.

        Not synced: what a crash of the machine takes back is said too little.
        """
        if not self._claimed:
            return
        path = self._run_dir.claim(self._generation)
        temporary = path.with_name(f".{path.name}.{self._world}")
        with suppress(OSError):
            temporary.write_bytes(_render_claim(GenerationClaim(self._world, step)))
            temporary.replace(path)

    def _prune(self) -> None:
        # Files that could not be read do not count as kept, or they would push
        # out the only good one.
        good = [path for path in self._list() if path not in self._unusable]
        for path in good[:-_KEPT]:
            with suppress(OSError):
                path.unlink()

    def _remove_leftovers(self) -> None:
        """Remove partial files and claims of earlier generations.

        The newest claim fences all earlier ones, so it is enough.
        """
        mine = f"{self._generation:010d}"
        half = self._run_dir.checkpoints.glob(".*.partial")
        claims = self._run_dir.generations.glob("*.started")
        for path in (*half, *claims):
            if path.name.lstrip(".") < mine:
                with suppress(OSError):
                    path.unlink()

    def _taken(self, why: str) -> GenerationTakenError:
        return GenerationTakenError(
            f"generation {self._generation} of {self._run_dir.path} cannot start: "
            f"{why}. Nothing was trained. Number every launch anew, or let the "
            f"program number itself by leaving FREETRAIN_GENERATION unset."
        )


def _render_claim(claim: GenerationClaim) -> bytes:
    return (json.dumps(asdict(claim)) + "\n").encode("ascii")
