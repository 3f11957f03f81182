"""Loss curves: what a trainer's past values say of those to come.

``outlook.py`` is what others may rely on.
"""

from __future__ import annotations
