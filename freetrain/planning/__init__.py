"""From trainers and idle nodes to a plan: rating, learned speeds, and the policies.

Pure, and below both the live broker and the replay: both build records of what they
know (:mod:`~freetrain.planning.request`), and both turn a plan by node class into
what they act on, leases or nodes.
"""
