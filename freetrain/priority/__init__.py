"""Priorities: how much nodes are worth to each trainer, as curves for the planner.

``base`` is the interface of a priority, and names all. Every other module is a
priority, but ``losses``, which is shared by those that look at losses, and
``migration``: by its rules members of packs move to other nodes.
"""
