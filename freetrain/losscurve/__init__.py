"""Loss curves: what a trainer's past values say of those to come.

``forecast.py`` is what others may rely on.
"""

from __future__ import annotations
