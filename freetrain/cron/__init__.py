"""Having the tick run every minute: crontab, systemd timer or scrontab."""
