"""``freetrain demo --live``: broker, agents and training on one machine alone."""
