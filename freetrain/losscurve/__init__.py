"""Loss curves: the forecast of a trainer's loss from its past values.

``forecast`` has the types, ``fit`` makes a forecast (start with ``fit_forecast``),
``families`` are the curves that it fits and ``history`` prepares the values.
``recorded`` loads the recorded trainings that ship with FreeTrain.
"""
