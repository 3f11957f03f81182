"""A small stand-in for Slurm: its programs on disk, and jobs that really run."""

from __future__ import annotations
