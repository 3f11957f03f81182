"""One checkpoint file: an .npz archive whose last 64 bytes are its SHA-256.

``numpy.load(path, allow_pickle=False)`` reads the arrays of one; the digest sits
in the archive's comment, and is that of the file with those 64 bytes as zeros
(the character). See docs/training-program.md.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from freetrain.elastic.errors import CheckpointError
from freetrain.elastic.state import flatten, unflatten

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from freetrain.elastic.state import Arrays, State

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
    """How far a training is; everything the sampler needs to go on.

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
        training: What must not change between fragments: seed, samples, batch.
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
        OSError: The file cannot be written; what is in it is worthless.
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
    check_digest(content)
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
    # Whatever a crafted file makes zipfile, json or NumPy raise, it is not used.
    except Exception as error:
        raise CheckpointError(f"it cannot be read: {error!r:.200}") from error


def check_digest(content: bytes) -> None:
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
        target: Where to write; worthless unless this returns.

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
    told = source.read(_DIGEST_BYTES)
    target.write(told)
    if left or comment != _COMMENT:
        raise CheckpointError("it is torn: it does not end with a digest")
    digest.update(_NO_DIGEST)
    if digest.hexdigest().encode("ascii") != told:
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
    header = json.loads(text)
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
    # A copy, because what is made from bytes cannot be written to.
    flat = np.frombuffer(member, dtype, offset=stream.tell()).copy()
    return flat.reshape(shape, order="F" if fortran else "C")


def _read_position(found: Mapping[str, int]) -> Position:
    return Position(**{name: int(found[name]) for name in Position.__slots__})
