"""The broker's decisions, pure: from what Slurm says to actions on leases.

``belief`` settles which leases exist, ``yielding``, ``sharing`` and ``job_limits`` say
which must go for others, and ``decide`` plans and returns the actions.
"""
