"""Which of a user's variables are kept with a trainer, as sbatch keeps them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from freetrain.errors import BadConfigurationError
from freetrain.exchange.environment import MPI_TUNING

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_BYTES = 1 << 19
"""All of them together; Linux takes 2 MiB, arguments included."""

_MOST_VALUE_BYTES = 100_000  # Linux takes no single one above 131,072
_LEFT_OUT_PREFIXES = (
    "FREETRAIN_",  # the launch sets these
    "SLURM_",  # a world must not believe in the job it was submitted from
    "PMI_",
    "PMIX_",
    "OMPI_",
    "PRTE_",
)
_LEFT_OUT = frozenset({"PWD", "OLDPWD", "SHLVL", "_"})  # the shell's, about itself


def kept_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what of *environ* a trainer is launched with.

    Raises:
        BadConfigurationError: It is larger than is ever kept.
    """
    kept = {name: value for name, value in environ.items() if _is_kept(name)}
    for name, value in kept.items():
        if _bytes(value) > _MOST_VALUE_BYTES:
            raise _too_large(f"the variable {name} has {_bytes(value)} bytes")
    total = sum(_bytes(name) + _bytes(value) + 2 for name, value in kept.items())
    if total > MOST_BYTES:
        raise _too_large(f"your environment has {total} bytes")
    return kept


def _is_kept(name: str) -> bool:
    if name.startswith(MPI_TUNING):  # the launch knows which are not theirs
        return True
    return name not in _LEFT_OUT and not name.startswith(_LEFT_OUT_PREFIXES)


def _bytes(text: str) -> int:
    return len(os.fsencode(text))


def _too_large(what: str) -> BadConfigurationError:
    return BadConfigurationError(
        f"{what}, more than can be kept for a trainer ({_MOST_VALUE_BYTES} each, "
        f"{MOST_BYTES} together). Nothing was submitted. Unset what the program does "
        f"not need, or submit with `env -i`."
    )
