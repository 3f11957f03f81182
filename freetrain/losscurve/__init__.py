"""Loss curves: the forecast of a trainer's loss from its past values.

``forecast`` has the types, ``fit`` makes a forecast (start with ``fit_forecast``), and
``curve`` prepares the values and fits a curve to them.
``recorded`` loads the recorded trainings that ship with FreeTrain.
"""
