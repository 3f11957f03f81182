"""From jobs to holes: a log's jobs on a machine, and what they leave idle."""

from logs.schedule.placers import SlurmParameters
from logs.schedule.simulation import Method, Schedule, schedule

__all__ = ["Method", "Schedule", "SlurmParameters", "schedule"]
