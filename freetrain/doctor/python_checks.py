"""Looking at ourselves: which Python, which FreeTrain, imported from where."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.doctor.finding import bad, ok

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.doctor.finding import Finding

PACKAGES = ("freetrain", "milp", "slurm", "logs")
_REMEDY = (
    "PyPI has packages of the same names. Install FreeTrain alone, with `pipx install "
    "freetrain` or `uv tool install freetrain`."
)


def look_at_python() -> Iterator[Finding]:
    """Find which Python and which FreeTrain this is, and that nothing shadows it."""
    version = importlib.metadata.version("freetrain")
    python = ".".join(map(str, sys.version_info[:3]))
    yield ok("FreeTrain", f"{version} on Python {python} ({sys.executable})")
    yield look_at_imports({name: origin(name) for name in PACKAGES})


def origin(name: str) -> Path | None:
    """Return the file that ``import name`` runs, None where there is none."""
    spec = importlib.util.find_spec(name)
    return Path(spec.origin) if spec and spec.origin else None


def look_at_imports(origins: dict[str, Path | None]) -> Finding:
    """Find whether the packages are ours: from one place, and not written over."""
    name = "imports"
    missing = [package for package, path in origins.items() if path is None]
    if missing:
        return bad(name, f"{', '.join(missing)} cannot be imported", _REMEDY)
    paths = {package: path for package, path in origins.items() if path}
    homes = {path.parent.parent for path in paths.values()}
    if len(homes) > 1:
        told = ", ".join(f"{package} from {path}" for package, path in paths.items())
        return bad(name, told, _REMEDY)
    strange = [package for package, path in paths.items() if not is_bare(path)]
    if strange:
        seen = f"{', '.join(strange)}/__init__.py is not FreeTrain's"
        return bad(name, seen, _REMEDY)
    return ok(name, f"{', '.join(paths)} from {homes.pop()}")


def is_bare(path: Path) -> bool:
    """Tell whether a module holds a docstring and nothing more, as all ours do."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return False
    return len(body) == 1 and isinstance(body[0], ast.Expr)
