"""Made-up forecasts for tests of what is shown of them."""

from freetrain.lookahead.reliability import (
    AffinityBlock,
    AffinityMap,
    AgePart,
    ForecastRecord,
    Reliability,
    ScorePart,
)

NODES = ("n1", "n2", "n3", "x7")


def part(said: float, came: float, departures: float = 50.0) -> ScorePart:
    """A hundred forecasts."""
    return ScorePart(said=said, came=came, count=100.0, departures=departures)


def ages() -> tuple[AgePart, ...]:
    """Two classes of age and two of size, the last of each without an end."""
    return (
        AgePart(0.0, 70.0, 1, 1, part(0.4, 0.35)),
        AgePart(9_600.0, None, 1, 1, part(0.9, 0.95, 3.0)),
        AgePart(70.0, 150.0, 2, 4, part(0.5, 0.6)),
        AgePart(0.0, 70.0, 17, None, part(0.2, 0.1)),
    )


def affinity(names: tuple[str, ...] = NODES) -> AffinityMap:
    """Three nodes that leave together, and one that does not, of nine that left."""
    near, far = 0.8, 0.2
    return AffinityMap(
        nodes_left=9,
        cells=tuple((name,) for name in names),
        affinity=tuple(
            tuple(
                None if a == b else near if 3 not in (a, b) else far for b in range(4)
            )
            for a in range(4)
        ),
        blocks=(
            AffinityBlock(names[:3], near, far),
            AffinityBlock(names[3:], None, far),
        ),
    )


def forecasts(names: tuple[str, ...] = NODES) -> ForecastRecord:
    """Ten tenths, the last of them off and of few departures."""
    tenths = [part(k / 20 + 0.3, k / 20 + 0.32) for k in range(9)]
    return ForecastRecord(
        horizon_s=600.0,
        every_s=300.0,
        reliability=Reliability((*tenths, part(0.8, 0.5, 4.0)), ages()),
        affinity=affinity(names),
    )


def nothing() -> ForecastRecord:
    """What a replay leaves that was over before anything was due."""
    return ForecastRecord(600.0, 300.0, Reliability((), ()), None)
