"""When a size that is not known is worth trying, told to the planner as a curve.

The idea, that speeds measured in passing make users' curves unnecessary, is
MalleTrain's (ICPE 2024); how it chooses sizes could not be verified, and this rule
is our own: the expected improvement of Bayesian optimisation, at a price a node.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from freetrain.scaling.estimate import Estimate

_FAR = 8.0
"""Beyond eight standard deviations nothing is gained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiling:
    """How eager trainers are to try sizes.

    Attributes:
        most: No size is hoped to be quicker than estimated by more than this share.
        known_log_sd: Sizes known this well are not tried.
        unknown_log_sd: A trainer that waits for nodes, and whose speed on its
            smallest size is less certain than this, is to be tried there.
        trial_s: How long trying takes, seconds; about the planner's look-ahead.
        horizon_s: Seconds over which what was learned counts as being of use, where
            the trainer does not finish sooner. Much less than trainers live: of what
            could be learned by trying, the pool's own ups and downs teach most.
    """

    most: float = 0.15
    known_log_sd: float = 0.03
    unknown_log_sd: float = 0.3
    trial_s: float = 120.0
    horizon_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stake:
    """What a trainer has to win and to lose by trying a size.

    Attributes:
        remaining_samples: Work until it is finished; inf where nobody knows.
        rescale_s: Seconds without training to get there and back, its own and those
            of others who make room.
        held: Nodes it holds now.
        smallest: The fewest nodes it can run on.
        node_per_s: Samples a second that a node brings elsewhere.
    """

    remaining_samples: float = math.inf
    rescale_s: float = 0.0
    held: int = 0
    smallest: int = 1
    node_per_s: float = 0.0


def curve_values(
    known: Estimate, *, profiling: Profiling | None, stake: Stake
) -> NDArray[np.float64]:
    """Return samples/s at 0 .. most nodes for a planner, hopes included.

    Let a node be worth what the trainer makes of each now, p. Knowing the speed f of
    n nodes, estimated as e with standard deviation s, is worth ::

        I(n) = E[max(0, f - n p)] - max(0, e - n p)

    samples a second for as long as it is of use. Trying costs the rescales, and
    max(0, n p - e) while it lasts. Where it is worth more than it costs, the planner
    is told of e and ``I(n) use / trial``, up to the cap. As sizes get known, that
    becomes e.

    Only those that run try sizes: of those that wait, whoever is known least would
    hope most, and each would have its turn. But a trainer that waits because it seems
    slow is not asked again, for ever on one bad size. Where its smallest size is as
    good as unknown, it hopes, at all sizes alike, for what that many nodes bring
    elsewhere.

    Args:
        known: Speeds, and how sure they are.
        profiling: How eager to be; None to hope for nothing.
        stake: What it may bring and cost.

    Returns:
        Shape (most + 1,), float64, read-only, at least the estimate; entry 0 is 0.
    """
    if profiling is None:
        return known.samples_per_s
    speeds = known.samples_per_s
    is_unsure = known.log_sd[stake.smallest] > profiling.unknown_log_sd
    if not known.measured or (is_unsure and not stake.held):
        elsewhere = stake.smallest * stake.node_per_s
        hoped = np.full(len(speeds), max(elsewhere, speeds[stake.smallest]))
    elif not stake.held:
        return speeds
    else:
        hoped = _hoped(known, profiling, stake)
    values: NDArray[np.float64] = speeds + hoped
    values[0] = 0.0
    values.flags.writeable = False
    return values


def _hoped(known: Estimate, profiling: Profiling, stake: Stake) -> NDArray[np.float64]:
    speeds = known.samples_per_s
    held = min(stake.held or stake.smallest, len(speeds) - 1)
    now_per_s = float(speeds[held])
    short = np.arange(len(speeds)) * (now_per_s / held) - speeds
    use_s = min(profiling.horizon_s, stake.remaining_samples / now_per_s)
    gain = _information(short, speeds * known.log_sd) * use_s
    cost = np.maximum(short, 0.0) * profiling.trial_s + stake.rescale_s * now_per_s
    hoped: NDArray[np.float64] = np.minimum(
        gain / profiling.trial_s, profiling.most * speeds
    )
    hoped[(gain <= cost) | (known.log_sd <= profiling.known_log_sd)] = 0.0
    return hoped


def _information(
    short: NDArray[np.float64], sd: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return sd (phi(z) - z Phi(-z)) with z = |short| / sd: normal, both ways alike."""
    z = np.minimum(np.abs(short) / np.maximum(sd, np.finfo(np.float64).tiny), _FAR)
    below = np.array([math.erfc(one / math.sqrt(2.0)) / 2 for one in z])
    density = np.exp(-(z**2) / 2) / math.sqrt(2.0 * math.pi)
    information: NDArray[np.float64] = sd * np.maximum(density - z * below, 0.0)
    return information
