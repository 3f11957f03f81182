"""The families that are tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.quality.families.exponential import EXPONENTIAL
from freetrain.quality.families.flat import FLAT
from freetrain.quality.families.inverse_linear import INVERSE_LINEAR
from freetrain.quality.families.inverse_quadratic import INVERSE_QUADRATIC
from freetrain.quality.families.power import POWER
from freetrain.quality.families.shifted_power import SHIFTED_POWER

if TYPE_CHECKING:
    from freetrain.quality.families.interface import Family

CURVES: tuple[Family, ...] = (
    POWER,
    EXPONENTIAL,
    INVERSE_LINEAR,
    INVERSE_QUADRATIC,
    SHIFTED_POWER,
)
KNOWN: tuple[Family, ...] = (FLAT, *CURVES)
