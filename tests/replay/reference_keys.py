"""The figures that the independent replay beside the real logs prints."""

REFERENCE_KEYS = frozenset(
    {
        "samples",
        "finished",
        "end_s",
        "images_per_s",
        "eq_nodes",
        "pool_node_s",
        "used_node_s",
        "rescale_samples",
        "preempt_samples",
        "preemptions",
        "events",
    }
)
