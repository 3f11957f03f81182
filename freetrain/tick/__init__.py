"""A tick: one short run of the broker, from a snapshot of Slurm to leases and a report.

Start with ``tick.tick``: ``room``, ``observe``, ``plan``, ``record``, ``act`` and
``status_report`` are its steps, each a module of this package. All that touches the
world is in ``environment``; decisions about leases are made in ``freetrain.broker``.
"""
