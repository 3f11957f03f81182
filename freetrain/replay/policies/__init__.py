"""Policies in a replay: at every event they decide which trainer gets which node."""
