"""What policies know of trainers' speeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.replay.policies.interface import View
    from freetrain.trainers.spec import Scaling


class Speeds(Protocol):
    """Knows trainers' speeds by node count, once asked at every event."""

    def scalings(self, view: View) -> Sequence[Scaling]:
        """Return what is known of each trainer, in the view's order.

        The same object for as long as the same is known.
        """
        ...


class GivenSpeeds:
    """Believes what users said, which in a replay is the truth."""

    def scalings(self, view: View) -> Sequence[Scaling]:
        """Return each trainer's own scaling."""
        return [trainer.spec.scaling for trainer in view.trainers]
