"""Priorities: which trainers deserve nodes, told to the planner as curves.

``interface.py`` is what a priority sees and answers; each other module is one of them.
"""
