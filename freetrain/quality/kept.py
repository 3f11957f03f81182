"""An outlook as JSON, so that one tick can leave it to the next and none is fitted."""

from __future__ import annotations

from array import array
from dataclasses import asdict
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from freetrain.errors import BadDataError
from freetrain.quality.course import Frame
from freetrain.quality.families.known import KNOWN
from freetrain.quality.fit import Fit
from freetrain.quality.fitted import FittedOutlook
from freetrain.quality.interval import Spread
from freetrain.quality.scale import Scale

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from freetrain.quality.history import History
    from freetrain.quality.outlook import Better, Point

_VERSION = 2
"""Of the form and of the fits: nothing that another one kept is believed."""


def fingerprint(points: Iterable[Point], better: Better) -> str:
    """Return what is the same for the same points only."""
    numbers = array("d")
    for point in points:
        numbers.extend((point.t_s, point.samples, point.value))
    return sha256(better.encode() + numbers.tobytes()).hexdigest()


def to_state(outlook: FittedOutlook) -> dict[str, object]:
    """Return *outlook* as JSON has it, but for its points: they are kept anyway."""
    fit = outlook.fit
    return {
        "version": _VERSION,
        "is_diverging": outlook.is_diverging,
        "phase_samples": outlook.phase_samples,
        "frame": asdict(outlook.frame),
        "family": outlook.family,
        "shape": fit.shape.tolist(),
        "curve": [fit.gain, fit.floor, fit.lag, fit.end],
        "spread": asdict(outlook.spread),
        "scale": asdict(outlook.scale),
    }


def from_state(
    state: Mapping[str, Any], history: History, better: Better
) -> FittedOutlook:
    """Return the outlook that :func:`to_state` was given.

    Args:
        state: What it returned.
        history: The same points again.
        better: Which values are good.

    Raises:
        BadDataError: It is no such state, or another release's.
    """
    if state.get("version") != _VERSION:
        raise _refusal(f"version {state.get('version')!r} instead of {_VERSION}")
    try:
        return FittedOutlook(
            better=better,
            points=history.points,
            is_diverging=state["is_diverging"],
            phase_samples=state["phase_samples"],
            frame=Frame(**state["frame"]),
            fit=_fit(state),
            spread=Spread(**state["spread"]),
            scale=Scale(**state["scale"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _refusal(f"something else than an outlook ({error!r})") from error


def _fit(state: Mapping[str, Any]) -> Fit:
    family = {one.name: one for one in KNOWN}[state["family"]]
    return Fit(family, np.array(state["shape"], dtype=np.float64), *state["curve"])


def _refusal(found: str) -> BadDataError:
    return BadDataError(
        f"what was kept of an outlook has {found}. It was left out; the curve will be "
        f"fitted afresh."
    )
