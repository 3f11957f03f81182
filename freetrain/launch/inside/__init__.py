"""A folder for PYTHONPATH in containers: FreeTrain's package, and nothing beside it."""
