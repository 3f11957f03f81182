"""FreeTrain: trains neural networks on the nodes that Slurm leaves idle."""
