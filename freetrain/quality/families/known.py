"""The families that are tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.quality.families.exponential import Exponential
from freetrain.quality.families.flat import Flat
from freetrain.quality.families.inverse_linear import InverseLinear
from freetrain.quality.families.inverse_quadratic import InverseQuadratic
from freetrain.quality.families.power import Power
from freetrain.quality.families.shifted_power import ShiftedPower

if TYPE_CHECKING:
    from freetrain.quality.families.interface import Family

FLAT = Flat()
POWER = Power()
CURVES: tuple[Family, ...] = (
    POWER,
    Exponential(),
    InverseLinear(),
    InverseQuadratic(),
    ShiftedPower(),
)
KNOWN: tuple[Family, ...] = (FLAT, *CURVES)
