"""Best-improvement search over moves of classes: fast, and no worse than its start."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from milp.window_chances import NOTHING, best_gift

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from milp.window import Holding
    from milp.window_chances import Step
    from milp.window_seats import Gift, Seat
    from milp.window_table import Table

_MOST_MOVES = 200
"""Six days of Summit take 1 or 2 an event; this ends a search that a huge pool, all
of it free, would make long."""

_WORTH_IT = 1e-9
"""Relative to the plan's value; less is rounding."""


class Move(NamedTuple):
    """Nodes of one class that change hands; ``to`` is -1 where they stay free."""

    gain: float
    place: int
    k: int
    more: int
    to: int = -1
    taken: int = 0


_STAY = Move(*NOTHING)


class Climb:
    """Improves a plan by one move after the other, the best one each time.

    Moves: a trainer takes all free nodes of a class, or as many as it has room for;
    it gives all of a class that it may give; or what it takes in this plan goes to
    another one instead. Best takes and gifts of a trainer are kept until they change.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._takes: dict[int, Step] = {}
        self._gifts = dict(table.chances.gifts)
        self._step = 0
        self._least = _WORTH_IT * (1.0 + table.chances.magnitude)
        self._moved_at: dict[int, int] = {}
        self._refused_at: dict[tuple[int, int, int], int] = {}
        if table.free:
            self._look_at_takes(range(len(table.seats)))
        self._look_at_gifts(table.moved)

    def run(
        self,
        stop: Callable[[], bool] | None = None,
        ended: Sequence[Holding] = (),
    ) -> None:
        """Move until nothing improves the plan.

        Args:
            stop: Tells that there is no more time; asked before every move.
            ended: Where another search ended: nothing leads on from there.
        """
        least = self._least
        for _ in range(_MOST_MOVES):
            if stop is not None and stop():
                return
            steps = [*self._takes.values(), *self._gifts.values(), NOTHING]
            step = max(steps)
            # Transfers take longest to look at, and seldom help.
            best = Move(*step) if step[0] > least else self._best_transfer()
            if best.gain <= least:
                return
            self._make(best)
            if ended and self._table.holdings() == ended:
                return

    def _make(self, move: Move) -> None:
        self._step += 1
        self._table.move(move.place, move.k, move.more)
        touched = {move.place}
        if move.to >= 0:
            self._table.move(move.to, move.k, move.taken)
            touched.add(move.to)
        self._moved_at.update(dict.fromkeys(touched, self._step))
        self._look_at_gifts(touched)
        if not self._table.free:
            self._takes.clear()
        else:
            self._look_again(move, touched)
        if move.more > 0 and move.k not in self._table.free:
            self._refused_at[move.place, move.k, move.more] = self._step

    def _look_again(self, move: Move, touched: set[int]) -> None:
        same = [place for _, place, k, _ in self._takes.values() if k == move.k]
        touched.update(same)
        self._look_at_takes(touched)
        if move.k in self._table.free:
            self._look_at_class(move.k, touched)

    def _look_at_takes(self, places: Iterable[int]) -> None:
        """Find the best takes of trainers; those who share a seat have the same."""
        seats, free = self._table.seats, self._table.offers()
        known: dict[Seat, tuple[float, int, int]] = {}
        for place in places:
            seat = seats[place]
            if seat not in known:
                known[seat] = seat.best_take(free)
            gained, k, more = known[seat]
            if more:
                self._takes[place] = gained, place, k, more
            else:
                self._takes.pop(place, None)

    def _look_at_class(self, k: int, seen: AbstractSet[int]) -> None:
        """See whether those who are not among *seen* better take of class *k* now."""
        nodes = self._table.free[k]
        for place, seat in enumerate(self._table.seats):
            if place in seen:
                continue
            value, more = seat.with_up_to(k, nodes)
            take = value - seat.value, place, k, more
            if take > self._takes.get(place, NOTHING):
                self._takes[place] = take

    def _look_at_gifts(self, places: Iterable[int]) -> None:
        for place in places:
            gift = best_gift(place, self._table.seats[place])
            if gift is NOTHING:
                self._gifts.pop(place, None)
            else:
                self._gifts[place] = gift

    def _best_transfer(self) -> Move:
        best, most, least = _STAY, 0.0, self._least
        seats, moved = self._table.seats, sorted(self._table.moved)
        for place in moved:
            giver = seats[place]
            if not giver.takes:
                continue
            others = [to for to in moved if to != place]
            for gift in giver.gifts():
                lost, k, spare = gift
                is_wanted = False
                for to in self._rivals(place, gift, others):
                    rival = seats[to]
                    value, taken = rival.with_up_to(k, spare)
                    gained = lost + value - rival.value
                    if gained > least:
                        is_wanted = True
                        if gained > most:
                            most = gained
                            best = Move(gained, place, k, -spare, to, taken)
                if not is_wanted:
                    self._refused_at[place, k, spare] = self._step
        return best

    def _rivals(self, place: int, gift: Gift, others: Sequence[int]) -> Sequence[int]:
        """Return who may gain more by a gift than who gives it loses.

        Where nobody did when asked last, or all of the class was free and went to who
        gained most by it, those who did not move since do not either: giver and gift
        are the same. Of those who never moved one gains most.
        """
        lost, k, spare = gift
        refused_at = self._refused_at.get((place, k, spare))
        if refused_at is not None and refused_at >= self._moved_at.get(place, 0):
            return sorted([j for j, at in self._moved_at.items() if at > refused_at])
        still = self._still(k, spare, lost)
        return others if still < 0 else sorted([*others, still])

    def _still(self, k: int, spare: int, lost: float) -> int:
        """Return who of those that never moved gains most by nodes; -1 for nobody.

        That is for nobody to whom it is not worth more than what is *lost*, which most
        gifts end with.
        """
        # Half of what is worth it, as sums round differently in another order.
        enough, moved = lost - self._least / 2, self._table.moved
        for less, places in self._table.chances.takers(k, spare):
            if less >= enough:
                break
            for place in places:
                if place not in moved:
                    return place
        return -1
