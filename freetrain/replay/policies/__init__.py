"""Policies: who gets which node, decided anew at every event."""
