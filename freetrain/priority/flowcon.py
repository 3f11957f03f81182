"""FlowCon among nodes: those that still grow get more, by growth efficiency."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from freetrain.errors import UsageError
from freetrain.priority.curves import Curves
from freetrain.priority.flowcon_growth import Seen
from freetrain.priority.flowcon_look import is_due, look
from freetrain.priority.flowcon_state import DEFAULT_ALPHA, Settings, from_json, to_json
from freetrain.priority.interface import Basis, Rated, Rating
from freetrain.quality.outlook import Better
from freetrain.toml.wording import per_cent

if TYPE_CHECKING:
    from freetrain.priority.flowcon_state import Track
    from freetrain.priority.interface import Contender, Look, Memory
    from milp.problem import Curve


class FlowCon:
    """Rates trainers by the shares that FlowCon gives them.

    A look's interval is the planner's look-ahead; memory has lists, back-off, and
    what everybody has used of the nodes.

    Args:
        alpha: Growth efficiency below which a trainer gets a strike.

    Raises:
        UsageError: *alpha* is not above 0, or not finite.
    """

    name = "flowcon"
    basis = Basis.LOSSES

    def __init__(self, alpha: float = DEFAULT_ALPHA) -> None:
        if not 0 < alpha < math.inf:
            raise UsageError(
                f"alpha {alpha:g} is not above 0. Give the growth efficiency below "
                f"which a trainer is watched, such as {DEFAULT_ALPHA:g}."
            )
        self._alpha = alpha
        self._curves = Curves()

    def rate(self, now: Look, memory: Memory, /) -> Rated:
        """Return a rating for each contender."""
        state = from_json(_table(memory.get("state")))
        used_s = _used_s(now, memory)
        names = [contender.name for contender in now.contenders]
        if is_due(state, names, now.now_s):
            seen = [_seen(one, used_s[one.name]) for one in now.contenders]
            how = Settings(interval_s=now.t_fwd_s, alpha=self._alpha)
            state = look(state, seen, now.now_s, how)
        tracks = {track.name: track for track in state.tracks}
        ratings = (self._rating(one, tracks[one.name]) for one in now.contenders)
        held = {one.name: one.held / max(1, now.nodes) for one in now.contenders}
        remembered = {
            "state": to_json(state),
            "used_s": used_s,
            "held": held,
            "now_s": now.now_s,
        }
        return Rated(tuple(ratings), remembered)

    def _rating(self, contender: Contender, track: Track) -> Rating:
        outlook = contender.outlook
        is_diverging = outlook is not None and outlook.is_diverging
        return Rating(
            curve=self._curve(contender, track.share),
            is_background=is_diverging,
            reason=_reason(
                track, has_loss=outlook is not None, is_diverging=is_diverging
            ),
        )

    def _curve(self, contender: Contender, share: float) -> Curve:
        """Return worth that makes the planner give nodes by share.

        The sum of share * log(1 + speed) is largest where 1 + speed goes by share, if
        speed goes by nodes; that of share * speed would give all to the largest.
        """
        speed = self._curves.speed_up(contender).value_per_s
        worth = share * contender.weight * np.log1p(np.maximum(0.0, speed))
        return self._curves.custom(worth, contender.sizes)


def _table(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _used_s(now: Look, memory: Memory) -> dict[str, float]:
    """Return what each contender has used: seconds of all nodes, by what it held."""
    passed_s = max(0.0, now.now_s - _number(memory.get("now_s", now.now_s)))
    used, held = _table(memory.get("used_s")), _table(memory.get("held"))
    return {
        one.name: _number(used.get(one.name)) + passed_s * _number(held.get(one.name))
        for one in now.contenders
    }


def _seen(contender: Contender, used_s: float) -> Seen:
    outlook = contender.outlook
    if outlook is None:
        return Seen(name=contender.name, values=(), used_s=used_s)
    sign = -1.0 if outlook.better is Better.HIGHER else 1.0
    return Seen(
        name=contender.name,
        values=tuple((point.t_s, sign * point.value) for point in outlook.points),
        used_s=used_s,
        is_diverging=outlook.is_diverging,
    )


def _reason(track: Track, *, has_loss: bool, is_diverging: bool) -> str:
    share = f"share {per_cent(track.share)}"
    if is_diverging:
        return f"diverging, {track.place}, {share}: gets what the others leave"
    if not has_loss:
        return f"no usable loss, rated by throughput, {share}"
    if track.growth is None:
        return f"growth not known yet, {track.place}, {share}"
    return f"growth efficiency {track.growth:.3g}, {track.place}, {share}"
