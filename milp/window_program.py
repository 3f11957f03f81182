"""W0 as an integer program in PuLP (docs/model.md, W4 to W8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pulp

from milp.scale import scale_of
from milp.solver import whole
from milp.window_pieces import Pieces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from milp.window import Window
    from milp.window_options import Options
    from milp.window_pieces import Piece


class _Part(NamedTuple):
    """A piece of one class at one size of one trainer.

    Attributes:
        piece: Where it is.
        chosen: [s] 1 if the count lies on it.
        more: [y] Nodes from its beginning on.
    """

    piece: Piece
    chosen: pulp.LpVariable
    more: pulp.LpVariable


class _Row(NamedTuple):
    """One size of one trainer.

    Attributes:
        row: Of the options.
        chosen: [z] 1 if the trainer has this size.
        parts: By class; none where there is nothing to choose.
    """

    row: int
    chosen: pulp.LpVariable
    parts: list[list[_Part]]


class Program(NamedTuple):
    """A model, where to begin from, and where to read its answer.

    Attributes:
        model: The PuLP model; its objective is the gain times ``scale``.
        rows: By trainer.
        options: What the rows are of.
        scale: Factor of the objective, for the solver's tolerances.
    """

    model: pulp.LpProblem
    rows: list[list[_Row]]
    options: Options
    scale: float

    def begin(self, counts: Sequence[Sequence[int]]) -> None:
        """Set the variables to a plan whose sizes are among the rows."""
        for variable in self.model.variables():
            variable.setInitialValue(0)
        for own, wanted in zip(self.rows, counts, strict=True):
            for one in own:
                if int(self.options.size[one.row]) == sum(wanted):
                    _set(one, self.options, wanted)

    def counts(self) -> list[list[int]]:
        """Return the solved nodes by trainer and class.

        Raises:
            SolverFailedError: A variable that counts has no whole value.
        """
        return [self._counts_of(own) for own in self.rows]

    def value(self) -> float:
        """Return the solved objective in objective units."""
        # Where all gains are 0, PuLP adds a variable that never has a value.
        terms = self.model.objective.items()
        summed = sum([factor * one.value() for one, factor in terms if factor])
        return float(summed) / self.scale

    def _counts_of(self, own: list[_Row]) -> list[int]:
        counts = [0] * len(self.options.pool.nodes)
        for one in own:
            least = self.options.least[one.row].tolist()
            [chosen] = whole([one.chosen])
            for k, parts in enumerate(one.parts):
                counts[k] += chosen * least[k]
                for part in parts:
                    on, more = whole([part.chosen, part.more])
                    counts[k] += part.piece.start * on + more
        return counts


def _set(one: _Row, options: Options, wanted: Sequence[int]) -> None:
    one.chosen.setInitialValue(1)
    for k, parts in enumerate(one.parts):
        above = wanted[k] - int(options.least[one.row, k])
        for part in parts:
            start, nodes, *_ = part.piece
            if above <= start + nodes:
                part.chosen.setInitialValue(1)
                part.more.setInitialValue(above - start)
                break


def build(window: Window, options: Options, rows: Sequence[Sequence[int]]) -> Program:
    """Build the program over *rows* of *options*, by trainer.

    Each trainer's rows contain a size that it can have whatever others do.
    """
    model = pulp.LpProblem("window", pulp.LpMaximize)
    base = options.base[[row for own in rows for row in own]]
    largest = max((abs(gain) for gain in base.tolist()), default=0.0)
    largest = max(largest, float(abs(options.slope).max(initial=0.0)))
    scale = scale_of(largest)
    writer = _Writer(window, options, model, scale)
    made = [writer.trainer(place, own) for place, own in enumerate(rows)]
    writer.finish()
    return Program(model, made, options, scale)


class _Writer:
    """Writes the program down, trainer by trainer."""

    def __init__(
        self, window: Window, options: Options, model: pulp.LpProblem, scale: float
    ) -> None:
        self._window, self._options = window, options
        self._model, self._scale = model, scale
        self._gain: list[pulp.LpAffineExpression] = []
        self._pieces = Pieces(options.pool.hits.tolist())
        self._fresh = [options.pool.fresh(one) for one in window.trainers]
        self._used: list[list[pulp.LpAffineExpression]] = [
            [] for _ in options.pool.nodes
        ]

    def trainer(self, place: int, rows: Sequence[int]) -> list[_Row]:
        """Add one trainer: one of its sizes (W4), its nodes by class."""
        made = [self._row(place, row) for row in rows]
        self._model += pulp.lpSum(one.chosen for one in made) == 1  # W4
        return made

    def finish(self) -> None:
        """Add what all trainers share: the objective (W8) and the nodes (W7)."""
        self._model += pulp.lpSum(self._gain)
        for used, nodes in zip(
            self._used, self._options.pool.nodes.tolist(), strict=True
        ):
            if used:
                self._model += pulp.lpSum(used) <= nodes

    def _row(self, place: int, row: int) -> _Row:
        options, name = self._options, f"{place}_{row}"
        chosen = self._model.add_variable(f"z_{name}", 0, 1, pulp.LpInteger)
        self._gain.append(self._scale * float(options.base[row]) * chosen)
        parts = [
            self._parts(place, row, k, chosen) for k in range(len(options.pool.nodes))
        ]
        above = []
        for k, own in enumerate(parts):
            least = int(options.least[row, k])
            used = [part.piece.start * part.chosen + part.more for part in own]
            above += used
            self._used[k] += [least * chosen, *used] if least else used
        missing = int(options.size[row]) - int(options.least[row].sum())
        self._model += pulp.lpSum(above) == missing * chosen  # W6
        return _Row(row, chosen, parts)

    def _parts(
        self, place: int, row: int, k: int, chosen: pulp.LpVariable
    ) -> list[_Part]:
        """Add one class at one size: on which piece the count lies, and where (W5)."""
        options, trainer = self._options, self._window.trainers[place]
        least, room = int(options.least[row, k]), int(options.room[row, k])
        nodes = int(options.size[row])
        worth = trainer.curve.value_per_s.item(nodes)
        loss_s = self._window.hit_weight * trainer.loss_s * self._fresh[place].item(k)
        made = self._pieces.of(k, least, least + room, exact=worth < 0.0)
        each_s = float(options.pool.life_s[k]) / max(nodes, 1)
        parts = []
        for number, piece in enumerate(made):
            name = f"{place}_{row}_{k}_{number}"
            on, more = chosen, self._count(f"y_{name}", piece.nodes)
            if len(made) > 1:
                on = self._count(f"s_{name}", 1)
            self._model += more <= piece.nodes * on
            at_s = piece.start * each_s - loss_s * piece.hits
            more_s = each_s - loss_s * piece.slope
            self._gain += [
                self._scale * worth * at_s * on,
                self._scale * worth * more_s * more,
            ]
            parts.append(_Part(piece, on, more))
        if len(made) > 1:
            self._model += pulp.lpSum(part.chosen for part in parts) == chosen
        return parts

    def _count(self, name: str, most: int) -> pulp.LpVariable:
        return self._model.add_variable(name, 0, most, pulp.LpInteger)
