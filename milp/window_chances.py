"""What is worked out once for all plans of a window."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

from milp.window_seats import Seat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from milp.window import Stay, Window
    from milp.window_worths import Terms, Worths


Step: TypeAlias = tuple[float, int, int, int]
"""What is gained where a trainer takes nodes of a class that are free, or gives some:
gain, trainer, class, nodes; a plain tuple, as most are made and never asked."""

NOTHING: Step = 0.0, -1, -1, 0


class Chances:
    """Lives and hits by class, worked out once in a search; and the seats at first.

    Attributes:
        expected: Lives and hits, by class.
        untouched: What is expected of classes of which nobody holds any, and whose hits
            count alike for all.
        seats: Everybody's, with what is held now; never to be moved. Trainers that
            hold nothing and are equal otherwise share one: half of 40 trainers on
            Summit wait.
        magnitude: Of what they gain.
        gifts: The best gift of each trainer that holds a size and gains by one.
    """

    def __init__(self, window: Window, worths: Worths) -> None:
        stays = window.stays
        self.expected = worths.expected(stays)
        self.untouched = {
            k: stays[k] for k, nodes in window.free.items() if nodes == stays[k].nodes
        }
        for fresh in [one.fresh for one in window.trainers if one.fresh]:
            for k in fresh:
                self.untouched.pop(k, None)
        self.seats = self._seats(window, worths)
        values = [abs(seat.value) for seat in self.seats]
        self.magnitude = sum([one for one in values if one < math.inf])
        self.gifts = {
            place: gift
            for place, seat in enumerate(self.seats)
            if seat.mine
            and seat.value > -math.inf
            and (gift := best_gift(place, seat)) is not NOTHING
        }
        self._stays = stays
        self._sharing: dict[Seat, list[int]] = {}
        self._takers: dict[tuple[Stay | int, int], list[tuple[float, list[int]]]] = {}

    def takers(self, k: int, nodes: int) -> Sequence[tuple[float, list[int]]]:
        """Return who gains by *nodes* more of class *k*, who gains most first.

        All hold what they hold now: transfers ask again and again, in every plan.

        Returns:
            What they lose by it, which is below 0, and trainers that share a seat.
        """
        # Who gains by a class that nobody holds gains as much by another one like it.
        asked = self.untouched.get(k, k), nodes
        known = self._takers.get(asked)
        if known is None:
            known = self._takers[asked] = self._ordered(k, nodes)
        return known

    def _ordered(self, k: int, nodes: int) -> list[tuple[float, list[int]]]:
        if not self._sharing:
            for place, seat in enumerate(self.seats):
                self._sharing.setdefault(seat, []).append(place)
        takers, others = [], self._stays[k].nodes - nodes
        for seat, places in self._sharing.items():
            # Who holds more than the others have gave some: it has moved.
            if seat.mine.get(k, 0) <= others:
                less = seat.value - seat.with_up_to(k, nodes)[0]
                if less < 0.0:
                    takers.append((less, places))
        return sorted(takers)

    def _seats(self, window: Window, worths: Worths) -> tuple[Seat, ...]:
        seats = []
        waiting: dict[Terms, Seat] = {}
        for terms in worths.terms(window):
            if terms.held:
                seats.append(self._seat(terms))
                continue
            seat = waiting.get(terms)
            if seat is None:
                seat = waiting[terms] = self._seat(terms)
            seats.append(seat)
        return tuple(seats)

    def _seat(self, terms: Terms) -> Seat:
        if not terms.fresh:
            return Seat(terms, self.expected)
        own = dict(self.expected)
        for k, share in terms.fresh.items():
            life_s, hit, whole, gone = own[k]
            own[k] = life_s, share * hit, whole, gone
        return Seat(terms, own)


def best_gift(place: int, seat: Seat) -> Step:
    """Return the best of what trainer *place* may give, as it sits."""
    best = NOTHING
    for gained, k, spare in seat.gifts():
        if gained > best[0]:
            best = gained, place, k, -spare
    return best
