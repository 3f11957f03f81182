"""How one value is made harmless, by what it is; each keeps what Slurm wrote itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from slurm import recorder_words as known
from slurm.values import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm.recorder_disguise import Disguise

    Change = Callable[[Disguise, str], str]

_DEPENDENCY = re.compile(r"[a-z]+(?::[0-9_+*]+(?:\([a-z]+\))?)*")
_RELEASE = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(?:[.-]?(?:rc|pre)?[0-9]+)*")
_PLUGIN = re.compile(r"(?:select|sched|priority|preempt|topology)/[a-z_0-9]+")
_PARAMETER = re.compile(r"([a-z][a-z_0-9]*)(?:=([0-9]+))?")


def one_of(words: frozenset[str]) -> Change:
    """Return what keeps *words*, joined by ``,`` ``+`` ``:`` ``|`` or numbers."""
    upper = {word.upper() for word in words}

    def change(disguise: Disguise, text: str) -> str:
        if text in words or text in NOTHING:
            return text
        # 22.05's JSON has them in small letters
        parts = re.split(r"([,+:|*]|[0-9]+)", text)
        return "".join(
            part
            if i % 2 or not part or part.upper() in upper
            else disguise.word("WORD", part)
            for i, part in enumerate(parts)
        )

    return change


def reason(disguise: Disguise, text: str) -> str:
    """Keep Slurm's own reasons; a job's may have been set by a site's plugin."""
    return text if text in known.REASONS else disguise.word("reason", text)


def dependency(disguise: Disguise, text: str) -> str:
    """Keep what jobs usually wait for."""
    parts = re.split(r"([,?])", text)
    is_usual = all(_DEPENDENCY.fullmatch(part) for part in parts[::2])
    return text if is_usual else disguise.word("dependency", text)


def kind(word: str) -> Change:
    """Return what maps one word of its kind."""
    return lambda disguise, text: disguise.word(word, text)


def kinds(word: str) -> Change:
    """Return what maps a list of words of one kind."""
    return lambda disguise, text: disguise.words(word, text)


def hosts(disguise: Disguise, text: str) -> str:
    """Map host names and lists of them."""
    return disguise.hosts(text)


def features(disguise: Disguise, text: str) -> str:
    """Map features."""
    return disguise.features(text)


def gres(disguise: Disguise, text: str) -> str:
    """Map generic resources."""
    return disguise.gres(text)


def plain(disguise: Disguise, text: str) -> str:
    """Keep numbers and times."""
    return disguise.plain(text)


def uid(disguise: Disguise, text: str) -> str:
    """Map a number of a user."""
    return disguise.uid(text)


def version(disguise: Disguise, text: str) -> str:
    """Keep a release of Slurm, pre-releases too."""
    return text if _RELEASE.fullmatch(text) else disguise.plain(text)


def duration(disguise: Disguise, text: str) -> str:
    """Keep an amount with its unit."""
    amount, _, unit = text.partition(" ")
    is_known = unit in {"", "sec", "min", "usec"}
    return text if is_known and amount.isdecimal() else disguise.plain(text)


def plugin(disguise: Disguise, text: str) -> str:
    """Keep a plugin of one of the kinds that matter."""
    return text if _PLUGIN.fullmatch(text) else disguise.word("plugin", text)


def parameters(disguise: Disguise, text: str) -> str:
    """Keep names, as Slurm's manual has them, and whole numbers; leave out the rest."""
    del disguise
    if text in NOTHING:
        return text
    found = (_PARAMETER.fullmatch(word.strip()) for word in text.split(","))
    usual = (one for one in found if one and one[1].startswith(_PREFIXES))
    return ",".join(one[0] for one in usual) or "(null)"


_PREFIXES = ("bf_", "sched_", "max_", "default_", "defer", "batch_", "send_user_signal")


def select(disguise: Disguise, text: str) -> str:
    """Keep SelectTypeParameters."""
    is_known = all(word.startswith("CR_") for word in text.split(","))
    return text if is_known or text in NOTHING else disguise.word("SELECT", text)
