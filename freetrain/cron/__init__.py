"""Regular ticks: shown, installed and removed in crontab, systemd or scrontab.

:class:`~freetrain.cron.ticks.Ticks` is what ``freetrain cron`` asks. A back end is one
class in :mod:`~freetrain.cron.back_ends`, and a line in its ``BACK_ENDS``.
"""
