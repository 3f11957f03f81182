"""From jobs to holes: a log's jobs on a machine, and what they leave idle."""

from logs.schedule.build import schedule
from logs.schedule.result import Method, Schedule
from logs.schedule.slurm import SlurmParameters

__all__ = ["Method", "Schedule", "SlurmParameters", "schedule"]
