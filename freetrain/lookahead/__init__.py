"""Forecasts of idle nodes: how long they stay, and which of them leave together.

``base`` has the interface and the forecasters by name: another forecaster is another
module with one class, and one line in ``FORECASTERS``. ``live`` is the forecast of a
tick; replays use forecasters directly, and ``reliability`` scores them.
"""
