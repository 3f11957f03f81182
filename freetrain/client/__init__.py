"""What users ask for: submit, cancel, pause, look, rehearse. No Slurm in here."""

from __future__ import annotations
