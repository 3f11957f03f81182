"""A simulated scheduler in the loop: the broker ticks while jobs come and go."""
