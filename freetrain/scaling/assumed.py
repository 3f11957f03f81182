"""What is assumed of every trainer until it has shown better."""

ASSUMED_EXPONENT = 0.9
"""Speed on n nodes is taken to be n ** 0.9 of one node's until more is known."""

ASSUMED_RESCALE_S = 3.0
ASSUMED_START_S = 5.0
"""A clean rescale without a checkpoint took 0.75 s on the test cluster."""
