"""Best-improvement search over moves of classes: fast, and no worse than its start."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
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


_NOTHING = Move(0.0, -1, -1, 0)


class Climb:
    """Improves a plan by one move after the other, the best one each time.

    Moves: a trainer takes all free nodes of a class, or as many as it has room for;
    it gives all of a class that it may give; or what it takes in this plan goes to
    another one instead. Best takes and gifts of a trainer are kept until they change.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._takes = [self._best_take(j) for j in range(len(table.seats))]
        self._gifts = [self._best_gift(j) for j in range(len(table.seats))]

    def run(self) -> int:
        """Move until nothing improves the plan; return how many moves that took."""
        if not self._takes:
            return 0
        least = _WORTH_IT * (1.0 + sum(abs(seat.value) for seat in self._table.seats))
        for moves in range(_MOST_MOVES):
            best = max([*self._takes, *self._gifts])
            if best.gain <= least:
                # These take longest to look at, and seldom help.
                best = self._best_transfer()
                if best.gain <= least:
                    return moves
            self._make(best)
        return _MOST_MOVES

    def _make(self, move: Move) -> None:
        self._table.move(move.place, move.k, move.more)
        touched = [move.place]
        if move.to >= 0:
            self._table.move(move.to, move.k, move.taken)
            touched.append(move.to)
        for place in touched:
            self._gifts[place] = self._best_gift(place)
        for place, take in enumerate(self._takes):
            if place in touched or take.k == move.k:
                self._takes[place] = self._best_take(place)
            elif move.k in self._table.free:
                self._takes[place] = max(take, self._take(place, move.k))

    def _best_take(self, place: int) -> Move:
        seat = self._table.seats[place]
        if seat.nodes >= seat.most:
            return _NOTHING
        gained, k, more = seat.best_take(self._table.free)
        return Move(gained, place, k, more) if more else _NOTHING

    def _take(self, place: int, k: int) -> Move:
        seat = self._table.seats[place]
        more = min(self._table.free[k], seat.room(k))
        if more <= 0:
            return _NOTHING
        return Move(seat.with_more(k, more) - seat.value, place, k, more)

    def _best_gift(self, place: int) -> Move:
        seat, best = self._table.seats[place], _NOTHING
        for k in seat.mine:
            spare = seat.spare(k)
            if spare > 0:
                gained = seat.with_more(k, -spare) - seat.value
                if gained > best.gain:
                    best = Move(gained, place, k, -spare)
        return best

    def _best_transfer(self) -> Move:
        best = _NOTHING
        for place, giver in enumerate(self._table.seats):
            for k in giver.taken():
                spare = giver.spare(k)
                lost = giver.with_more(k, -spare) - giver.value
                for to, seat in enumerate(self._table.seats):
                    if to == place or seat.nodes >= seat.most:
                        continue
                    taken = min(spare, seat.room(k))
                    if taken <= 0:
                        continue
                    gained = lost + seat.with_more(k, taken) - seat.value
                    if gained > best.gain:
                        best = Move(gained, place, k, -spare, to, taken)
        return best
