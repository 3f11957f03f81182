"""The broker's decisions, pure: what is so, what is wanted, what to do about it."""
