"""The self-contained report of a replay."""
