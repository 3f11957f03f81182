"""Shapes that loss curves take, one module each, behind ``interface.py``."""
