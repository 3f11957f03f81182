"""Learned scaling: how quick a trainer is on how many nodes, from its own fragments."""
