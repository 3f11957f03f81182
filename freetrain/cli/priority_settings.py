"""Settings of priorities as a command line gives them: ``--set NAME=VALUE``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.config.schema import MismatchError
from freetrain.config.site import numbers
from freetrain.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Settings = tuple[tuple[str, float], ...]


def given_settings(words: Iterable[str]) -> Settings:
    """Return the settings that *words* give, by name, as freetrain.toml has them.

    Raises:
        UsageError: A word is not ``NAME=VALUE`` with a finite number, or a name is
            given twice.
    """
    found: dict[str, float] = {}
    for word in words:
        ((name, value),) = _setting(word)
        if name in found:
            raise UsageError(
                f"--set {name} is given twice, as {found[name]:g} and {value:g}. "
                f"Nothing was replayed. Give it once, or replay twice."
            )
        found[name] = value
    return tuple(sorted(found.items()))


def own_settings(
    priorities: Sequence[str], settings: Settings
) -> Mapping[str, Settings]:
    """Return the settings of each of *priorities*: those of *settings* that it has.

    Raises:
        UsageError: There is no such priority, or none of them has such a setting, or
            its value means nothing.
    """
    # Imported here: reading numpy for `freetrain -h` would make it wait.
    from freetrain.priority import registry  # noqa: PLC0415

    own = {}
    try:
        registry.check_settings(priorities, dict(settings))
        for name in priorities:
            known = registry.settings_of(name)
            own[name] = tuple(pair for pair in settings if pair[0] in known)
            registry.priority_named(name, dict(own[name]))
    except UsageError as error:
        raise UsageError(f"{error} Nothing was replayed.") from error
    return own


def _setting(word: str) -> Settings:
    name, _, value = word.partition("=")
    try:
        return numbers("hysteresis").read({name.strip(): float(value)})
    except (ValueError, MismatchError) as error:
        raise UsageError(
            f"--set {word}: expected NAME=VALUE with a finite number, as in "
            f"--set horizon_s=600. Nothing was replayed."
        ) from error
