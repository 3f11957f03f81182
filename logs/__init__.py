"""The scheduler-log library: logs in, jobs or idle intervals out.

What trainers and agents print is shown by ``freetrain.cli.trainer_logs``.
"""
