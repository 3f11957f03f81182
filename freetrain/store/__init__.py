"""The state directory: what ticks and commands remember, in SQLite."""
