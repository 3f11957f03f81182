"""A tick: one short run of the broker, from a snapshot of Slurm to leases and a report.

Start with ``tick.tick``: each of its steps is a module of this package. ``follow_up``
runs more ticks before cron starts the next. All that touches the world is in
``environment``; what is decided, and why, is in ``freetrain.broker``.
"""
