"""From counts to node sets, without migration (docs/reference/model.md, M4)."""

from __future__ import annotations

from collections import defaultdict
from heapq import nlargest
from typing import TYPE_CHECKING, Any, TypeVar

from milp.errors import MalformedProblemError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Sequence

Node = TypeVar("Node", bound="Hashable")


def assign(
    counts: Sequence[Sequence[int]],
    held: Sequence[Collection[Node]],
    *,
    free: Iterable[Node],
    rank: Callable[[Node], Any],
    class_of: Callable[[Node], int] | None = None,
) -> tuple[frozenset[Node], ...]:
    """Choose each trainer's nodes: keep, and grow into, those of highest rank.

    First the shrinking trainers give up their nodes of lowest rank; then the
    growing ones, in order, take the free nodes of highest rank, those just given
    up among them. Ranked by remaining life, a trainer keeps the nodes that live
    longest; ranked by node number, the result is that of the published replay.

    Args:
        counts: [x_jk] Nodes by trainer and class.
        held: Nodes that each trainer holds now.
        free: Idle nodes that no trainer holds.
        rank: Any sort key; equal ranks are taken in the order met.
        class_of: A node's class; None where there is one class only.

    Returns:
        Nodes by trainer. In each class the old and the new set are nested.

    Raises:
        MalformedProblemError: The counts ask for more free nodes than there are.
    """
    find_class = class_of or (lambda _: 0)
    pools = _by_class(free, find_class)
    mine = [_by_class(nodes, find_class) for nodes in held]
    for row, groups in zip(counts, mine, strict=True):
        for index, count in enumerate(row):
            if count < len(groups[index]):
                kept = nlargest(count, groups[index], key=rank)
                pools[index] += sorted(set(groups[index]) - set(kept), key=rank)
                groups[index] = kept
    for index in range(max(map(len, counts), default=0)):
        _grow(counts, mine, index=index, pool=pools[index], rank=rank)
    return tuple(
        frozenset(n for group in groups.values() for n in group) for groups in mine
    )


def _grow(
    counts: Sequence[Sequence[int]],
    mine: Sequence[dict[int, list[Node]]],
    *,
    index: int,
    pool: list[Node],
    rank: Callable[[Node], Any],
) -> None:
    """Serve the trainers that grow in class *index* from *pool*, in order."""
    wanted = [
        max(0, row[index] - len(groups[index]))
        for row, groups in zip(counts, mine, strict=True)
    ]
    if sum(wanted) > len(pool):
        raise MalformedProblemError(
            f"the plan needs {sum(wanted)} free nodes of class {index}, but there "
            f"are {len(pool)}. No node was assigned; plan again with fresh counts."
        )
    best = iter(nlargest(sum(wanted), pool, key=rank))
    for more, groups in zip(wanted, mine, strict=True):
        groups[index] += [next(best) for _ in range(more)]


def _by_class(
    nodes: Iterable[Node], class_of: Callable[[Node], int]
) -> dict[int, list[Node]]:
    groups: dict[int, list[Node]] = defaultdict(list)
    for node in nodes:
        groups[class_of(node)].append(node)
    return groups
