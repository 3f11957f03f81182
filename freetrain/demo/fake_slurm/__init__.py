"""A small fake Slurm: its programs on disk, and jobs that really run."""
