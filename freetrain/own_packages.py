"""Lets our own programs find the ``logs``, ``slurm`` and ``milp`` that came along.

These three packages lie beside ``freetrain`` and have names that a user's modules may
have too: a ``logs.py`` in a folder that PYTHONPATH names would be run in place of ours.
Our own programs call ``prefer_own_packages`` before they import anything else of ours.
A training program imports ``freetrain.elastic``, which uses none of the three, and gets
the user's.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

NAMES = frozenset({"logs", "milp", "slurm"})


class _OwnPackages:
    """Finds the three packages in the folder beside the package ``freetrain``."""

    folder = str(Path(__file__).resolve().parents[1])

    @classmethod
    def find_spec(
        cls,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the module spec; None where it is for the next finder to look."""
        del path
        if name not in NAMES:
            return None
        return PathFinder.find_spec(name, [cls.folder], target)


def prefer_own_packages() -> None:
    """Import the three packages from beside ``freetrain`` from now on, if not yet."""
    if _OwnPackages not in sys.meta_path:
        sys.meta_path.insert(0, _OwnPackages)
