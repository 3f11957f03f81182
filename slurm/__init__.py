"""The Slurm library: snapshots, holes and submissions."""
