"""Starts worlds, the sets of processes that train together, on the nodes of leases.

A launcher is one class in one module (``mpirun``, ``srun``, ``torchrun``, ``custom``,
``pack``), found by its name in ``freetrain.plugins``; ``base`` has the interface. It
answers a request with a plan (``request``) and starts nothing itself: ``local`` does,
on the node of the agent that heads a generation.
"""
