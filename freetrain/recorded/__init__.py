"""Real training curves that ship with FreeTrain; docs/recorded-curves.md.

::

    from freetrain import recorded

    curve = recorded.load()["cnn-digits"]
    curve.loss.samples, curve.loss.values
"""

from freetrain.recorded.curve import RecordedCurve, Series, StepTime
from freetrain.recorded.loading import load

__all__ = ["RecordedCurve", "Series", "StepTime", "load"]
