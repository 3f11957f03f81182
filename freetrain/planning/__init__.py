"""From trainers and idle nodes to a plan: speeds, ratings, and the policies.

Pure, and below both the live broker and the replay: both ask a policy by the request of
:mod:`~freetrain.planning.policy`, and both turn its plan by node class into leases or
nodes.
"""
