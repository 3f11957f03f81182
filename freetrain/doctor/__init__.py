"""Looking at a cluster, and at ourselves on it, before training depends on it."""
