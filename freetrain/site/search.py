"""Finding the file that configures a site."""

from __future__ import annotations

import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.errors import BadConfigurationError, MissingInputError
from freetrain.site.file import FILE, default_site, parse_site
from freetrain.toml.document import read_limited
from freetrain.toml.text import Places

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.site.settings import Site

VARIABLE = "FREETRAIN_CONFIG"
FILE_NAME = "freetrain.toml"
SYSTEM_FOLDER = Path("/etc/freetrain")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A place where the file may be.

    Attributes:
        path: Absolute path.
        is_asked_for: Whether somebody named it: then it must be there.
    """

    path: Path
    is_asked_for: bool = False


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the search goes by.

    Attributes:
        environment: Environment variables.
        folder: The current folder, absolute.
        uid: The user's number.
        system_folder: Where the site's administrators put their file.
    """

    environment: Mapping[str, str]
    folder: Path
    uid: int
    system_folder: Path = SYSTEM_FOLDER

    @property
    def home(self) -> Path | None:
        """The user's home, None where HOME is not an absolute path."""
        return _absolute(self.environment.get("HOME", ""))


def candidates(
    around: Surroundings, *, asked: Path | None = None
) -> tuple[Candidate, ...]:
    """Return where the file may be, the first that is there counts.

    The order: *asked* (``--config``), the variable FREETRAIN_CONFIG, the current
    folder, the user's configuration (XDG), the system's.
    """
    named = asked or around.environment.get(VARIABLE)
    if named:
        return (Candidate(around.folder / named, is_asked_for=True),)
    given = _absolute(around.environment.get("XDG_CONFIG_HOME", ""))
    own = given or (around.home / ".config" if around.home else None)
    places = [around.folder, own / "freetrain" if own else None, around.system_folder]
    return tuple(Candidate(place / FILE_NAME) for place in places if place)


def find_site(around: Surroundings, *, asked: Path | None = None) -> Site:
    """Return the site that the first file found describes, else the defaults.

    Files are not merged: what one file leaves out has its default.

    Raises:
        MissingInputError: The file asked for is not there, or one cannot be read.
        BadConfigurationError: It does not describe a site; or nobody asked for it
            and it is somebody else's, or anybody's, who could make us run anything.
    """
    for candidate in candidates(around, asked=asked):
        if candidate.is_asked_for or _is_there(candidate.path, uid=around.uid):
            return _read(candidate.path, around)
    return default_site(around.home)


def _read(path: Path, around: Surroundings) -> Site:
    content = read_limited(path, named=str(path), file=FILE)
    places = Places(path.parent, around.home)
    return replace(parse_site(content, path=str(path), places=places), path=path)


def _is_there(path: Path, *, uid: int) -> bool:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise MissingInputError(
            f"cannot look for {path}: {error.strerror}. {FILE.consequence} Name your "
            f"configuration with --config."
        ) from error
    if found.st_uid not in {0, uid}:
        raise BadConfigurationError(
            f"{path}: belongs to user {found.st_uid}, expected you or root. "
            f"{FILE.consequence} If you trust it, name it with --config."
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & stat.S_IWOTH:
        raise BadConfigurationError(
            f"{path}: anybody may write to it (mode {mode:04o}). "
            f"{FILE.consequence} Run `chmod o-w` on it, or name it with --config."
        )
    return True


def _absolute(text: str) -> Path | None:
    return Path(text) if text.startswith("/") else None
