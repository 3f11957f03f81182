"""How a world is started on the nodes of its leases, asked to stop, and killed."""
