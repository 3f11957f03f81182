"""What may be expected of idle nodes, learned from those seen so far.

``interface.py`` is what others may rely on. Another forecaster is another module with a
class that keeps the contract there, named in ``registry.py``.
"""

from __future__ import annotations
