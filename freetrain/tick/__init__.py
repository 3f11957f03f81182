"""The tick: the edge at which the broker's decisions meet Slurm and files."""
