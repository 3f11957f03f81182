"""Trainers of a replay: what they are, the built-in sets, trainers files."""
