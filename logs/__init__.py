"""The scheduler-log library: logs in, jobs or idle intervals out."""
