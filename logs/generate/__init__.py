"""The workload generator: a machine and a seed in, a trace of jobs out."""
