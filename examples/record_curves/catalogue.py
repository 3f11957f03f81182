"""All trainings that are recorded.

Good and bad settings side by side, since a scheduler meets both: too slow, too fast,
falling apart at once or late, learning by heart.
"""

from __future__ import annotations

from examples.record_curves.linear_models import LINEAR
from examples.record_curves.networks import NETWORKS
from examples.record_curves.other_models import OTHERS

TRAININGS = (*LINEAR, *NETWORKS, *OTHERS)
