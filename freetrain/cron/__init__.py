"""Regular ticks: shown, installed and removed in crontab, systemd or scrontab.

``back_ends.Ticks`` is what ``freetrain cron`` asks. A back end is one
class there, and a line in ``BACK_ENDS``; ``call`` is the command of a tick.
"""
