"""Forecasts of idle nodes: how long they stay, and which of them leave together.

``base`` has the interface, ``registry`` the forecasters by name: another forecaster is
another module with one class, and one line in the registry. ``live`` is what a tick
uses; replays use forecasters directly.
"""
